#!/usr/bin/env python3
"""Runs the benchmark `pages` under each allocator and its huge-page modes: the tables in docs/results/huge-pages.md.

The modes run in turns, each turn in another order. A table gives medians over the turns, and CPU time as the ratio to
glibc's of the same turn, with its range.

    .venv/bin/python tools/pages_table.py -n 5 --threads 1,8
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
from typing import Any

from heapwright.allocators.registry import Allocator, find_allocators
from heapwright.comparison.bench import program_path

# Allocator, variable and value; without a variable: as it comes.
MODES = (
    ("glibc", "", ""),
    ("glibc", "GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"),
    ("exgen", "EXGEN_OPTIONS", "huge_pages=never"),
    ("exgen", "", ""),
    ("exgen", "EXGEN_OPTIONS", "huge_pages=always"),
    ("reaper", "REAPER_OPTIONS", "huge_pages=never"),
    ("reaper", "", ""),
    ("reaper", "REAPER_OPTIONS", "huge_pages=always"),
    ("jemalloc", "", ""),
    ("jemalloc", "MALLOC_CONF", "thp:always"),
    ("mimalloc2", "", ""),
    ("mimalloc2", "MIMALLOC_LARGE_OS_PAGES", "1"),
    ("mimalloc2-nothp", "", ""),
    ("tcmalloc", "", ""),
    ("tbbmalloc", "", ""),
    ("tbbmalloc", "TBB_MALLOC_USE_HUGE_PAGES", "1"),
)
MIB = 1 << 20
HEADER = f"| mode | grown | fallen | grown again | CPU time |\n|{'---|' * 5}\n"
PHASES = ("grown", "fallen", "regrown")


def _run(allocator: Allocator, variable: str, value: str, threads: int, mib: int, seed: int) -> dict[str, Any]:
    """Runs the benchmark once; returns its numbers."""
    env = {**os.environ, **allocator.environment(os.environ), **({variable: value} if variable else {})}
    words = [str(program_path("bench-pages")), "--threads", str(threads), "--seed", str(seed), f"mib={mib}"]
    done = subprocess.run(words, env=env, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _row(label: str, runs: list[dict[str, Any]], reference: list[dict[str, Any]]) -> str:
    """Formats the row of a mode."""
    cells = []
    for phase in PHASES:
        faults, rss, huge = (
            statistics.median(run[f"{phase}_{key}"] for run in runs) for key in ("faults", "rss_bytes", "huge_bytes")
        )
        cells.append(f"{rss / MIB:.0f} MiB, {huge / MIB:.0f}, {faults / 1000:.1f}")
    ratios = [run["cpu_s"] / other["cpu_s"] for run, other in zip(runs, reference, strict=True)]
    return f"| {label} | {' | '.join(cells)} | {statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}] |"


def main() -> None:
    """Runs all modes and prints a table for each number of threads."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-n", "--rounds", type=int, default=5)
    parser.add_argument("--threads", default="1,8", help="numbers of threads, separated by commas")
    parser.add_argument("--allocators", help="glibc and these, separated by commas (default: all)")
    parser.add_argument("--mib", type=int, default=256, help="size of the heap when grown")
    args = parser.parse_args()
    here = find_allocators()
    wanted = ["glibc", *args.allocators.split(",")] if args.allocators else list(here)
    modes = [mode for mode in MODES if mode[0] in here and mode[0] in wanted]
    for threads in (int(word) for word in args.threads.split(",")):
        runs: dict[tuple[str, str, str], list[dict[str, Any]]] = {mode: [] for mode in modes}
        for turn in range(args.rounds):
            # In another order each time: a process that follows one with huge pages finds warm
            # ones.
            for mode in random.Random(turn).sample(modes, len(modes)):
                runs[mode].append(_run(here[mode[0]], mode[1], mode[2], threads, args.mib, turn + 1))
        many = "s" * (threads > 1)
        sys.stdout.write(f"{threads} thread{many}:\n\n{HEADER}")
        for mode in modes:
            name, variable, value = mode
            version = re.split(r"[-+ ]", here[name].version or "")[0]
            setting = value if "=" in value or ":" in value else f"{variable}={value}"
            label = f"{name} {version}{f', `{setting}`' if value else ''}"
            sys.stdout.write(_row(label, runs[mode], runs[modes[0]]) + "\n")
        sys.stdout.write("\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
