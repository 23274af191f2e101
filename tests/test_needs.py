"""Tests that every skip states its need by tests/needs.py, and that a run ends with one line that counts skips."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from heapwright.allocators.peers import known_peers
from tests import needs
from tests.conftest import ROOT

SAMPLE = """
import pytest
from tests import needs
from tests.conftest import *

def test_passes(): pass
def test_lacks_one(): needs.missing("clang")
def test_lacks_the_same(): needs.missing("clang")
@pytest.mark.skipif(True, reason=needs.PACKAGE + "zstd")
def test_lacks_another(): pass
@needs.only_where(False, "fly")
def test_cannot(): pass
def test_is_not_built(): needs.not_built("libexgen.so")
def test_gives_no_reason(): pytest.skip("no idea")
@pytest.mark.long
def test_is_long(): pass
@pytest.mark.parametrize("n", [1, needs.long(2), needs.long_unless(False, 3), needs.long_unless(True, 4)])
def test_is_partly_long(n): pass
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.few(1)
def test_has_few_cases(n): pass
"""


def packages(which: str) -> set[str]:
    done = subprocess.run([ROOT / "tools/setup", "--list", which], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_every_skip_is_stated_here() -> None:
    direct = re.compile(r"pytest\.(skip|importorskip|mark\.skip)")
    files = {file for file in (ROOT / "tests").rglob("*.py") if direct.search(file.read_text(encoding="utf-8"))}
    assert {str(file.relative_to(ROOT)) for file in files} == {"tests/needs.py", "tests/test_needs.py"}


def test_the_set_up_installs_what_tests_need() -> None:
    """`tools/setup` names every package that Debian does not always install; only whole programs need the long form."""
    everywhere = {"bash", "coreutils", "mawk", "mount", "python3", "util-linux"}
    named = set(needs.PACKAGES.values()) - everywhere
    short, long = packages("build") | packages("test"), packages("torture")
    platforms = {"g++-aarch64-linux-gnu", "qemu-user"}
    whole = {"cargo", "postgresql", "tcl", "texlive-latex-recommended", "user-mode-linux"}
    assert named - short == whole | platforms
    assert named - short <= long | packages("platforms")
    assert {peer.package for peer in known_peers()} - {""} <= short
    skips = re.compile(r'needs\.missing\("([^"{}]+)"\)')
    texts = (file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py") if file != Path(__file__))
    literal = {package for text in texts for package in skips.findall(text)}
    assert "libomp5" in literal
    assert literal - short - long == {"libzstd1"}  # which libzstd-dev brings


@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.few(1)
def test_a_run_ends_with_the_count(workers: str, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_sample.py").write_text(SAMPLE)

    def last_lines(*options: str) -> str:
        words: list[str | Path] = [sys.executable, "-m", "pytest", "-n", workers, "-c", ROOT / "pyproject.toml"]
        done = subprocess.run([*words, *options, tmp_path], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout

    counts = (
        "skipped for a missing package: 3 (clang 2, zstd 1); because this machine cannot: 1; "
        "because a part is not built: 1; for other reasons: 1. Only in the long form (pytest --long): {}."
    )
    said = last_lines("-rs")
    assert re.search(r"SKIPPED \[1\] \S*test_sample\.py:\d+: missing package: clang", said)
    assert counts.format(5) in said
    assert "4 passed" in said
    said = last_lines("--long")
    assert counts.format(0) in said
    assert "9 passed" in said
    assert "5 passed" in last_lines("--long", "-m", "long"), "all cases that the short form leaves out"


def test_tests_that_repeat_more_in_the_long_form_are_marked() -> None:
    """`make torture` selects the tests of its long form by their marks."""
    found = []
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        module = ast.parse(file.read_text(encoding="utf-8"))
        of_all = [
            ast.unparse(x.value) for x in module.body if isinstance(x, ast.Assign) and "pytestmark" in ast.unparse(x)
        ]
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                marks = of_all + [ast.unparse(mark) for mark in node.decorator_list]
                called = {ast.unparse(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)}
                known = any(mark.startswith(("pytest.mark.long", "given", "rule")) for mark in marks)
                found += [f"{file.name}::{node.name}"] if "needs.repeats" in called and not known else []
    assert found == []


def test_a_run_that_lacks_nothing_says_so() -> None:
    assert needs.summary([], 0).startswith("skipped for a missing package: 0; because this machine cannot: 0;")


def test_a_command_that_is_missing_is_named_by_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match=r"^missing package: p7zip-full$"):
        needs.command("7z")
    with pytest.raises(KeyError):
        needs.command("a command that no package is known for")
    assert needs.command() == ""
    (tmp_path / "7z").write_text("#!/bin/sh\n")
    (tmp_path / "7z").chmod(0o755)
    assert needs.command("7z") == str(tmp_path / "7z")


def test_an_allocator_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "find_allocators", lambda: {"exgen": None})
    needs.peer("exgen")
    with pytest.raises(pytest.skip.Exception, match=r"^missing package: libjemalloc2$"):
        needs.peer("jemalloc")
    with pytest.raises(pytest.skip.Exception, match=r"^not built: mimalloc3 \(make peers\)$"):
        needs.peer("mimalloc3")
