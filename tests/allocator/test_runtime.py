"""Programs that load libraries while they run or replace operators: the C++ runtime, our functions, pthread's keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.allocator.conftest import FLAGS, Malloc


@pytest.fixture(scope="module")
def opener(program: Callable[..., Path]) -> Path:
    return program("allocator_dlopen", *FLAGS)


def lines(malloc: Malloc, *words: str | Path) -> list[str]:
    done = malloc.run(*words)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


def test_new_throws_in_a_c_program(allocator: Malloc, opener: Path, program: Callable[..., Path]) -> None:
    """The runtime came with a C++ library that the program opened, as Python opens an extension."""
    extension = program("allocator_extension", *FLAGS, "-shared", "-fPIC")
    assert lines(allocator, opener, "extension", extension) == ["bad_alloc"]
