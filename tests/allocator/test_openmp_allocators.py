"""omp_alloc under our allocators: with libgomp every block is malloc's, with libomp none is (docs/allocators.md)."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from ctypes.util import find_library
from pathlib import Path

import pytest

from tests import needs
from tests.allocator.conftest import Malloc, bundled
from tests.conftest import PROGRAMS

FLAGS = ("-O2", "-fopenmp")


@pytest.fixture(scope="module")
def example(program: Callable[..., Path]) -> Path:
    return program("openmp_allocators", *FLAGS)


def test_blocks_are_handed_over(allocator: Malloc, example: Path) -> None:
    assert allocator.run(example).returncode == 0


def test_libgomp_asks_malloc_for_every_block(example: Path) -> None:
    reaper = bundled("reaper")
    if reaper is None:
        needs.not_built("libreaper.so")
    lines = Malloc("reaper", reaper).run(example).stdout.decode().splitlines()
    counted = {name: int(blocks) for name, blocks in (line.split(": ") for line in lines)}
    kinds = {"default", "large-capacity", "high-bandwidth", "thread", "aligned", "pool"}
    assert {name.split()[0] for name in counted} == kinds
    limited = counted.pop("pool 30000")
    assert set(counted.values()) == {500}
    assert limited == (1 << 20) // 30000, "a pool of 1 MiB is a limit, not a place"


def test_libomp_cuts_pools_of_its_own(allocator: Malloc, tmp_path: Path) -> None:
    library = find_library("omp")
    if library is None:
        needs.missing("libomp5")
    ours, source = tmp_path / "example", PROGRAMS / "openmp_allocators.c"
    subprocess.run(["gcc", *FLAGS, "-c", "-o", f"{ours}.o", source], check=True)
    # gcc's calls are libgomp's, which libomp has as well.
    subprocess.run(["gcc", f"{ours}.o", f"-l:{library}", "-ldl", "-o", ours], check=True)
    done = allocator.run(ours)
    assert done.returncode == 0, done.stderr.decode()
    if allocator.name == "reaper":
        lines = dict(line.split(": ") for line in done.stdout.decode().splitlines())
        assert lines["default 64"] == lines["thread 64"] == "0"
