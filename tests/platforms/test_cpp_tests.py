"""The allocators' unit tests, the table of malloc's functions and the fuzzers on other platforms.

`make test-platforms` builds them by tools/platform_tests. On this machine those for arm64 run by qemu's user emulation.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.allocator.conftest import FLAGS, GLIBC
from tests.allocator.test_api import AS_GOOD, OURS, table
from tests.platforms.conftest import BUILT, LIBRARIES, Platform, made_for
from tests.torture.test_fuzz import CORPORA

# qemu's user emulation has no huge pages, and a reserved range of addresses looks unmapped. The models of thread
# interleavings do not depend on the machine, and take minutes there (as in tools/arm64_units).
LEFT_OUT = ("HugePagesTest.*", "Place/RegionTest.ShrinksByFreeChunksAtItsEnd/Reservation", "*RemoteModel*")
# In a static program for musl: it finds no function by its name, and has no other nothrow operator,
# which could catch the exception of a new-handler (native/allocator/entry/cxx.h).
STATIC = {
    **dict.fromkeys(OURS, "absent"),
    "new nothrow with a handler": "NULL",
    "new[] nothrow with a handler": "NULL",
    "new aligned nothrow with a handler": "NULL",
    "new nothrow with a handler that throws bad_alloc": "NULL",
}


@pytest.fixture(scope="session", params=("x86_64-musl", "aarch64-musl", "aarch64-glibc"))
def other(request: pytest.FixtureRequest) -> Platform:
    return made_for(request.param, folder(Platform(request.param)) / "allocator_fuzz", "platform_tests")


def folder(platform: Platform) -> Path:
    return BUILT / "tests" / platform.name


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["allocator_tests", "allocator_thread_tests", "reaper_thread_tests"])
def test_unit_tests_pass_on_other_platforms(other: Platform, name: str) -> None:
    left_out = ":".join(LEFT_OUT if other.foreign else ())
    done = other.run(folder(other) / name, "--gtest_brief=1", f"--gtest_filter=-{left_out}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[  PASSED  ] 0 tests" not in done.stdout


@pytest.mark.parametrize("name", ["exgen", "reaper"])
def test_the_harness_plays_its_corpus(other: Platform, name: str) -> None:
    done = other.run(folder(other) / f"fuzz_{name}", CORPORA / name)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def reference(program: Callable[..., Path]) -> dict[str, str]:
    return {**table(GLIBC, program("allocator_api", *FLAGS)), **OURS}


def rows(text: str) -> dict[str, str]:
    return {name: answer for name, _, answer in (line.partition(": ") for line in text.splitlines())}


@pytest.mark.parametrize("name", LIBRARIES)
def test_answers_are_glibc_s_or_as_good(other: Platform, name: str, reference: dict[str, str]) -> None:
    check(other.run(folder(other) / "allocator_api", preload=other.library(name)), reference)
    if other.name.endswith("musl"):  # GCC's C++ library brings no function that throws unless a program uses one
        check(other.run(folder(other) / f"allocator_api-static-{name}"), {**reference, **STATIC})


def check(done: subprocess.CompletedProcess[str], expected: dict[str, str]) -> None:
    assert done.returncode == 0, done.stderr
    found = rows(done.stdout)
    assert len(found) > 90
    wrong = {
        row: (answer, expected[row]) for row, answer in found.items() if answer not in (expected[row], AS_GOOD.get(row))
    }
    assert not wrong, "\n" + "\n".join(f"{row}: {is_}  [not: {not_}]" for row, (is_, not_) in wrong.items())


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("mode", [[], ["--threads", "3"]], ids=["one-thread", "threads"])
def test_the_fuzzer_finds_nothing(other: Platform, name: str, mode: list[str]) -> None:
    # A forked child of a process with threads starts no thread under qemu (docs/platforms.md).
    words = ["--seed", "1", "--seconds", "2", *mode, *([] if other.foreign else ["--fork"])]
    done = other.run(folder(other) / "allocator_fuzz", *words, preload=other.library(name))
    assert done.returncode == 0, done.stdout + done.stderr
