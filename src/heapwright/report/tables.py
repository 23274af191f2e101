"""Writes a table of text as Markdown, CSV or LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

Rows = Sequence[Sequence[str]]

_TEX = {
    "\\": r"\textbackslash{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "±": r"$\pm$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "…": r"\dots{}",
}


def markdown_table(rows: Rows) -> list[str]:
    """Return a table as lines of Markdown; the first row has the headings."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return [lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]


def csv_table(rows: Rows) -> str:
    """Return a table as CSV."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def tex(text: str) -> str:
    """Return text with LaTeX's special characters escaped."""
    return "".join(_TEX.get(c, c) for c in text)


def latex_table(
    rows: Rows, caption: str = "", label: str = "", text: Sequence[str] = (), wide: Sequence[str] = ()
) -> str:
    """Return a table as LaTeX; it needs the package booktabs. The first column is text, the others are numbers.

    Args:
        rows: the headings, then the rows. A shorter row ends in a cell that spans the rest.
        caption: below the table; none if empty.
        label: for references; none if empty.
        text: headings of further columns of text.
        wide: headings of columns of sentences, which break into lines.
    """
    width = len(rows[0])
    kinds = {**dict.fromkeys(text, "l"), **dict.fromkeys(wide, rf"p{{{0.45 / max(1, len(wide)):.2g}\linewidth}}")}
    columns = "l" + "".join(kinds.get(heading, "r") for heading in rows[0][1:])

    def line(row: Sequence[str]) -> str:
        cells = [tex(cell) for cell in row]
        if len(cells) < width:
            cells[-1] = rf"\multicolumn{{{width - len(cells) + 1}}}{{l}}{{{cells[-1]}}}"
        return " & ".join(cells) + r" \\"

    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            line(rows[0]),
            r"\midrule",
            *map(line, rows[1:]),
            r"\bottomrule",
            r"\end{tabular}",
            *([rf"\caption{{{tex(caption)}}}"] if caption else []),
            *([rf"\label{{{label}}}"] if label else []),
            r"\end{table}",
            "",
        ]
    )
