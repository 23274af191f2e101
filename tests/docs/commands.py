"""The commands in the documentation: found in Markdown, put into words, and held against the command line's parser.

Taken are lines of code blocks that begin with `heapwright`, perhaps after a prompt, variables, `env …` or
`docker run … IMAGE`, with their continuations. A block after the line `<!-- run -->` is a shell script that is run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
_MARK = "<!-- run -->"
_SHELLS = ("", "sh", "text", "bash", "console")


class Command(NamedTuple):
    """One command as it stands in a page."""

    page: Path
    line: int
    words: list[str]

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}: {' '.join(self.words)}"


def blocks(page: Path) -> Iterator[tuple[int, str, list[str], bool]]:
    """Code blocks: number of the first line, language, lines, whether they are to be run."""
    lines = page.read_text(encoding="utf-8").splitlines()
    i = 0
    while i < len(lines):
        fence = re.match(r"```(\w*)", lines[i])
        if fence:
            end = next(j for j in range(i + 1, len(lines)) if lines[j].startswith("```"))
            yield i + 2, fence[1], lines[i + 1 : end], i > 0 and lines[i - 1].strip() == _MARK
            i = end + 1
        elif lines[i].startswith("    ") and (i == 0 or not lines[i - 1].strip()):
            end = next((j for j in range(i, len(lines)) if lines[j].strip() and lines[j][:4].strip()), len(lines))
            yield i + 1, "", [x[4:] for x in lines[i:end]], False
            i = end
        else:
            i += 1


def commands(page: Path) -> Iterator[Command]:
    """Every heapwright command in a page's code blocks."""
    for first, language, lines, _ in blocks(page):
        if language not in _SHELLS:
            continue
        i = 0
        while i < len(lines):
            at, text = first + i, lines[i]
            while text.rstrip().endswith("\\") and i + 1 < len(lines):
                i += 1
                text = text.rstrip()[:-1] + lines[i]
            i += 1
            words = _words(text)
            if words:
                yield Command(page, at, words)


def _words(text: str) -> list[str]:
    """What follows `heapwright`; nothing where the line is no such command."""
    if not re.match(r"(\$ )?((env )?([A-Z_]+=\S+ )*|docker run .* )heapwright [a-z]", text):
        return []
    words = shlex.split(text.removeprefix("$ "), comments=True)
    words = words[words.index("heapwright") + 1 :]
    end = next((i for i, w in enumerate(words) if w in ("|", ">", "&&", "||") or w.startswith((">", "2>"))), len(words))
    return words[:end]


def scripts(page: Path) -> str:
    """What of a page is to be run, one after the other."""
    return "\n".join("\n".join(lines) for _, _, lines, run in blocks(page) if run)
