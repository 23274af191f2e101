"""Tests that whole programs print the same, byte for byte, under our mallocs as under their own.

`make torture` writes the table of results to build/torture/programs.md.
"""

from __future__ import annotations

import difflib
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from heapwright.report.html import write_report
from tests import needs
from tests.allocator.conftest import GLIBC, NAMES, Malloc, bundled
from tests.conftest import ROOT
from tests.report.views import view
from tests.torture.whole import PROGRAMS, note, run, source, whose_malloc

HARDENED = ("exgen-secure", "reaper-secure")
# The number of lines of a difference that are shown.
SHOWN = 40
EVERY = [needs.long_unless(not program.long, name) for name, program in PROGRAMS.items()]


def mallocs(long: bool) -> list[Malloc]:
    """Our mallocs; in the long form, the hardened builds too."""
    names = NAMES if long else tuple(name for name in NAMES if name not in HARDENED)
    return [Malloc(name, library) for name in names if (library := bundled(name))]


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report to open."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report([view()], path)
    return path


def need(name: str) -> None:
    """Skips the test if something that the program needs is missing."""
    needs.command(*PROGRAMS[name].needs)
    if name == "cpython":
        code = "import sys; print('%d.%d' % sys.version_info[:2]); import test.test_json"
        done = subprocess.run(["/usr/bin/python3", "-c", code], capture_output=True, text=True)
        if done.returncode:
            needs.missing(f"libpython{done.stdout.strip()}-testsuite")


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.long
def test_prints_the_same(name: str, long: bool, request: pytest.FixtureRequest) -> None:
    need(name)
    env = {"PYTHON": sys.executable, "ROOT": str(ROOT), "SIZE": "long" if long else "short"}
    if name == "chromium":
        env["PAGE"] = str(request.getfixturevalue("page"))
    if PROGRAMS[name].source:
        tests = source(PROGRAMS[name])
        if tests is None:
            needs.missing(f"the source of {PROGRAMS[name].source}")
        env["SOURCE"] = str(tests)
    ours = mallocs(long and not PROGRAMS[name].source)
    with ThreadPoolExecutor(1 if PROGRAMS[name].alone else 2) as pool:
        (plain, seconds), *runs = pool.map(lambda malloc: run(name, malloc, env, 1500), (GLIBC, *ours))
    outcome = {"plain": f"{len(plain.splitlines())} lines, {seconds:.0f} s"}
    differences = []
    for malloc, (printed, seconds) in zip(ours, runs, strict=True):
        same = printed == plain
        outcome[malloc.name] = f"the same, {seconds:.0f} s" if same else "**differs**"
        if not same:
            lines = difflib.unified_diff(
                plain.splitlines(), printed.splitlines(), "plain", malloc.name, n=1, lineterm=""
            )
            differences += [*lines][:SHOWN]
    note(name, outcome)
    assert not differences, "\n".join(differences)
    assert "script: 0" in plain, plain[-2000:]


@pytest.mark.parametrize("name", EVERY)
def test_has_our_malloc(name: str, long: bool) -> None:
    need(name)
    for malloc in mallocs(long)[:2]:
        assert {*whose_malloc(PROGRAMS[name], malloc)} == {PROGRAMS[name].own}


@pytest.mark.long
def test_a_fault_is_a_difference(program: Callable[..., Path]) -> None:
    need("git")
    faulty = Malloc("faulty", program("allocator_faulty", "-shared", "-fPIC", "-fno-builtin"))
    env = {"PYTHON": sys.executable, "ROOT": str(ROOT), "SIZE": "short"}
    plain, _ = run("git", GLIBC, env, 100)
    assert plain == run("git", faulty, env, 100)[0], "without a fault it is a malloc like another"
    assert plain != run("git", faulty, env | {"FAULT": "dirty"}, 100)[0]
