"""The heaps of exgen, reaper and their hardened builds, read from outside, against what they count themselves."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.allocator.conftest import FLAGS, NAMES, Malloc, bundled, bundled_malloc
from tests.conftest import PROGRAMS

from .live import answer, close, diagnose, line_of, resident_bytes, waiting

MAGIC = b"heapwright heap\0"


@dataclass(frozen=True)
class Counted:
    """What the malloc and the program count."""

    live_bytes: int  # these four are the malloc's
    large_blocks: int
    large_bytes: int
    free_bytes: int  # whole superblocks, and freed large blocks that are kept
    known_bytes: int  # these two are the program's: usable bytes, which leave out a hardened build's marks
    known_blocks: int
    pid: int


@pytest.fixture(scope="module", params=NAMES)
def malloc(request: pytest.FixtureRequest) -> Malloc:
    return bundled_malloc(request.param)


@pytest.fixture(scope="module")
def target(program: Callable[..., Path]) -> Path:
    return program("diagnose_own", *FLAGS)


def own_heap(pid: int) -> dict[str, Any]:
    heap: dict[str, Any] = diagnose(pid)["own"]
    return heap


def blocks_in(heap: dict[str, Any]) -> int:
    in_classes: int = sum(row["live_blocks"] for row in heap["classes"])
    return in_classes + int(heap["span_blocks"]) + int(heap["mapped_blocks"])


@pytest.mark.parametrize("case", ["one", "ended", "known", "random", "empty"])
def test_the_figures_are_those_of_the_malloc(malloc: Malloc, target: Path, case: str) -> None:
    """mallinfo2 counts what the calling thread has cached as free, so it is exact where no other thread has a cache."""
    with waiting(target, case, env=malloc.environment()) as process:
        counted = Counted(*map(int, line_of(process).split()))
        heap = own_heap(process.pid)
    assert heap["allocator"] == malloc.name
    assert heap["consistent"]
    assert close(heap["live_bytes"], counted.live_bytes, 0.01) or case == "empty"
    assert abs(heap["live_bytes"] - counted.live_bytes) < 200_000
    assert (heap["mapped_blocks"], heap["mapped_bytes"]) == (counted.large_blocks, counted.large_bytes)
    assert abs(heap["empty_bytes"] + heap["kept_bytes"] - counted.free_bytes) <= 4 << 16
    assert heap["live_bytes"] == (
        sum(row["live_bytes"] for row in heap["classes"]) + heap["span_bytes"] + heap["mapped_bytes"]
    )


@pytest.mark.parametrize("case", ["idle", "fork"])
@pytest.mark.few(3)
def test_caches_of_threads_that_wait_count_as_free(malloc: Malloc, target: Path, case: str) -> None:
    """mallinfo2 counts the blocks in other threads' caches as live; the program knows better."""
    with waiting(target, case, env=malloc.environment()) as process:
        counted = Counted(*map(int, line_of(process).split()))
        heap = own_heap(counted.pid)
    assert heap["consistent"]
    assert heap["heaps"] == 5
    # The program's vectors and libraries hold some blocks of their own.
    assert 0 <= blocks_in(heap) - counted.known_blocks < 100
    assert counted.known_bytes <= heap["live_bytes"] < counted.live_bytes
    if not malloc.name.endswith("secure"):
        assert heap["cached_bytes"] > 100_000
        own_blocks = 2 << 20  # the vectors
        assert heap["live_bytes"] - counted.known_bytes < own_blocks


def test_each_size_class_has_its_blocks(malloc: Malloc, target: Path) -> None:
    with waiting(target, "known", env=malloc.environment()) as process:
        line_of(process)
        heap = own_heap(process.pid)
    row = next(row for row in heap["classes"] if row["size"] == 112)  # 100 bytes, or 108 with a hardened build's mark
    assert 5000 <= row["live_blocks"] < 5020
    assert 14900 <= row["free_blocks"] <= 15600
    assert row["spans"] >= 20000 * 112 // (64 << 10)
    assert heap["span_blocks"] in range(40, 44)
    assert heap["mapped_blocks"] == 3


def test_free_pages_are_what_a_trim_returns(malloc: Malloc, target: Path) -> None:
    with waiting(target, "empty", env=malloc.environment()) as process:
        line_of(process)
        heap = own_heap(process.pid)
        before = resident_bytes(process.pid)
        assert answer(process) == "trimmed\n"
        after = own_heap(process.pid)
        returned = before - resident_bytes(process.pid)
    assert heap["live_bytes"] + heap["releasable_bytes"] <= heap["resident_bytes"] * 1.01
    assert heap["free_pages_bytes"] <= heap["releasable_bytes"]
    if heap["free_pages_bytes"] > 4 << 20:
        assert close(returned, heap["free_pages_bytes"] - after["free_pages_bytes"], 0.02)
    assert after["empty_bytes"] == 0
    assert after["free_pages_bytes"] < 1 << 20


def test_reading_a_busy_process_says_that_it_is_not_exact(malloc: Malloc, target: Path) -> None:
    """On a busy machine the process may stand still for a while: so it is asked again."""
    with waiting(target, "busy", env=malloc.environment()) as process:
        counted = Counted(*map(int, line_of(process).split()))
        for _ in range(50):
            heap = own_heap(process.pid)
            assert close(blocks_in(heap), counted.known_blocks, 0.05)
            if not heap["consistent"]:
                break
        assert process.poll() is None
    assert not heap["consistent"]


@pytest.mark.parametrize("how", ["-static", "-static-pie", "-no-pie"])
@pytest.mark.parametrize("name", ["exgen", "reaper-secure"])
@pytest.mark.few(1)
def test_a_stripped_program_linked_with_the_archive(name: str, how: str, tmp_path: Path) -> None:
    archive = bundled(name, "a")
    if archive is None:
        needs.not_built(f"lib{name}.a")
    path = tmp_path / "linked"
    options = [*FLAGS, "-std=c++20", "-s", "-Wl,--gc-sections", how]
    options += ["-Wl,-u,heapwright_thread_functions"] if how != "-no-pie" else []
    options += ["-fPIE"] if how == "-static-pie" else []
    source = PROGRAMS / "diagnose_own.cpp"
    subprocess.run([needs.command("g++"), *options, source, archive, "-pthread", "-o", path], check=True)
    with waiting(path, "ended", env={**os.environ}) as process:
        counted = Counted(*map(int, line_of(process).split()))
        heap = own_heap(process.pid)
    assert heap["allocator"] == name
    assert str(path) in heap["evidence"]
    assert close(heap["live_bytes"], counted.live_bytes)


@pytest.mark.parametrize("damage", ["version", "self", "size"])
def test_a_descriptor_of_another_kind_is_not_read(target: Path, tmp_path: Path, damage: str) -> None:
    library = bundled("reaper")
    if library is None:
        needs.not_built("libreaper.so")
    content = bytearray(library.read_bytes())
    at = content.index(MAGIC, content.index(MAGIC) + 1 if content.count(MAGIC) > 1 else 0)
    content[at + {"version": 16, "size": 20, "self": 0}[damage]] ^= 0x40
    other = tmp_path / "libreaper.so"
    other.write_bytes(content)
    with waiting(target, "known", env=Malloc("reaper", other).environment()) as process:
        line_of(process)
        assert diagnose(process.pid)["own"] is None


def test_a_process_on_another_malloc_has_no_such_heap(target: Path) -> None:
    with waiting(target, "known", env=Malloc("glibc").environment()) as process:
        line_of(process)
        assert diagnose(process.pid)["own"] is None
