"""What we write to a terminal: names from outside made fit for it.

A command, a path, a study, an ELF file's symbol or a variable's value may hold anything: escape sequences that repaint
the screen, set its title or ask it questions, characters that turn the direction of text, line breaks that begin a
line as if it were ours. Whatever we say goes through here, and stands there as what it is: ESC as ␛, a line break as ␊,
what has no picture as �. (Data that a program reads, JSON or what `apply` prints into a pipe, stays as it is.)
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

# Control characters, those that turn the direction of text, separators of lines, bytes of names that are no text.
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str, keep: str = "") -> str:
    """A text without anything that a terminal would obey.

    Args:
        keep: characters that may stay: a line break, where the text is several lines of ours.
    """

    def picture(match: re.Match[str]) -> str:
        code = ord(match[0])
        if match[0] in keep:
            return match[0]
        return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"

    return _UNFIT.sub(picture, text)


def say(text: str) -> None:
    """One line on stderr, with our name before it."""
    sys.stderr.write(f"heapwright: {visible(text)}\n")
    sys.stderr.flush()


def warn(text: str) -> None:
    """One line on stderr that is a warning."""
    say(f"warning: {text}")


def tell(text: str) -> None:
    """One line on stdout."""
    sys.stdout.write(f"{visible(text)}\n")


def console(stderr: bool = False) -> Console:
    """A console for tables and paragraphs: what they hold is text, never markup, and nothing in it is obeyed."""
    from collections.abc import Iterable

    from rich.console import Console as Plain
    from rich.console import ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Fit(Plain):
        """Colours and cursor movements are its own: they are styles and control segments, not text."""

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            """Everything that is printed comes by here, cell by cell."""
            for segment in super().render(renderable, options):
                yield segment if segment.control else segment._replace(text=visible(segment.text, "\n"))

    return Fit(stderr=stderr, highlight=False, markup=False)
