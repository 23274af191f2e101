"""Finds the commands in the documentation's code blocks and splits them into words.

A command is a line that begins with `heapwright`, perhaps after a prompt, variables, `env …` or `docker run … IMAGE`,
with its continuation lines. A block after the line `<!-- run -->` is a shell script that the tests run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.markdown import code_blocks

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
_MARK = "<!-- run -->"
_SHELLS = ("", "sh", "text", "bash", "console")


class Command(NamedTuple):
    """One command of a page.

    Attributes:
        page: the file.
        line: its line in the file, from 1.
        words: the words after `heapwright`.
    """

    page: Path
    line: int
    words: list[str]

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}: {' '.join(self.words)}"


def commands(page: Path) -> Iterator[Command]:
    """Yield every heapwright command in a page's code blocks."""
    for block in code_blocks(page):
        if block.language not in _SHELLS:
            continue
        i = 0
        while i < len(block.lines):
            at, text = block.line + i, block.lines[i]
            while text.rstrip().endswith("\\") and i + 1 < len(block.lines):
                i += 1
                text = text.rstrip()[:-1] + block.lines[i]
            i += 1
            words = _words(text)
            if words:
                yield Command(page, at, words)


def _words(text: str) -> list[str]:
    """Return the words after `heapwright`; none if the line is no heapwright command."""
    if not re.match(r"(\$ )?((env )?([A-Z_]+=\S+ )*|docker run .* )heapwright [a-z]", text):
        return []
    words = shlex.split(text.removeprefix("$ "), comments=True)
    words = words[words.index("heapwright") + 1 :]
    end = next(
        (i for i, w in enumerate(words) if w in ("|", "<", ">", "&&", "||") or w.startswith((">", "2>"))), len(words)
    )
    return words[:end]


def scripts(page: Path) -> str:
    """Return the code blocks of a page that are marked with `<!-- run -->`, as one script."""
    return "\n".join("\n".join(block.lines) for block in code_blocks(page) if block.mark == _MARK)
