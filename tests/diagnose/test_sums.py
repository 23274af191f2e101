"""Divisions of resident memory, sums of processes with different mallocs, and their tables."""

from __future__ import annotations

import re
from typing import Any

import pytest
from rich.console import Console

from heapwright.diagnose.advice import MIB, advise
from heapwright.diagnose.diagnosis import Diagnosis, divide, figures_of, sum_processes
from heapwright.report.diagnosis import head, rows_of_parts, show_diagnosis
from heapwright.report.diagnosis_html import render

ARENAS = 40 * MIB
HEAP = {"resident_bytes": ARENAS, "releasable_bytes": 30 * MIB, "free_pages_bytes": 20 * MIB, "mapped_bytes": 50 * MIB}


def process(pid: int, malloc: str, heap: dict[str, Any] | None, private: int = 100 * MIB, **more: Any) -> Diagnosis:
    """Returns a diagnosis of a process with 2 MiB of files and of stack."""
    parts = {"program": 2 * MIB, "files": 0, "stacks": 2 * MIB, "heap": private, "other": 0}
    division = divide(parts, heap, None)
    figures = figures_of(malloc, division, heap, None)._replace(**more)
    found = {
        **{"pid": pid, "command": ["service"], "executable": None, "threads": 1, "parts": parts, "pss_parts": parts},
        **{"resident_bytes": division.total, "pss_bytes": division.total, "huge_bytes": 0, "swap_bytes": 0},
        **{"heap": heap, "consistent": True},
    }
    return Diagnosis(found, division, figures, advise(figures))


def text_of(found: Diagnosis, each: tuple[Diagnosis, ...] = ()) -> str:
    """Returns what `diagnose` prints."""
    out = Console(width=120, force_terminal=False)
    with out.capture() as captured:
        show_diagnosis(found, "service", out, each)
    return captured.get()


@pytest.mark.parametrize(("resident", "expected"), [(10, 10), (0, 0), (None, 50)])
def test_blocks_with_their_own_mapping_are_of_malloc(resident: int | None, expected: int) -> None:
    heap = {**HEAP, "mapped_resident_bytes": None if resident is None else resident * MIB}
    found = process(1, "glibc 2.36", heap, managed="node")
    assert found.division.mapped == expected * MIB
    assert found.division.other == found.figures.managed_resident == (60 - expected) * MIB
    assert sum(value for _, value in rows_of_parts(found)) == found.division.total == 104 * MIB
    assert ("mapped one by one" in text_of(found)) == (expected > 0)
    assert "V8 heap, and other private memory" in text_of(found)


def test_mapped_blocks_are_at_most_the_private_memory() -> None:
    assert process(1, "glibc 2.36", {**HEAP, "mapped_bytes": 500 * MIB}).division.other == 0


def test_blocks_in_caches_of_threads_are_free() -> None:
    arena = {"index": 0, "resident_bytes": ARENAS, "live_bytes": 10 * MIB, "free_bytes": 30 * MIB}
    cached = {"thread_cache_bytes": 8 * MIB}
    found = process(1, "glibc 2.36", {**HEAP, **cached, "arenas": [{**arena, **cached}]})
    rows = dict(rows_of_parts(found))
    assert (rows["heap: live blocks"], rows["heap: free, in thread caches"]) == (2 * MIB, 8 * MIB)
    assert sum(rows.values()) == found.division.total
    assert (found.figures.free, found.figures.free_cached) == (38 * MIB, 8 * MIB)
    assert re.search(r"main +n/a +40.0 MiB +2.0 MiB +38.0 MiB", text_of(found))
    assert "thread caches" not in text_of(process(1, "glibc 2.42", {**HEAP, "thread_cache_bytes": None}))
    assert sum_processes([found, found]).division.free_cached == 16 * MIB


def test_processes_with_different_mallocs() -> None:
    each = (process(1, "glibc 2.36", HEAP), process(2, "jemalloc", None))
    whole = sum_processes(each)
    rows = dict(rows_of_parts(whole))
    assert sum(rows.values()) == whole.division.total == 208 * MIB
    assert rows["heap: free whole pages"] == 20 * MIB
    assert rows["other private memory"] == 110 * MIB
    assert whole.figures.unread == 102 * MIB
    assert whole.advice.kind == "free"
    assert "mallocs: glibc 2.36, jemalloc" in head(whole, "two")
    assert whole.json["allocators"] == ["glibc 2.36", "jemalloc"]
    assert "heap of jemalloc: live and free" in text_of(whole, each)


def test_processes_with_one_malloc() -> None:
    each = (process(1, "jemalloc", None), process(2, "jemalloc", None))
    whole = sum_processes(each)
    assert "; malloc: jemalloc" in head(whole, "two")
    assert "jemalloc does not show" in whole.advice.sentence
    assert "  heap: live and free" in text_of(whole, each)


def test_the_managed_heap_is_that_of_the_processes_with_this_runtime() -> None:
    whole = sum_processes([process(1, "glibc 2.36", HEAP), process(2, "Go runtime", None, managed="go")])
    assert (whole.figures.managed, whole.figures.managed_resident) == ("go", 100 * MIB)


