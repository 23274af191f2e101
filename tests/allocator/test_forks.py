"""fork beside threads that print, and in handlers: nothing hangs, and the child can allocate."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import needs
from tests.allocator.conftest import FLAGS, GLIBC, Malloc, cases
from tests.allocator.test_threads import behave

BEHAVIOURS = ("files", "handlers", "nested", "signals", "waits", "all")


@pytest.mark.parametrize(("allocator", "case"), cases(BEHAVIOURS, ("all",)))
@pytest.mark.few(3)
def test_a_program_that_forks_behaves(allocator: Malloc, judge: Callable[[str], Path], case: str) -> None:
    behave(allocator, judge("forks"), case)


@pytest.mark.long
def test_forks_for_minutes(allocator: Malloc, judge: Callable[[str], Path]) -> None:
    behave(allocator, judge("forks"), "all", "120", timeout=300)


@pytest.mark.parametrize("behaviour", [needs.long_unless(name == "all", name) for name in BEHAVIOURS])
def test_glibc_passes_the_tests_of_forks(judge: Callable[[str], Path], behaviour: str) -> None:
    behave(GLIBC, judge("forks"), behaviour)


@pytest.mark.parametrize(("allocator", "case"), cases(("handlers", "waits"), ("waits",)))
def test_a_library_may_register_fork_handlers_before_anything_is_allocated(
    allocator: Malloc, program: Callable[..., Path], tmp_path: Path, case: str
) -> None:
    """Whose constructor runs before the program's, and registers handlers before anything has been allocated."""
    library = program("allocator_forks", *FLAGS, "-shared", "-fPIC", "-Dmain=unused")
    main = tmp_path / "main"
    words: list[str | Path] = ["-x", "c", "-", "-x", "none", library, f"-Wl,-rpath,{library.parent}", "-pthread"]
    source = "int unused(int, char**); int main(int count, char** words) { return unused(count, words); }"
    subprocess.run(["gcc", "-o", main, *words], input=source.encode(), check=True)
    behave(allocator, main, case)
