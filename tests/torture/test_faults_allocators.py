"""Our allocators where the kernel refuses: calls that fail, limits, no mappings, no stack left; and other page sizes.

tests/programs/fail_calls.c makes calls fail, allocator_faults.cpp lives through it. docs/reliability.md, "Faults", says
what is promised.
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
SHORT = 6  # of the places where a call can fail, in the short form
STACK = 1024  # bytes that a call may take
LIMIT = 64 << 20


@pytest.fixture(scope="module", params=NAMES)
def malloc(request: pytest.FixtureRequest) -> Malloc:
    """Each of our allocators."""
    library = bundled(request.param)
    assert library is not None, "run 'make build' first"
    return Malloc(request.param, library)


@pytest.fixture(scope="module")
def faults(program: Callable[..., Path]) -> Path:
    """The program that lives through it."""
    return program("allocator_faults", *FLAGS, "-Wl,-z,now")  # the loader is not asked on the way


@pytest.fixture(scope="module")
def fail_calls(program: Callable[..., Path]) -> Path:
    """What makes calls fail, where it can."""
    path = program("fail_calls")
    if subprocess.run([path, "true"], check=False).returncode == 77:
        needs.machine_cannot("have a seccomp listener")
    return path


def numbers(malloc: Malloc, *words: str | Path, env: Mapping[str, str] | None = None) -> list[int]:
    """Runs a program to a good end; the numbers in what it printed."""
    done = malloc.run(*words, env=env, timeout=600)
    said = f"LD_PRELOAD={malloc.library} {' '.join(map(str, words))}\n{done.stderr.decode()}"
    assert done.returncode == 0, said
    return [int(number) for number in re.findall(rb"\d+", done.stdout)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("scenario", ["mixed", "threads"])
def test_a_call_that_fails(scenario: str, how: str, malloc: Malloc, fail_calls: Path, faults: Path, long: bool) -> None:
    """NULL with ENOMEM, or a block; what there is stays whole; and all is well when the kernel gives memory again."""
    most = () if long else (str(SHORT),)
    calls, processes, failed, refused = numbers(malloc, fail_calls, faults, scenario, how, *most)
    assert calls > 30
    assert processes >= (min(SHORT, calls) if not long else 39)
    assert failed >= processes * 9 // 10  # threads do not make the same number of calls every time
    assert refused > 0 or how != "rest"


@pytest.mark.parametrize("first", [1, 2, 3, 5, 20])
@pytest.mark.parametrize("times", [1, 1_000_000])
def test_a_call_that_fails_before_main(first: int, times: int, malloc: Malloc, fail_calls: Path, faults: Path) -> None:
    """Nothing of the allocator stands yet; afterwards, all of it."""
    calls, failed = numbers(malloc, fail_calls, f"{first}:1:{times}", faults, "early")
    assert calls > 0
    assert failed > 0 or first > 1


@pytest.mark.timeout(900)
def test_fork_in_the_middle_of_a_call(malloc: Malloc, fail_calls: Path, faults: Path, long: bool) -> None:
    """Of another thread's: the child can allocate, free, start threads and end."""
    most = () if long else (str(SHORT),)
    calls, processes, held = numbers(malloc, fail_calls, faults, "forks", *most)
    assert processes > min(calls, SHORT)
    assert held >= processes // 2


@pytest.mark.parametrize("limit", ["as", "data"])
def test_a_limit(limit: str, malloc: Malloc, program: Callable[..., Path]) -> None:
    """Of address space, or of memory (which counts what may be written to, as vm.overcommit_memory=2 does): 64 MiB."""
    threads = program("allocator_threads", *FLAGS)
    done = malloc.run("prlimit", f"--{limit}={LIMIT}", threads, "limit", "starve")
    assert (done.returncode, done.stdout) == (0, b"ok\n"), done.stderr.decode()


def test_no_mappings_left(malloc: Malloc, faults: Path) -> None:
    """vm.max_map_count is reached, or nearly: unmapping, too, fails then."""
    most = int(Path("/proc/sys/vm/max_map_count").read_text())
    if most > 500_000:
        needs.machine_cannot(f"reach vm.max_map_count in a test: {most} mappings are allowed")
    mappings, _ = numbers(malloc, faults, "maps")
    assert mappings > most * 9 // 10


def test_signals_at_random(malloc: Malloc, faults: Path) -> None:
    sent, handled = numbers(malloc, faults, "signals")
    assert handled > sent // 100  # of those that come at once, one does


def test_hardly_any_stack(malloc: Malloc, faults: Path) -> None:
    """In a thread with the smallest stack there is, and in a signal handler on its own."""
    (taken,) = numbers(malloc, faults, "stack")
    assert 0 < taken <= STACK


@pytest.mark.parametrize("kib", [16, 64])
def test_larger_pages(kib: int, malloc: Malloc, program: Callable[..., Path], long: bool) -> None:
    """A kernel of 16 or 64 KiB pages, emulated: nothing is unmapped, forbidden or given back but whole pages."""
    pages = program("big_pages", "-shared", "-fPIC", f"-DBIG_PAGES={kib << 10}")
    env = {"LD_PRELOAD": f"{pages} {malloc.library}"}
    fuzz, threads = program("allocator_fuzz", *FLAGS), program("allocator_threads", *FLAGS)
    assert numbers(malloc, "getconf", "PAGESIZE", env=env) == [kib << 10]
    numbers(malloc, fuzz, "--seconds", "60", "--operations", "2000000" if long else "10000", env=env)
    numbers(malloc, fuzz, "--seconds", "20" if long else "1", "--threads", "3", env=env)
    for behaviour in ("fork", "signals", "limit") if long else ():
        numbers(malloc, threads, behaviour, env=env)


def test_memory_that_is_locked(malloc: Malloc, program: Callable[..., Path]) -> None:
    """The kernel gives back nothing of a process that has locked its memory: it must not be taken for zeroes."""
    done = malloc.run(program("locked_memory", *FLAGS))
    if done.returncode == 77:
        needs.machine_cannot("lock memory")
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize("first", [100, 100_000, 10_000_000])
def test_hardened_whatever_comes_first(first: int, malloc: Malloc, program: Callable[..., Path]) -> None:
    """The first block of a process may be small or large (in every C++ program it is): guards come with it."""
    (guards,) = numbers(malloc, program("first_block", *FLAGS), str(first))
    large = 3 if first > 1 << 20 else 1  # each has one; the chunk of the small block has another
    assert guards == (1 + large if malloc.name.endswith("-secure") else 0)
