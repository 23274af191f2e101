#!/usr/bin/env python3
"""Counts the instructions of a malloc/free pair in the benchmarks of suite `burst`, under several allocators.

    tools/burst_counts.py [--operations N] [--threads N] [--only WORD] NAME=LIBRARY...

Callgrind counts whole runs. The count of the same benchmark with the void allocator is subtracted, and the rest
divided by the number of pairs. Counts of bursts above 2 MiB vary, because allocators purge by the clock. A library that
cannot run under valgrind gets a dash. The last columns are ratios to the best peer, for exgen and reaper.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import heapwright
from heapwright.comparison.suite import Benchmark, choose_benchmarks
from heapwright.measure.valgrind import count_instructions

PROGRAMS = Path(heapwright.__file__).parent / "_native" / "benchmarks"
OURS = ("exgen", "reaper")


def cost(benchmark: Benchmark, threads: int, operations: int, library: str) -> float | None:
    """Return the instructions of a pair.

    Args:
        benchmark: the benchmark.
        threads: number of threads.
        operations: pairs of a run, about.
        library: path of the allocator.
    """
    count = max(threads, benchmark.min_threads)
    found: list[float | None] = []
    for empty in (True, False):
        words = benchmark.command(count, 1, quick=True, empty=empty)
        command = [str(PROGRAMS / benchmark.program), *words, f"operations={operations}"]
        pairs = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["operations"]
        environment = dict(os.environ) if empty else {**os.environ, "LD_PRELOAD": library}
        found.append(count_instructions(command, env=environment))
    empty_count, whole = found
    return None if whole is None or empty_count is None else (whole - empty_count) / pairs


def main() -> int:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=400_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", metavar="WORD", help="benchmarks whose name contains it")
    parser.add_argument("libraries", nargs="+", metavar="NAME=LIBRARY")
    args = parser.parse_args()
    libraries = dict(word.split("=", 1) for word in args.libraries)
    benchmarks = [b for b in choose_benchmarks("burst", True) if b.min_threads <= args.threads and args.only in b.name]
    print(
        "| benchmark |", " | ".join(libraries), "|", " | ".join(f"{n} / best peer" for n in libraries if n in OURS), "|"
    )
    print("|" + "---|" * (1 + len(libraries) + sum(n in OURS for n in libraries)))
    ratios: dict[str, list[float]] = {}
    for benchmark in benchmarks:
        with ThreadPoolExecutor(2) as pool:
            counts = {
                name: pool.submit(cost, benchmark, args.threads, args.operations, library)
                for name, library in libraries.items()
            }
            costs = {name: count.result() for name, count in counts.items()}
        peers = [c for name, c in costs.items() if name not in OURS and c is not None]
        cells = [f"{c:.1f}" if c is not None else "-" for c in costs.values()]
        for name in OURS:
            own = costs.get(name)
            if own is not None and peers:
                ratios.setdefault(name, []).append(own / min(peers))
                cells.append(f"{own / min(peers):.2f}")
        print(f"| {benchmark.name} |", " | ".join(cells), "|", flush=True)
    for name, values in ratios.items():
        mean = math.exp(sum(map(math.log, values)) / len(values))
        print(f"\n{name}: geometric mean {mean:.3f}, largest {max(values):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
