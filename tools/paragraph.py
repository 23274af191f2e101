"""Wraps paragraphs of the pages that tools write."""

from __future__ import annotations

import re
import textwrap


def paragraph(text: str) -> str:
    """Break a paragraph of Markdown into lines of at most 100 columns, but not inside code.

    Args:
        text: the paragraph, in any number of lines.
    """
    whole = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", "\0"), text)
    return textwrap.fill(whole, 100, break_long_words=False, break_on_hyphens=False).replace("\0", " ")
