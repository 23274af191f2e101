"""Reads code blocks, tables, links and headings of Markdown files with markdown-it-py."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

_PARSER = MarkdownIt("commonmark").enable("table")


def _parse(page: Path) -> list[Token]:
    return _PARSER.parse(page.read_text(encoding="utf-8"))


class CodeBlock(NamedTuple):
    """A fenced or indented code block.

    Attributes:
        line: number of its first line of code in the file, from 1.
        language: the word after the fence; empty for an indented block.
        lines: its lines of code.
        mark: the HTML comment directly before it; empty if there is none.
    """

    line: int
    language: str
    lines: list[str]
    mark: str


def code_blocks(page: Path) -> Iterator[CodeBlock]:
    """Yield the code blocks of a page, also those within lists and quotes."""
    mark, mark_end = "", -1
    for token in _parse(page):
        first, end = token.map or (0, 0)
        if token.type == "html_block":
            mark, mark_end = token.content.strip(), end
        elif token.type in ("fence", "code_block"):
            fenced = token.type == "fence"
            language = token.info.partition(" ")[0]
            before = mark if mark_end == first else ""
            yield CodeBlock(first + 1 + fenced, language, token.content.splitlines(), before)


def tables(page: Path) -> list[list[list[str]]]:
    """Return the tables of a page as rows of cells in Markdown, headings first."""
    found: list[list[list[str]]] = []
    in_table = False
    for token in _parse(page):
        if token.type == "table_open":
            found.append([])
            in_table = True
        elif token.type == "table_close":
            in_table = False
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type == "inline" and in_table:
            found[-1][-1].append(token.content)
    return found


def links(page: Path) -> list[str]:
    """Return the targets of a page's links and images, as they are written."""
    found = []
    for token in _parse(page):
        for child in token.children or []:
            target = child.attrGet("href") if child.type == "link_open" else child.attrGet("src")
            if target is not None:
                found.append(unquote(str(target)))
    return found


def headings(page: Path) -> list[str]:
    """Return the text of a page's headings, without markup."""
    tokens = _parse(page)
    return [
        "".join(child.content for child in text.children or [])
        for head, text in itertools.pairwise(tokens)
        if head.type == "heading_open"
    ]
