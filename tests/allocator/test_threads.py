"""Threads that come and go, forks, signals, libraries opened at run time, little address space."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.allocator.conftest import GLIBC, Malloc

BEHAVIOURS = ("storm", "detached", "orphans", "fork", "signals", "vfork", "limit")


def behave(malloc: Malloc, *words: str | Path) -> None:
    done = malloc.run(*words)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, [b"ok"]), done.stderr.decode()


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_behaviour(allocator: Malloc, judge: Callable[[str], Path], behaviour: str) -> None:
    behave(allocator, judge("threads"), behaviour)


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_the_reference_behaves(judge: Callable[[str], Path], behaviour: str) -> None:
    behave(GLIBC, judge("threads"), behaviour)


def test_opened_at_run_time(allocator: Malloc, judge: Callable[[str], Path]) -> None:
    behave(GLIBC, judge("threads"), "dlopen", allocator.library or "libc.so.6")


def test_opened_at_run_time_though_preloaded(allocator: Malloc, judge: Callable[[str], Path]) -> None:
    behave(allocator, judge("threads"), "dlopen", allocator.library or "libc.so.6")
