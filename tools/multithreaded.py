#!/usr/bin/env python3
"""Summarises `heapwright bench` for one allocator on programs with threads: the tables in docs/results/reaper.md.

    heapwright bench realistic --threads 1,2,8 --json realistic.json      # and the other suites
    .venv/bin/python tools/multithreaded.py *.json
    .venv/bin/python tools/multithreaded.py burst.json --suites burst --threads 1,2 --allocator exgen

Compares CPU time and peak RSS of one of our allocators with the best single peer (the one with the
smallest geometric mean over all benchmarks, at that thread count), and with each benchmark's best
peer. Also shows whether run time and CPU time per operation stay the same with more threads. A
quotient of two allocators' ratios to the reference is the geometric mean over rounds of quotients
within a round. If a benchmark does not run with the wanted number of threads, the next number that
it has counts (n-to-1 has at least three, phases at most one); with one thread, benchmarks that need several are left
out. The variants of scalability with
other numbers of iterations are left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from comparing import geometric_mean

SUITES = ("openmp", "realistic", "server", "producer-consumer", "batch", "phases")
OURS = ("exgen", "exgen-secure", "reaper", "reaper-secure")
LABELS = {"cpu_s": "CPU time", "peak_rss_bytes": "peak RSS"}


@dataclass
class Results:
    """The measured cells of `bench --json`, by (benchmark, threads) and then by allocator."""

    cells: dict[tuple[str, int], dict[str, dict[str, Any]]] = field(default_factory=dict)
    allocators: list[str] = field(default_factory=list)
    rounds: set[int] = field(default_factory=set)
    suites: tuple[str, ...] = SUITES

    def add(self, file: Path) -> None:
        """Reads a file of `bench --json`."""
        found = json.loads(file.read_text())
        self.allocators = self.allocators or [one["name"] for one in found["allocators"]]
        self.rounds.add(found["rounds"])
        for cell in found["results"]:
            counted = cell["suite"] in self.suites and not cell["benchmark"].startswith("scalability-")
            if counted and not cell["failure"]:
                self.cells.setdefault((cell["benchmark"], cell["threads"]), {})[cell["allocator"]] = cell

    @property
    def peers(self) -> list[str]:
        """All allocators but ours."""
        return [name for name in self.allocators if name not in OURS]

    def benchmarks(self, threads: int) -> dict[str, dict[str, dict[str, Any]]]:
        """Each benchmark's cells with this number of threads, or the next one that it has.

        Args:
            threads: The number of threads; with 1, only benchmarks that run with one thread count.
        """
        counts: dict[str, list[int]] = {}
        for name, count in self.cells:
            counts.setdefault(name, []).append(count)
        if threads == 1:
            counts = {name: has for name, has in counts.items() if 1 in has}
        chosen = {name: min((c for c in has if c >= threads), default=max(has)) for name, has in counts.items()}
        return {name: self.cells[name, count] for name, count in chosen.items()}

    def ratio(self, cell: dict[str, Any], metric: str) -> float:
        """A cell's ratio to the reference."""
        ratio = cell["ratio"].get(metric)
        return float(ratio["value"]) if ratio else 1.0

    def mean(self, allocator: str, threads: int, metric: str) -> float:
        """The geometric mean of an allocator's ratios to the reference.

        Args:
            allocator: The allocator's name.
            threads: The number of threads.
            metric: The key of the metric.
        """
        return geometric_mean([self.ratio(found[allocator], metric) for found in self.benchmarks(threads).values()])

    def best(self, names: Iterable[str], threads: int, metric: str) -> str:
        """The allocator with the smallest geometric mean.

        Args:
            names: The allocators to choose from.
            threads: The number of threads.
            metric: The key of the metric.
        """
        return min(names, key=lambda name: self.mean(name, threads, metric))


