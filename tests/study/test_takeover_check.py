"""Tests with real programs whether an allocator's settings reach them, with one run each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heapwright.allocators.registry import get_allocator
from heapwright.measure.meter import MeterOptions
from heapwright.tuning.takeover_check import check_reach
from heapwright.workload.execute import Executor
from heapwright.workload.model import Input, Workload, WorkloadFile
from tests import needs
from tests.conftest import PROGRAMS

ONE = Input("default")


class Counting(Executor):
    """Counts its runs."""

    made = 0

    def run(self, *args: Any, **named: Any) -> Any:
        """A run."""
        self.made += 1
        return super().run(*args, **named)


@pytest.fixture
def check(tmp_path: Path, meter: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, int]]:
    """The answer of check_reach for a command, and the number of runs that it made."""
    monkeypatch.setenv("HEAPWRIGHT_METER", str(meter))
    monkeypatch.delenv("LD_PRELOAD", raising=False)

    def ask(allocator: str, *command: str | Path) -> tuple[str, int]:
        workload = Workload(WorkloadFile(command=[str(w) for w in command]), tmp_path, (ONE,))
        executor = Counting(workload, MeterOptions(backend="poll", timeout=30), tmp_path / "references")
        found = check_reach(executor, get_allocator(allocator), os.environ, workload.program(ONE), ONE)
        return found, executor.made

    return ask


def build(path: Path, *words: str | Path) -> Path:
    """Links mapping_calls.c with more."""
    subprocess.run([needs.command("gcc"), "-O1", "-o", path, PROGRAMS / "mapping_calls.c", *words], check=True)
    return path


def test_a_preloaded_malloc_takes_over_in_dynamic_programs(
    check: Callable[..., tuple[str, int]], program: Callable[..., Path]
) -> None:
    """The loader decides, so the program need not run."""
    for name in ("glibc", "exgen"):
        assert check(name, program("mapping_calls")) == ("", 0)
        assert check(name, sys.executable, "-c", "pass") == ("", 0)
        assert check(name, "sh", "-c", f"{program('mapping_calls')}; true") == ("", 0)


def test_a_malloc_in_the_program_takes_no_run(check: Callable[..., tuple[str, int]], tmp_path: Path) -> None:
    own = build(tmp_path / "own", PROGRAMS / "bump_malloc.c")
    said, runs = check("glibc", own)
    assert runs == 0
    assert said.startswith("glibc's settings do not reach own: it has a malloc of its own (")


def test_a_shell_with_its_own_malloc_is_asked(check: Callable[..., tuple[str, int]], tmp_path: Path) -> None:
    """The program may start others that can be reached: a run decides."""
    shell = build(tmp_path / "bash", PROGRAMS / "bump_malloc.c")
    assert check("glibc", shell) == (
        "glibc's settings do not reach bash: its malloc is that of a program"
        " ('heapwright compare' shows which allocators can be used)",
        1,
    )


def test_a_library_with_another_malloc(
    check: Callable[..., tuple[str, int]], program: Callable[..., Path], tmp_path: Path
) -> None:
    """Like Debian's redis-server with jemalloc: a preloaded library comes before it, glibc does not."""
    bump = program("bump_malloc", "-shared", "-fPIC")
    linked = build(tmp_path / "linked", bump, f"-Wl,-rpath,{bump.parent}")
    assert check("glibc", linked) == (
        f"glibc's settings do not reach linked: its malloc is that of {bump.name}"
        f" (the malloc it has can be used: --allocator {bump})",
        1,
    )
    assert check("exgen", linked) == ("", 0)


def test_a_library_without_malloc_is_refused(check: Callable[..., tuple[str, int]], tmp_path: Path) -> None:
    (tmp_path / "fake.so").write_text("no library")
    assert check(f"{tmp_path}/fake.so", "true")[0] == (
        "fake.so cannot be preloaded: the malloc of true stays that of libc.so.6 (name a library that defines malloc)"
    )


def test_the_hint_names_an_allocator_that_is_known(check: Callable[..., tuple[str, int]], tmp_path: Path) -> None:
    needs.peer("jemalloc")
    library = Path(get_allocator("jemalloc").preload)
    linked = build(tmp_path / "linked", library, f"-Wl,-rpath,{library.parent}")
    assert check("glibc", linked)[0].endswith("(the malloc it has can be used: --allocator jemalloc)")


def test_a_static_program_is_checked_by_a_run(
    check: Callable[..., tuple[str, int]], program: Callable[..., Path]
) -> None:
    """glibc's settings reach one that has glibc in it, and programs that a static one starts."""
    static = program("mapping_calls", "-static")
    assert check("glibc", static) == ("", 1)
    said, runs = check("exgen", static)
    assert (said.partition(" (")[0], runs) == (
        f"exgen cannot be loaded into {static.name}: it is linked statically",
        1,
    )
    assert check("exgen", program("starts_another", "-static"), program("mapping_calls")) == ("", 1)


@pytest.mark.parametrize("options", [(), ("--shared",)])
def test_exgen_linked_in_reads_its_settings(
    options: tuple[str, ...], check: Callable[..., tuple[str, int]], tmp_path: Path
) -> None:
    heapwright = Path(sys.executable).parent / "heapwright"
    words = ["link", "--allocator", "exgen", *options, "--", needs.command("gcc"), "-o", str(tmp_path / "linked")]
    subprocess.run([heapwright, *words, PROGRAMS / "mapping_calls.c"], check=True, capture_output=True)
    assert check("exgen", tmp_path / "linked")[0] == ""
    assert "exgen is linked into it" in check("glibc", tmp_path / "linked")[0]
    variables = {**os.environ, "EXGEN_OPTIONS": "stats=1"}
    done = subprocess.run([tmp_path / "linked"], env=variables, capture_output=True, text=True, check=True)
    assert done.stderr.startswith("exgen: ")


def test_a_program_that_fails_says_so_itself(check: Callable[..., tuple[str, int]]) -> None:
    assert check("glibc", "false")[0] == ""
