"""Tests programs that load plug-ins with RTLD_DEEPBIND, which keep the malloc of the C library."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.conftest import Heapwright

REASON = "plugin.so keeps the malloc of libc.so.6, because the program loads it with RTLD_DEEPBIND"


@pytest.fixture
def deep(heapwright: Heapwright, program: Callable[..., Path]) -> list[str]:
    """The command."""
    plugin = heapwright.folder / "plugin.so"
    shutil.copy(program("deep_plugin", "-DPLUGIN", "-shared", "-fPIC"), plugin)
    return [str(program("deep_plugin")), str(plugin)]


def test_compare_says_why_every_preloaded_malloc_crashes(heapwright: Heapwright, deep: list[str]) -> None:
    done = heapwright("compare", "-n", "2", "--allocators", "glibc,exgen-secure,reaper-secure", "--", *deep)
    assert "exgen-secure: killed by SIG" in " ".join((done.out + done.err).split())
    said = " ".join((done.out + done.err).split())
    assert said.count(f"The program crashes if another malloc is preloaded: {REASON}.") == 1, said


def test_tune_says_why_every_preloaded_malloc_crashes(heapwright: Heapwright, deep: list[str]) -> None:
    words = ("tune", "--allocators", "glibc,exgen-secure,reaper-secure", "--budget", "4", "--search-only")
    for _ in range(2):  # a resumed study knows it
        done = heapwright(*words, "--study", "s.study", "--", *deep)
        assert done.status == 0, done.err
        said = " ".join(done.err.split())
        assert f"which is not a block of this allocator ({REASON})" in said, said
