"""Wraps paragraphs of the pages that tools write."""

from __future__ import annotations

from heapwright.report import terminal


def paragraph(text: str) -> str:
    """Break a paragraph of Markdown into lines of at most 100 columns, but not inside code.

    Args:
        text: the paragraph, in any number of lines.
    """
    return terminal.paragraph(text, 100, whole=r"`[^`]*`")
