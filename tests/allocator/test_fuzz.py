"""Random operations against a shadow model, and a check that the fuzzer finds planted errors.

HEAPWRIGHT_FUZZ_SECONDS is how long each mode runs (2 by default, 20 in the long form): half of it with a fixed seed,
half with a seed of today's, which stands in the message of a failure.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import needs
from tests.allocator.conftest import GLIBC, Malloc, cases

SECONDS = int(os.environ.get("HEAPWRIGHT_FUZZ_SECONDS", "2"))
LONG_SECONDS = max(SECONDS, 20)
MODES = {
    "one-thread": [],
    "fork": ["--fork"],
    "threads": ["--threads", "4"],
    "threads-fork": ["--threads", "3", "--fork"],
    "small": ["--max-size", "1024", "--max-live", "16"],
}
FAULTS = {
    "misaligned": "is not aligned to 16",
    "twice": "overlaps live block",
    "refuses": "refused with",
    "dirty": "is not zero",
    "loses": "does not hold what was written there",
    "scribbles": "does not hold what was written there",
    "errno": "changed errno",
}


MANY = ("--operations", "200000", "--seconds", "60")


def faulty(program: Callable[..., Path]) -> Malloc:
    return Malloc("faulty", program("allocator_faulty", "-shared", "-fPIC", "-fno-builtin"))


def fuzz(malloc: Malloc, path: Path, seed: int, seconds: int, *words: str) -> None:
    command = [str(path), "--seed", str(seed), "--seconds", str(seconds), *words]
    done = malloc.run(*command, timeout=seconds + 120)
    assert done.returncode == 0, f"LD_PRELOAD={malloc.library} {' '.join(command)}\n{done.stderr.decode()}"


@pytest.mark.timeout(2 * LONG_SECONDS + 300)
@pytest.mark.parametrize("seconds", [SECONDS, needs.long(LONG_SECONDS)])
@pytest.mark.parametrize(("allocator", "case"), cases(MODES, ("one-thread", "threads-fork")))
@pytest.mark.few(4)
def test_random_calls_break_nothing(allocator: Malloc, judge: Callable[[str], Path], case: str, seconds: int) -> None:
    path = judge("fuzz")
    half = max(1, seconds // 2)
    fuzz(allocator, path, 1, half, *MODES[case])
    fuzz(allocator, path, random.SystemRandom().randrange(1 << 30), half, *MODES[case])


@pytest.mark.parametrize("mode", [needs.long_unless(mode == "threads-fork", mode) for mode in MODES])
def test_random_calls_break_nothing_under_glibc(judge: Callable[[str], Path], mode: str) -> None:
    fuzz(GLIBC, judge("fuzz"), 2, 1, *MODES[mode])


def test_one_seed_is_one_sequence(judge: Callable[[str], Path]) -> None:
    one, two, other = (GLIBC.run(judge("fuzz"), *MANY, "--seed", seed).stdout for seed in ("5", "5", "6"))
    assert one == two
    assert b"200000 operations" in one
    assert one.split(b"digest")[1] != other.split(b"digest")[1]


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found(program: Callable[..., Path], judge: Callable[[str], Path], fault: str) -> None:
    done = faulty(program).run(judge("fuzz"), *MANY, env={"FAULT": fault})
    assert done.returncode == 3
    assert FAULTS[fault] in done.stderr.decode()
    assert done.stderr.startswith(b"seed 1, operation ")


def test_a_malloc_of_overlapping_blocks_is_found(program: Callable[..., Path], judge: Callable[[str], Path]) -> None:
    bump = Malloc("bump", program("bump_malloc", "-shared", "-fPIC"))
    words = ("--plain", "--operations", "3000", "--max-size", "2000")
    assert bump.run(judge("fuzz"), *words).returncode == 0
    assert bump.run(judge("fuzz"), *words, env={"BUMP": "overlap"}).returncode == 3


def test_a_crash_says_where(program: Callable[..., Path], judge: Callable[[str], Path]) -> None:
    done = faulty(program).run(judge("fuzz"), env={"FAULT": "crashes"})
    assert done.returncode == -6
    assert done.stderr.startswith(b"seed 1, operation ")
    assert b"signal 6" in done.stderr
