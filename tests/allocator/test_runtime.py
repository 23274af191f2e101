"""Programs that load libraries while they run or replace operators: the C++ runtime, our functions, pthread's keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.allocator.conftest import FLAGS, GLIBC, Malloc


@pytest.fixture(scope="module")
def opener(program: Callable[..., Path]) -> Path:
    return program("allocator_dlopen", *FLAGS)


def lines(malloc: Malloc, *words: str | Path) -> list[str]:
    done = malloc.run(*words)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


def library(malloc: Malloc) -> Path:
    assert malloc.library is not None, "glibc's malloc is no library to open"
    return malloc.library


def test_new_throws_in_a_c_program(allocator: Malloc, opener: Path, program: Callable[..., Path]) -> None:
    """The runtime came with a C++ library that the program opened, as Python opens an extension."""
    extension = program("allocator_extension", *FLAGS, "-shared", "-fPIC")
    assert lines(allocator, opener, "extension", extension) == ["bad_alloc"]


def test_a_program_may_replace_the_basic_operators(allocator: Malloc, program: Callable[..., Path]) -> None:
    """The other forms call the program's operators, as those of the C++ runtime do."""
    replaced = program("allocator_replaced", *FLAGS, "-Wno-sized-deallocation")
    expected = lines(GLIBC, replaced)
    assert expected[:4] == ["new: 1", "delete: 0", "new[]: 1", "delete[]: 0"]
    assert lines(allocator, replaced) == expected


def test_our_functions_are_ours_in_an_opened_library(allocator: Malloc, opener: Path) -> None:
    """The program's malloc is glibc's; `reaper_malloc` must not call it."""
    name = library(allocator).stem.removeprefix("lib").removesuffix("-secure")
    assert lines(GLIBC, opener, "explicit", library(allocator), name) == ["4"]


def test_a_program_without_free_keys(allocator: Malloc, opener: Path) -> None:
    """An allocator that gets no key of pthread's must leave the program's keys alone."""
    assert lines(GLIBC, opener, "keys", library(allocator)) == ["7"]