def against_peers(results: Results, mine: str, threads: int) -> None:
    """Prints each benchmark's ratios to the best single peer and to its own best peer.

    Args:
        results: All results.
        mine: The name of our allocator.
        threads: The number of threads.
    """
    single = {metric: results.best(results.peers, threads, metric) for metric in LABELS}
    print(f"\n**{mine} with {threads} thread{'s' if threads > 1 else ''}**\n")
    columns = [text for m in LABELS for text in (f"{LABELS[m]} / {single[m]}'s", "/ its own best peer's", "which is")]
    print("| benchmark | " + " | ".join(columns) + " |\n|---" + "|---" * len(columns) + "|")
    sums: dict[tuple[str, str], list[float]] = {}
    for name, cell in results.benchmarks(threads).items():
        row = [name]
        for metric in LABELS:
            own = min(results.peers, key=lambda peer, c=cell, m=metric: results.ratio(c[peer], m))  # type: ignore[misc]
            value = results.ratio(cell[mine], metric)
            for kind, peer in (("single", single[metric]), ("own", own)):
                ratio = value / results.ratio(cell[peer], metric)
                sums.setdefault((metric, kind), []).append(ratio)
                row.append(f"{ratio:.3f}")
            row.append(own)
        print(f"| {' | '.join(row)} |")
    means = [f"**{geometric_mean(sums[m, 'single']):.3f}** | {geometric_mean(sums[m, 'own']):.3f} |" for m in LABELS]
    print(f"| geometric mean | {' | '.join(means)} |")


def means(results: Results, counts: list[int]) -> None:
    """Prints the geometric means of all allocators at all thread counts."""
    for metric, label in LABELS.items():
        print(f"\n**{label}, geometric means of the ratios to {results.allocators[0]}**\n")
        print("| allocator | " + " | ".join(f"{n} threads" for n in counts) + " |\n|---" + "|---" * len(counts) + "|")
        for name in sorted(results.allocators, key=lambda one: results.mean(one, 2, metric)):
            print(f"| {name} | " + " | ".join(f"{results.mean(name, n, metric):.3f}" for n in counts) + " |")


def flatness(results: Results, counts: list[int]) -> None:
    """Prints how scalability's run time and all benchmarks' CPU time per operation change with more threads."""
    columns = ["scalability: run time at 2 / 1"] + [f"CPU an operation at {n} / 1" for n in counts if n > 1]
    columns += [f"scalability: CPU an operation at {n} / 1" for n in counts if n > 2]
    print("\n**With more threads, medians; 1 is flat**\n")
    print("| allocator | " + " | ".join(columns) + " |\n|---" + "|---" * len(columns) + "|")

    def per_operation(name: str, count: int, allocator: str) -> float:
        cell = results.cells[name, count][allocator]
        return float(cell["cpu_s"]) / float(cell["operations"])

    many = [name for name, count in results.cells if count == 1 and (name, 2) in results.cells]
    for allocator in results.allocators:
        wall = [results.cells["scalability", n][allocator]["wall_s"] for n in (1, 2)]
        row = [f"{wall[1] / wall[0]:.2f}"]
        for n in counts[1:]:
            there = [name for name in many if (name, n) in results.cells]
            growth = [per_operation(name, n, allocator) / per_operation(name, 1, allocator) for name in there]
            row.append(f"{geometric_mean(growth):.2f}")
        row += [
            f"{per_operation('scalability', n, allocator) / per_operation('scalability', 1, allocator):.2f}"
            for n in counts
            if n > 2
        ]
        print(f"| {allocator} | {' | '.join(row)} |")


def main() -> None:
    """Prints Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="output of `heapwright bench --json`")
    parser.add_argument("--allocator", default="reaper", help="one of our allocators (default reaper)")
    parser.add_argument("--suites", default=",".join(SUITES), help="the suites that count (default %(default)s)")
    parser.add_argument("--threads", default="2,8", help="numbers of threads to compare at (default %(default)s)")
    args = parser.parse_args()
    results = Results(suites=tuple(args.suites.split(",")))
    for file in args.files:
        results.add(file)
    counts = sorted({count for _, count in results.cells if count in (1, 2, 4, 8, 16)})
    print(f"{len({name for name, _ in results.cells})} benchmarks, {max(results.rounds)} rounds.")
    for threads in map(int, args.threads.split(",")):
        against_peers(results, args.allocator, threads)
    means(results, counts)
    if ("scalability", 2) in results.cells:
        flatness(results, counts)


if __name__ == "__main__":
    main()
