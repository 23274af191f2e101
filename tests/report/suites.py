"""Builds artificial results of the benchmark suite, for tests of tables and figures."""

from __future__ import annotations

import random
from collections.abc import Sequence

from heapwright.allocators.registry import Allocator
from heapwright.allocators.space_spec import AllocatorSpec, SpaceFile
from heapwright.comparison.bench import Suite
from heapwright.comparison.bench_results import Cell, compute_results
from heapwright.comparison.suite import choose_benchmarks

NAMES = ("glibc", "jemalloc", "mimalloc3", "mimalloc3-nothp", "lib<odd>.so")


def allocator(name: str) -> Allocator:
    return Allocator(name, "1.2", None, False, "", SpaceFile(AllocatorSpec(name)))


def suite(
    name: str = "all",
    names: Sequence[str] = NAMES,
    rounds: int = 3,
    threads: Sequence[int] = (1, 2),
    cycles: bool = False,
) -> Suite:
    """Return results in which every cell is measured, with slightly different figures."""
    found = Suite(name, False, choose_benchmarks(name, False), [allocator(n) for n in names], rounds)
    rng = random.Random(1)

    def figures(cost: float) -> dict[str, float | None]:
        seconds = cost * rng.uniform(0.9, 1.1)
        falls = {f"fall{i}_{what}_bytes": 1e7 * i for i in (1, 2) for what in ("live", "rss", "idle_rss")}
        return {
            **{"wall_s": seconds, "cpu_s": 2 * seconds, "operations": 1e5, "peak_rss_bytes": 5e7, "live_bytes": 4e7},
            **{"cycles": 2e9 * seconds if cycles else None, "rss_bytes": 3e6, "empty_rss_bytes": 2e6},
            **falls,
            "fall_idle_rss_bytes": 2e7,
        }

    for benchmark in found.benchmarks:
        for count in benchmark.thread_counts(threads):
            for number, allocator_ in enumerate(found.allocators):
                runs = {i: figures(0.1 + number / 50) for i in range(rounds)}
                found.cells[benchmark.name, allocator_.name, count] = Cell(benchmark, allocator_.name, count, runs=runs)
            if benchmark.void:
                runs = {i: {**figures(0.03), "peak_rss_bytes": 5e6} for i in range(rounds)}
                found.voids[benchmark.name, count] = Cell(benchmark, "void", count, runs=runs)
    compute_results(found.cells, found.voids, names[0])
    return found
