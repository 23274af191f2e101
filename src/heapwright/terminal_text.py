"""Writes text to a terminal, with control characters replaced by visible ones.

A command, a path, a study, a symbol of an ELF file or the value of a variable may contain anything: escape sequences
that repaint the screen, set its title or query it; characters that change the direction of text; line breaks that fake
a line of heapwright's. All output for people passes through this module, which shows ESC as ␛, a line break as ␊, and
other such characters as �. Data for programs (JSON, the output of `apply` into a pipe) stays unchanged.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

# Control characters, marks of text direction, line separators, and bytes of file names that are not
# UTF-8.
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str, keep: str = "") -> str:
    """Replace every character in a text that a terminal would obey.

    Args:
        text: the text.
        keep: characters that stay, such as the line break in a text of several lines.
    """

    def picture(match: re.Match[str]) -> str:
        code = ord(match[0])
        if match[0] in keep:
            return match[0]
        return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"

    return _UNFIT.sub(picture, text)


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: '1 run', '2,000 runs'.

    Args:
        count: the number.
        noun: one thing.
        plural: several things; empty: the noun with an s.
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def say(text: str) -> None:
    """Write one line on stderr, after 'heapwright: '."""
    sys.stderr.write(f"heapwright: {visible(text)}\n")
    sys.stderr.flush()


def warn(text: str) -> None:
    """Write one line on stderr that is a warning."""
    say(f"warning: {text}")


def tell(text: str) -> None:
    """Write one line on stdout."""
    sys.stdout.write(f"{visible(text)}\n")


def console(stderr: bool = False) -> Console:
    """Return a rich console that prints all content as plain text: no markup, no control characters."""
    from collections.abc import Iterable

    from rich.console import Console as Plain
    from rich.console import ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Fit(Plain):
        """Filters text only; colours and cursor movements of rich are styles and control segments."""

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            """Render, as everything that is printed does, and filter each piece of text."""
            for segment in super().render(renderable, options):
                yield segment if segment.control else segment._replace(text=visible(segment.text, "\n"))

        def on_broken_pipe(self) -> None:
            """Let the caller end as for any output to a closed pipe; rich would end with status 1."""
            raise BrokenPipeError

    return Fit(stderr=stderr, highlight=False, markup=False)
