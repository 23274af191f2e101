"""Requests that cannot be met, blocks that grow, a thread that is cancelled; messages of hardened builds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.allocator.conftest import FLAGS, Malloc, bundled

HARDENED = ("exgen-secure", "reaper-secure")


def number(malloc: Malloc, *words: str | Path) -> int:
    done = malloc.run(*words)
    assert done.returncode == 0, done.stderr.decode()
    return int(done.stdout)


def test_an_impossible_request_purges_nothing(allocator: Malloc, judge: Callable[[str], Path]) -> None:
    """A request larger than the address space purges nothing."""
    assert number(allocator, judge("limits"), "refuse") < 300


def test_a_large_block_grows_without_a_copy(allocator: Malloc, judge: Callable[[str], Path]) -> None:
    """A copy would touch every page at each of 1,009 steps: 63 MiB are 16,128 pages."""
    assert number(allocator, judge("limits"), "grow") < 3000


def test_one_thread_does_not_need_membarrier(allocator: Malloc, judge: Callable[[str], Path]) -> None:
    """A sandbox may end a process that calls it."""
    assert number(allocator, judge("limits"), "confined") == 0


def test_statistics_of_a_thread_that_is_to_be_cancelled(allocator: Malloc, judge: Callable[[str], Path]) -> None:
    done = allocator.run(judge("limits"), "cancelled")
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr.count(b"\n") == 2
    assert b"bytes live" in done.stderr


@pytest.mark.parametrize("name", HARDENED)
def test_no_secret_can_be_read_behind_blocks_or_in_freed_ones(name: str, program: Callable[..., Path]) -> None:
    """By what can be read behind blocks and in freed ones."""
    judge = program("allocator_secrets", *FLAGS, "-Wno-use-after-free", "-Wno-array-bounds")
    done = Malloc(name, bundled(name)).run(judge)
    assert (done.returncode, done.stdout) == (0, b"ok\n"), done.stdout.decode()
