"""tools/results.py: a page's table is made by the command that the page names, and a failure leaves the page alone."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import ROOT
from tests.tools.loading import load_tool

INCOMPLETE = 3
PAGE = """Before.

<!-- make results: {command} -->
| old |
<!-- end -->

After.

<!-- make results: echo '| second |' -->
<!-- end -->
"""


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tool as a module, with its files in a folder of the test."""
    module = load_tool("results", monkeypatch)
    monkeypatch.setattr(module, "PAGES", tmp_path)
    monkeypatch.setattr(module, "STATE", tmp_path / "results.json")
    monkeypatch.setattr(module, "LOGS", tmp_path / "results")
    monkeypatch.setattr(module, "commit", lambda *_: "abc")
    return module


def test_long_prose_is_broken_and_tables_are_not(tool: ModuleType) -> None:
    row = "| " + "cell " * 30 + "|"
    prose = "word " * 19 + "`some code`."
    assert tool.wrapped(f"{prose}\n{row}") == f"{'word ' * 18}word\n`some code`.\n{row}"


def go(tool: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["results.py", *words])
    return int(tool.main())


def test_a_table_is_made_again_in_its_place(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(command=f"echo x >>{tmp_path}/ran; echo told >&2; echo '| new |'"))
    assert go(tool, monkeypatch) == 0
    first, second = (found[0] for found in re.finditer(r"<!-- make.*?<!-- end -->", page.read_text(), re.S))
    assert re.search(r"\nMade on 20\S+ at abc: .* CPUs, Linux .*; load \d+\.\d+ before\.\n\n\| new \|\n", first, re.S)
    assert "| old |" not in first
    assert "\ntold" not in first
    assert "\n| second |\n" in second
    assert page.read_text().startswith("Before.\n")
    assert "\nAfter.\n" in page.read_text()
    assert go(tool, monkeypatch) == 0
    assert (tmp_path / "ran").read_text() == "x\n"  # what passed at this commit is not made again


@pytest.mark.parametrize("command", ["echo '| half |'; exit 3", "false; echo '| old file |'"])
def test_a_failure_leaves_the_page_as_it_was(
    command: str, tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(command=command))
    before = page.read_text()
    assert go(tool, monkeypatch, "page-1") == 1
    assert page.read_text() == before


def test_the_command_heapwright_is_that_of_the_checkout(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(command="command -v heapwright"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert go(tool, monkeypatch, "page-1") == INCOMPLETE
    assert f"\n{Path(sys.executable).parent / 'heapwright'}\n" in page.read_text()


def plain(text: str) -> str:
    """Text without comments, line breaks, places of files and the folder of commands."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"\.venv/bin/|--(json|markdown) \S+|>/dev/null; cat \S+", "", text)
    return re.sub(r"(\s|\\\n)+", " ", text)


def test_every_page_tells_its_reader_the_commands() -> None:
    """A page shows each command that makes a table of it."""
    pages = {page: page.read_text() for page in ROOT.glob("docs/results/*.md")}
    made = [(p, c) for p, text in pages.items() for c in re.findall(r"<!-- make results: (.+) -->", text)]
    assert len(made) > 10
    for page, commands in made:
        for command in plain(commands).replace("; echo;", ";").split("; "):  # an empty line between two tables
            assert command.strip() in plain(pages[page]), f"{page.name} does not show: {command}"
