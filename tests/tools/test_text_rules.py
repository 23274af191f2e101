"""The rules on text: our sources keep them, and each rule reports a text that breaks it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.tools.loading import load_tool

PROGRAM = ROOT / "tools/text_rules.py"
rules = load_tool("text_rules")


def check(folder: Path, *options: str) -> tuple[int, list[str]]:
    """The exit status and the lines that the check prints in a repository that has the files of a folder."""
    for words in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    done = subprocess.run([sys.executable, PROGRAM, *options], cwd=folder, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def test_a_text_that_keeps_the_rules_passes(tmp_path: Path) -> None:
    write(tmp_path, "docs/page.md", "# A page\n\nA short line.\n")
    write(tmp_path, "src/a.py", '"""A module."""\n')
    assert check(tmp_path) == (0, [])
    assert check(tmp_path, "--list") == (0, [])


CLAUSE = "what" + " is here\n"  # so that this file has no clause itself


@pytest.mark.parametrize("name", ["native/a.h", "docs/a.md", "tests/a.toml"])
def test_too_many_clauses_are_reported_with_their_number(tmp_path: Path, name: str) -> None:
    """The list has a line for each of them, also if two are in one line."""
    write(tmp_path, name, CLAUSE * (rules.MAX_CLAUSES - 1) + f"{'Who'} goes, {'whose'} other\n")
    status, lines = check(tmp_path)
    assert status == 1
    assert lines[0].startswith(f"{rules.MAX_CLAUSES + 1} places have a clause")
    status, lines = check(tmp_path, "--list")
    assert (status, lines[0], len(lines)) == (1, f"{name}:1: {CLAUSE.strip()}", rules.MAX_CLAUSES + 2)
    write(tmp_path, name, CLAUSE * rules.MAX_CLAUSES)
    assert check(tmp_path) == (0, [])


@pytest.mark.parametrize("line", ["| 5_% |", "up to 1.2_% of it", "by 0.4\n_%.", "{x}_%"])
def test_a_space_before_a_per_cent_sign_is_reported(line: str, tmp_path: Path) -> None:
    write(tmp_path, "docs/page.md", f"{line.replace('_', ' ')}\n`$_ * 7919 % 97`, 5%\n")
    status, lines = check(tmp_path)
    assert (status, len(lines)) == (1, 1)
    assert "a space before a per cent sign" in lines[0]


def test_a_long_file_is_reported(tmp_path: Path) -> None:
    write(tmp_path, "native/a.cpp", "//\n" * rules.MAX_LINES)
    write(tmp_path, "tests/data/table.toml", "#\n" * (rules.MAX_LINES + 1))
    assert check(tmp_path) == (0, [])
    write(tmp_path, "native/a.cpp", "//\n" * (rules.MAX_LINES + 1))
    many = rules.MAX_LINES + 1
    assert check(tmp_path) == (
        1,
        [f"native/a.cpp: {many} lines, at most {rules.MAX_LINES} are allowed: split it by concepts"],
    )


LONG = "word " * 21  # 104 columns with the space at its end


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        (LONG + "end", True),
        ("- " + LONG, True),
        ("word " * 19 + "`a b c d`", True),
        ("| " + LONG + "|", False),
        ("# " + LONG, False),
        ("    " + LONG, False),
        ("```\n" + LONG + "\n```", False),
        ("```\n```\n" + LONG, True),
        ("https://" + "x" * 100, False),
        ("`" + LONG + "`", False),
    ],
)
def test_a_wide_line_of_prose_is_reported(tmp_path: Path, text: str, reported: bool) -> None:
    """Tables, headings, code and a line that cannot be broken may be wide. The rule also holds outside of docs/."""
    write(tmp_path, "README.md", text + "\n")
    status, lines = check(tmp_path)
    assert status == reported
    assert [line.rpartition(": ")[2] for line in lines] == [
        f"{max(len(line) for line in text.splitlines())} columns, at most {rules.MAX_WIDTH} are allowed"
    ] * reported


FUNCTION = 'def {name}(a: int, b: int, c: int) -> None:\n    """{doc}"""\n'


@pytest.mark.parametrize(
    ("source", "reported"),
    [
        (FUNCTION.format(name="work", doc="Does it with a and b."), "the docstring of work does not name c"),
        ("def work(a, b, *, c):\n    pass\n", "the docstring of work does not name a, b, c"),
        (FUNCTION.format(name="work", doc="Does it with a, b and c."), ""),
        (FUNCTION.format(name="_work", doc="Does it."), ""),
        ("def work(a, b):\n    pass\n", ""),
        ("class A:\n    def work(self, a, b):\n        pass\n", ""),
        ("class A:\n    def work(self, a, b, c):\n        pass\n", "the docstring of work does not name a, b, c"),
        ("class _A:\n    def work(self, a, b, c):\n        pass\n", ""),
    ],
)
def test_a_docstring_that_names_no_parameter_is_reported(tmp_path: Path, source: str, reported: str) -> None:
    write(tmp_path, "src/a.py", source)
    write(tmp_path, "tests/a.py", source)  # only the package has this rule
    status, lines = check(tmp_path)
    assert status == (1 if reported else 0)
    assert [line.rpartition(": ")[2] for line in lines] == [reported] * bool(reported)
