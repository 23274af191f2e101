"""Tests our allocators with failing system calls, limits, no mappings or stack left, and other page sizes.

tests/programs/fail_calls.c makes calls fail, and allocator_faults.cpp is the program whose calls fail. "Faults" in
docs/reliability.md states what we promise.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests import needs
from tests.allocator.conftest import FLAGS, NAMES, Malloc, bundled

HOWS = ("each", "every", "rest")
SHORT = 6  # the number of calls that the short form makes fail
STACK = 1024  # bytes of stack that a call may take
LIMIT = 64 << 20


@pytest.fixture(scope="module", params=NAMES)
def malloc(request: pytest.FixtureRequest) -> Malloc:
    """Each of our allocators."""
    library = bundled(request.param)
    assert library is not None, "run 'make build' first"
    return Malloc(request.param, library)


@pytest.fixture(scope="module")
def faults(program: Callable[..., Path]) -> Path:
    """The program whose calls fail."""
    return program("allocator_faults", *FLAGS, "-Wl,-z,now")  # so that the loader binds no symbol during the test


@pytest.fixture(scope="module")
def fail_calls(program: Callable[..., Path]) -> Path:
    """The program that makes calls fail; skips the test if it cannot."""
    path = program("fail_calls")
    if subprocess.run([path, "true"], check=False).returncode == 77:
        needs.machine_cannot("have a seccomp listener")
    return path


def numbers(malloc: Malloc, *words: str | Path, env: Mapping[str, str] | None = None) -> list[int]:
    """Runs a program under a malloc; returns the numbers that it prints.

    Args:
        malloc: the malloc to run under.
        words: the command; it must exit with status 0.
        env: variables added to the environment.
    """
    done = malloc.run(*words, env=env, timeout=600)
    said = f"LD_PRELOAD={malloc.library} {' '.join(map(str, words))}\n{done.stderr.decode()}"
    assert done.returncode == 0, said
    return [int(number) for number in re.findall(rb"\d+", done.stdout)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("malloc", "scenario", "how"),
    [
        needs.long_unless(not name.endswith("-secure") or how == "every", name, scenario, how)
        for name in NAMES
        for scenario in ("mixed", "threads")
        for how in HOWS
    ],
    indirect=["malloc"],
)
@pytest.mark.few(2)
def test_malloc_recovers_after_a_call_of_the_kernel_fails(
    scenario: str, how: str, malloc: Malloc, fail_calls: Path, faults: Path, long: bool
) -> None:
    """malloc returns NULL with ENOMEM or a valid block, spoils no block, and recovers when calls succeed again."""
    most = () if long else (str(SHORT),)
    calls, processes, failed, refused = numbers(malloc, fail_calls, faults, scenario, how, *most)
    assert calls > 30
    assert processes >= (min(SHORT, calls) if not long else 39)
    assert failed >= processes * 9 // 10  # threads do not make the same number of calls every time
    assert refused > 0 or how != "rest"


@pytest.mark.parametrize("first", [1, 2, 3, 5, 20])
@pytest.mark.parametrize("times", [1, 1_000_000])
@pytest.mark.few(11)  # no divisor of the 40 cases: all allocators, numbers and times are among those
def test_a_call_that_fails_before_main(first: int, times: int, malloc: Malloc, fail_calls: Path, faults: Path) -> None:
    """Calls fail while the allocator initialises; afterwards it works."""
    calls, failed = numbers(malloc, fail_calls, f"{first}:1:{times}", faults, "early")
    assert calls > 0
    assert failed > 0 or first > 1


@pytest.mark.timeout(900)
def test_fork_in_the_middle_of_a_call(malloc: Malloc, fail_calls: Path, faults: Path, long: bool) -> None:
    """A fork while another thread is in a call: the child can allocate, free, start threads and exit."""
    most = () if long else (str(SHORT),)
    calls, processes, held = numbers(malloc, fail_calls, faults, "forks", *most)
    assert processes > min(calls, SHORT)
    assert held >= processes // 2


@pytest.mark.parametrize("limit", ["as", "data"])
@pytest.mark.few(3)
def test_malloc_recovers_at_a_limit_of_memory(limit: str, malloc: Malloc, program: Callable[..., Path]) -> None:
    """A limit of 64 MiB on address space or on data (writable memory, which vm.overcommit_memory=2 counts too)."""
    threads = program("allocator_threads", *FLAGS)
    done = malloc.run("prlimit", f"--{limit}={LIMIT}", threads, "limit", "starve")
    assert (done.returncode, done.stdout) == (0, b"ok\n"), done.stderr.decode()


@pytest.mark.few(2)
def test_no_mappings_left(malloc: Malloc, faults: Path) -> None:
    """The process is at or near vm.max_map_count, where unmapping fails too."""
    most = int(Path("/proc/sys/vm/max_map_count").read_text())
    if most > 500_000:
        needs.machine_cannot(f"reach vm.max_map_count in a test: {most} mappings are allowed")
    mappings, _ = numbers(malloc, faults, "maps")
    assert mappings > most * 9 // 10


def test_signals_at_random(malloc: Malloc, faults: Path) -> None:
    sent, handled = numbers(malloc, faults, "signals")
    assert handled > sent // 100  # signals that arrive together are handled once


def test_malloc_needs_little_stack(malloc: Malloc, faults: Path) -> None:
    """Allocates in a thread with the smallest possible stack, and in a signal handler on its own stack."""
    (taken,) = numbers(malloc, faults, "stack")
    assert 0 < taken <= STACK


@pytest.mark.parametrize("kib", [16, 64])
@pytest.mark.few(2)
def test_malloc_works_with_larger_pages(kib: int, malloc: Malloc, program: Callable[..., Path], long: bool) -> None:
    """With emulated pages of 16 or 64 KiB, the allocator unmaps, protects and purges only whole pages."""
    pages = program("big_pages", "-shared", "-fPIC", f"-DBIG_PAGES={kib << 10}")
    env = {"LD_PRELOAD": f"{pages} {malloc.library}"}
    fuzz, threads = program("allocator_fuzz", *FLAGS), program("allocator_threads", *FLAGS)
    assert numbers(malloc, "getconf", "PAGESIZE", env=env) == [kib << 10]
    numbers(malloc, fuzz, "--seconds", "60", "--operations", "2000000" if long else "10000", env=env)
    numbers(malloc, fuzz, "--seconds", "20" if long else "1", "--threads", "3", env=env)
    for behaviour in ("fork", "signals", "limit") if long else ():
        numbers(malloc, threads, behaviour, env=env)


def test_locked_pages_are_not_taken_for_zero(malloc: Malloc, program: Callable[..., Path]) -> None:
    """The kernel purges no locked pages, so the allocator must not assume that purged pages are zero."""
    done = malloc.run(program("locked_memory", *FLAGS))
    if done.returncode == 77:
        needs.machine_cannot("lock memory")
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize("first", [100, 100_000, 10_000_000])
def test_the_first_block_has_guard_pages_whatever_its_size(
    first: int, malloc: Malloc, program: Callable[..., Path]
) -> None:
    """The first block of a process may be small or large (in C++ programs it is large): both get guard pages."""
    (guards,) = numbers(malloc, program("first_block", *FLAGS), str(first))
    large = 3 if first > 1 << 20 else 1  # a guard for each large block; the chunk of the small block has one more
    assert guards == (1 + large if malloc.name.endswith("-secure") else 0)
