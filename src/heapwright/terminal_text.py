"""Writes text to a terminal, with control characters replaced by visible ones.

A command, a path, a study, a symbol of an ELF file or the value of a variable may contain anything: escape sequences
that repaint the screen, set its title or query it; characters that change the direction of text; line breaks that fake
a line of heapwright's. All output for people passes through this module, which shows ESC as ␛, a line break as ␊, and
other such characters as �. Data for programs (JSON, the output of `apply` into a pipe) stays unchanged.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

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


def column_groups(widths: Sequence[int], width: float, gap: int = 2) -> list[range]:
    """Divide the columns of a table into tables that fit, each with the first column before the others.

    Args:
        widths: of all columns.
        width: of the terminal; a single column may be wider.
        gap: between two columns.

    Returns:
        The columns of each table, without the first one.
    """
    groups = []
    at = 1
    while at < len(widths):
        end, used = at, widths[0]
        while end < len(widths) and (end == at or used + gap + widths[end] <= width):
            used += gap + widths[end]
            end += 1
        groups.append(range(at, end))
        at = end
    return groups


def print_table(
    out: Console, headings: Sequence[str], rows: Sequence[Sequence[str | Text]], gap: int = 2, shortest: int = 0
) -> int:
    """Print a table of named rows. No figure is cut: one without its end is wrong.

    On a terminal, columns that do not fit become a second table below, which repeats the names. A log has lines as
    long as the table.

    Args:
        out: where to print.
        headings: of the columns; the first one has the names of the rows.
        rows: the cells; missing ones are empty.
        gap: spaces between two columns.
        shortest: names may be shortened to so many characters before a second table begins; 0: never.

    Returns:
        The width of the widest table.
    """
    from rich.text import Text

    cells = [[Text(heading, "table.header") for heading in headings]]
    cells += [[*(Text(c) if isinstance(c, str) else c for c in r), *[Text()] * (len(headings) - len(r))] for r in rows]
    widths = [max(row[i].cell_len for row in cells) for i in range(len(headings))]
    width = out.width if out.is_terminal else math.inf
    if shortest:
        room = width - sum(gap + figure for figure in widths[1:])
        widths[0] = int(min(widths[0], max(shortest, room)))
    widest = 0
    for number, group in enumerate(column_groups(widths, width, gap)):
        if number:
            out.print()
        for row in cells:
            line = row[0].copy()
            line.truncate(widths[0], overflow="ellipsis", pad=True)
            for i in group:
                line.append(" " * (gap + widths[i] - row[i].cell_len)).append_text(row[i])
            line.rstrip()
            out.print(line, soft_wrap=True)
        widest = max(widest, widths[0] + sum(gap + widths[i] for i in group))
    return widest
