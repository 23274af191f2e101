"""Tests that `tune` compares the program's calls under another malloc before it searches on replays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Heapwright
from .test_tune import result, rows

# Only the search: each run of the program sleeps for a third of a second.
QUICK = ["--search-only", "--budget", "4", "--allocators", "glibc", "--params", "mmap_threshold,tcache_count,mxfast"]
OPTIONS = ["--minimize", "peak_rss", "--study", "s.study", "--json", "-", *QUICK]


def test_a_program_whose_calls_depend_on_the_malloc_is_not_searched_on_replays(
    heapwright: Heapwright, program: Callable[..., Path], tmp_path: Path
) -> None:
    words = ["tune", *OPTIONS, "--budget", "2", "--", str(program("listens")), "usable"]
    done = heapwright(*words)
    found = result(done)["proxy"]
    assert not found["used"]
    assert found["why"].startswith("its calls depend on the malloc: ")
    assert "under exgen (14.3% apart)" in found["why"]
    assert f"the search runs the program itself: {found['why']}" in done.err
    assert not rows(tmp_path / "s.study", "SELECT 1 FROM run WHERE phase = 'replay'")
    assert rows(tmp_path / "s.study", "SELECT 1 FROM run WHERE phase = 'search'")
    before = rows(tmp_path / "s.study", "SELECT count(*) FROM run")
    assert result(heapwright(*words))["proxy"] == found
    assert rows(tmp_path / "s.study", "SELECT count(*) FROM run") == before


@pytest.mark.long
def test_a_program_that_only_asks_for_usable_sizes_is_searched_on_replays(
    heapwright: Heapwright, program: Callable[..., Path], tmp_path: Path
) -> None:
    found = result(heapwright("tune", *OPTIONS, "--", str(program("listens")), "requested"))["proxy"]
    assert found["used"]
    assert found["checked"].startswith("Recorded under exgen, the program makes the same calls (within 0.0")
    assert rows(tmp_path / "s.study", "SELECT 1 FROM run WHERE phase = 'replay'")


def test_replays_are_refused_if_the_calls_depend_on_the_malloc(
    heapwright: Heapwright, program: Callable[..., Path]
) -> None:
    done = heapwright("tune", "--proxy", "replay", *OPTIONS, "--", str(program("listens")), "usable")
    assert done.status == 1
    last = done.err.strip().splitlines()[-1]
    assert last.startswith("heapwright: its calls depend on the malloc: ")
    assert last.endswith("(leave out --proxy replay)")
