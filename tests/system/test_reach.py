"""Tests programs that settings or the recorder cannot reach: every verb says so in one line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import needs
from tests.conftest import PROGRAMS

from .conftest import Heapwright
from .test_tune import result

SWEEP = ["landscape", "--param", "mmap_threshold", "--step", "4"]
INSTEAD = "use the allocator that it has: --allocator exgen"
EXGEN = f"glibc's settings do not reach exgen-in: exgen is linked into it ({INSTEAD})"


@pytest.fixture(scope="module")
def exgen_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with exgen linked in."""
    heapwright = Heapwright(tmp_path_factory.mktemp("linked"), forked=True)
    cc, path = needs.command("gcc"), heapwright.folder / "exgen-in"
    done = heapwright("link", "--allocator", "exgen", "--", cc, "-o", str(path), str(PROGRAMS / "mapping_calls.c"))
    assert done.status == 0, done.err
    return path


@pytest.fixture
def linked(heapwright: Heapwright, exgen_in: Path) -> Path:
    """A copy of that program in the test's folder."""
    return Path(shutil.copy(exgen_in, heapwright.folder))


@pytest.mark.parametrize("words", [SWEEP, ["tune", "--allocators", "glibc"], ["tune", "--preset", "greenmalloc"]])
def test_settings_that_do_not_reach_the_program_are_refused(
    words: list[str], linked: Path, heapwright: Heapwright
) -> None:
    done = heapwright(*words, "--", f"./{linked.name}")
    assert (done.status, done.out, done.err) == (1, "", f"heapwright: {EXGEN}\n")
    assert list(heapwright.folder.iterdir()) == [linked]


def test_the_allocator_it_has_can_be_swept(linked: Path, heapwright: Heapwright) -> None:
    """The command that the message recommends works, and the program sees the setting."""
    words = ["landscape", "--allocator", "exgen", "--param", "front", "--step", "4", "--json", "-"]
    done = heapwright(*words, "--", str(linked))
    assert done.status == 0, done.err
    places = json.loads(done.out)["places"]
    assert len(places) > 1
    assert all(not p["failure"] for p in places)


def test_tune_without_a_named_allocator_searches_the_one_it_has(linked: Path, heapwright: Heapwright) -> None:
    """Regression: `tune` tried six allocators, reported each as not loaded, and failed."""
    done = heapwright("tune", "--budget", "2", "--pairs", "6:6", "--no-minify", "--json", "-", "--", str(linked))
    assert done.status == 0, done.err
    assert "is linked into exgen-in and serves its allocations" in done.err
    assert "not loaded" not in done.err
    assert {e["allocator"] for e in json.loads(done.out)["front"]} <= {"exgen"}


def test_a_program_with_exgen_linked_in_is_not_recorded(linked: Path, heapwright: Heapwright) -> None:
    """Regression: `record` printed '1 events' and reported success."""
    done = heapwright("record", "-o", "t.hwt", "--", f"./{linked.name}")
    what = "exgen-in cannot be recorded: exgen is linked into it (link it without 'heapwright link' to record it)"
    assert (done.status, done.out, done.err) == (1, "", f"heapwright: {what}\n")
    assert list(heapwright.folder.iterdir()) == [linked]


@pytest.mark.long
def test_run_warns_and_goes_on(linked: Path, heapwright: Heapwright, program: Callable[..., Path]) -> None:
    words = ["--params", "top_pad", "--method", "grid", "--pairs", "6:6", "--minimize", "mapping_calls"]
    tuned = Path(shutil.copy(program("mapping_calls"), heapwright.folder / "exgen-out"))
    done = heapwright("tune", "--study", "s.study", *words, "--", str(tuned))
    assert done.status == 0, done.err
    plain = heapwright("run", "s.study", "--", str(tuned))
    assert (plain.status, plain.err) == (0, "")
    tuned.unlink()
    shutil.copy(linked, tuned)  # built again, with exgen
    done = heapwright("run", "s.study", "--", str(tuned))
    assert (done.status, done.out) == (0, subprocess.run([linked], capture_output=True, text=True, check=True).stdout)
    warning = EXGEN.replace("exgen-in", "exgen-out")
    assert f"heapwright: warning: {warning}\n" in done.err


@pytest.mark.parametrize("cleared", [True, False])
def test_a_program_that_is_started_without_its_environment_is_not_searched(
    cleared: bool, heapwright: Heapwright
) -> None:
    """All configurations would be the default, and 'no proven improvement' would say something about its malloc."""
    code = "print(len([bytearray(3000) for _ in range(5000)]))"
    start = f"{'env -i' if cleared else 'env'} {sys.executable} -c '{code}'; true"
    words = ["--study", "s.study", "--budget", "1", "--search-only", "--no-minify", "--json", "-"]
    found = result(heapwright("tune", *words, "--", "sh", "-c", start))
    name = Path(os.path.realpath(sys.executable)).name
    said = f"Most memory of this command is of {name}, which it starts without passing its environment on."
    assert found["claim"].startswith(said) == cleared
    assert bool(found["evaluations"]) != cleared
    again = result(heapwright("tune", *words, "--", "sh", "-c", start))
    assert again["claim"] == found["claim"]