def test_mappings_of_an_unknown_owner_are_those_of_processes_whose_malloc_can_be_read() -> None:
    outside = process(1, "glibc 2.36", HEAP, private=400 * MIB)
    assert outside.advice.sentence.startswith("Of 404.0 MiB resident, 310.0 MiB is outside of malloc")
    whole = sum_processes([outside, process(2, "jemalloc", None, private=20 * MIB)])
    assert whole.figures.managed_resident == 310 * MIB
    assert "310.0 MiB is outside of malloc" in whole.advice.sentence


def test_live_blocks_are_those_in_memory() -> None:
    """The number that malloc's walk gives includes blocks in thread caches, and of blocks that are swapped out."""
    live = {"live_bytes": 60 * MIB, "mapped_bytes": 50 * MIB, "mapped_resident_bytes": 0, "live_blocks": 100_000}
    for cached, blocks in ((0, 100_000), (5 * MIB, 50_000)):
        found = process(1, "glibc 2.36", {**HEAP, **live, "thread_cache_bytes": cached})
        assert found.figures.blocks == blocks
        assert found.figures.block_bytes == 10 * MIB - cached
        both = sum_processes([found, found, process(2, "jemalloc", None)])
        assert (both.figures.blocks, both.figures.block_bytes) == (2 * blocks, 2 * (10 * MIB - cached))
    assert process(1, "glibc 2.36", {**HEAP, **live, "live_blocks": None}).figures.blocks == 0
    assert process(1, "glibc 2.36", HEAP).figures.block_bytes == 0


@pytest.mark.parametrize("static", [False, True])
def test_another_malloc_helps_as_long_as_one_program_is_dynamic(static: bool) -> None:
    each = [process(1, "glibc 2.36", HEAP, static=True), process(2, "glibc 2.36", HEAP, static=static)]
    assert ("heapwright compare" in sum_processes(each).advice.steps[-1]) == (not static)


def test_the_trim_is_that_of_the_process_with_the_free_memory() -> None:
    """A Python program that waits for a service in C++ does not make calls in it."""
    runtime = {"name": "CPython 3.11", "resident_bytes": 2 * MIB}
    much = {**HEAP, "trimmable_bytes": 20 * MIB}
    little = {**HEAP, "releasable_bytes": 2 * MIB, "free_pages_bytes": MIB, "trimmable_bytes": MIB}
    for in_python, in_service, hint in ((little, much, "gdb -p PID"), (much, little, "in Python")):
        python = process(1, "glibc 2.36", in_python)
        figures = figures_of("glibc 2.36", python.division, in_python, runtime)
        python = Diagnosis(python.json, python.division, figures, advise(figures))
        whole = sum_processes([python, process(2, "glibc 2.36", in_service)])
        assert whole.figures.runtime == "CPython 3.11"
        assert hint in whole.advice.steps[0]


@pytest.mark.parametrize("count", [8, 9, 20])
def test_size_classes_that_are_not_shown_are_counted(count: int) -> None:
    classes = [
        {"size": 16 * (i + 1), "live_blocks": 1000, "free_blocks": 1000, "live_bytes": MIB, "free_bytes": MIB}
        for i in range(count)
    ]
    shown = text_of(process(1, "exgen", {**HEAP, "arenas": [], "classes": classes}))
    rest = count - 8
    assert (f"{rest} more" in shown) == (rest > 0)
    if rest:
        assert shown.split("more")[-1].split()[:4] == [f"{rest},000", f"{rest},000", f"{rest}.0", "MiB"]


@pytest.mark.parametrize(("count", "left_out"), [(12, False), (13, True)])
def test_the_page_says_how_many_processes_it_leaves_out(count: int, left_out: bool) -> None:
    each = [process(pid, "glibc 2.36", HEAP) for pid in range(1, count + 1)]
    page = render(sum_processes(each), each, "many")
    sentence = f"The picture shows the largest 12 of {count} processes; the others have 104.0 MiB together."
    assert (sentence in page) == left_out


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_terminal_cuts_no_figure(width: int) -> None:
    arena = {"threads": 1, "resident_bytes": 1000 << 10, "free_pages_bytes": 316 << 10, "trimmable_bytes": 220 << 10}
    arenas = [{**arena, "index": index, "live_bytes": 701 << 10, "free_bytes": 418 << 10} for index in range(2)]
    out = Console(width=width, force_terminal=True, color_system=None)
    one = process(4711, "glibc 2.36", {**HEAP, "arenas": arenas})
    named = process(123_456, "mimalloc 2.1.7", None)
    named.json["command"] = ["celeryd: worker1@host:MainProcess -active-"]
    with out.capture() as captured:
        show_diagnosis(one, "service", out)
        show_diagnosis(sum_processes((one, named)), "service", out, (one, named))
    text = captured.get()
    rows = [line for line in text.splitlines() if not line.endswith((".", "2.36", "2.1.7"))]
    assert [line for line in rows if len(line) > width] == []
    for cell in ("main", "arena 1", "1000.0 KiB", "701.0 KiB", "trimmable", "220.0 KiB", "4711 service", "123456 cel"):
        assert cell in text
    assert "mimalloc 2.1.7" in text
