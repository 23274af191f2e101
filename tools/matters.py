#!/usr/bin/env python3
"""Compares the bounds of study/saving_bound.py with the best gains of many settings: the table in docs/method.md.

Each program first runs as `tune` runs it (with memory divided into parts, then plain, then
recorded), which gives the bounds. Then it runs under every installed allocator, at its defaults and
with random settings. The best three for memory and for CPU time run again, in rounds with the
default. 'Found' is the best geometric mean of those rounds alone. It is the best of six, so it is
more likely too large than too small.

    nice -n 10 .venv/bin/python tools/matters.py --settings 2 --rounds 3
    .venv/bin/python tools/matters.py --programs sort,mmap
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from comparing import geometric_mean

from heapwright.allocators.registry import Allocator, ordinary_allocators
from heapwright.errors import HeapwrightError
from heapwright.interleaving.records import StoredRun
from heapwright.measure.meter import MeterOptions
from heapwright.study import saving_bound, study_bound
from heapwright.study.view import SavingBound
from heapwright.tuning import proxy
from heapwright.workload.execute import Executor
from heapwright.workload.model import Workload, from_command
from programs import PROGRAMS, make_inputs

METRICS = ("peak", "cpu_s")
# Four threads that replace random blocks of random size, which fragments the heap.
THREADS = """#include <pthread.h>
#include <stdlib.h>
#include <string.h>
static void* work(void* seed) {
  unsigned state = (unsigned)(size_t)seed; char* held[5000] = {0};
  for (int i = 0; i < 2000000; i++) {
    state = state * 1664525u + 1013904223u; unsigned at = (state >> 8) % 5000, size = 16 + (state >> 20) % 1000;
    free(held[at]); held[at] = malloc(size); memset(held[at], 1, size < 64 ? size : 64); }
  return 0; }
int main(void) { pthread_t t[4]; for (size_t i = 0; i < 4; i++) pthread_create(t + i, 0, work, (void*)(i + 1));
  for (int i = 0; i < 4; i++) pthread_join(t[i], 0); return 0; }
"""
MMAP = """import mmap
with open("big.bin", "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
    print(sum(data[i] for i in range(0, len(data), 4096)))"""
NODE = """const a = []; for (let i = 0; i < 300000; i++) a.push({id: i, s: "x" + i});
console.log(JSON.stringify(a).length, a.sort((p, q) => p.s < q.s ? -1 : 1)[7].id)"""
JAVA = """import java.util.*; class A { public static void main(String[] x) { var m = new HashMap<String,Integer>();
for (int i = 0; i < 400000; i++) m.merge("k" + i % 90000, i, Integer::sum); System.out.println(m.size()); } }"""
MORE = {
    "python3, pymalloc": ["/usr/bin/python3", "q.py"],
    "sort, threads": ["sort", "--parallel=4", "-o", "sorted.txt", "lines.txt"],
    "xz": ["xz", "-3", "-T1", "-k", "-f", "in.xml"],
    "zstd, threads": ["zstd", "-q", "-9", "-T4", "-f", "in.xml", "-o", "in.zst"],
    "four threads": ["./threads"],
    "mmap": ["/usr/bin/python3", "pages.py"],
    "node": ["node", "q.js"],
    "java": ["java", "-XX:TieredStopAtLevel=1", "A.java"],
    "clang": ["clang", "-O1", "-S", "-o", "out.s", "c.c"],
    "git": ["git", "-C", "repository", "fsck", "--no-progress"],
}


def make_more(folder: Path) -> None:
    """Writes the inputs of the programs in this file, and builds the ones in C."""
    make_inputs(folder)
    rng = random.Random(2)
    (folder / "lines.txt").write_text("".join(f"{rng.randrange(10**9)} line\n" for _ in range(300000)))
    for name, text in (("threads.c", THREADS), ("pages.py", MMAP), ("q.js", NODE), ("A.java", JAVA)):
        (folder / name).write_text(text)
    (folder / "big.bin").write_bytes(bytes(range(256)) * (1 << 20))
    subprocess.run(["gcc", "-O1", "-pthread", "-o", "threads", "threads.c"], cwd=folder, check=True)
    repository = folder / "repository"
    if not repository.exists():
        source = Path(__file__).resolve().parent.parent
        subprocess.run(["git", "clone", "-q", "--no-hardlinks", "--bare", source, repository], check=True)


class Program:
    """One program and how to run it."""

    def __init__(self, words: list[str], folder: Path) -> None:
        self.workload: Workload = from_command(words)
        self.folder = folder
        self.input = self.workload.train[0]
        self.tree = False

    def run(self, env: Mapping[str, str], options: MeterOptions) -> StoredRun | None:
        """Runs the program once, and returns the run as a study stores it; None if it failed."""
        outcome = Executor(self.workload, options, self.folder / "references").run(self.input, env)
        if outcome.failure:
            return None
        run = outcome.run
        extra: dict[str, Any] = {"threads": run.max_threads, "processes": run.max_processes}
        if run.parts is not None:
            extra["parts"] = json.loads(json.dumps(run.parts, default=_plain))
        return StoredRun("calibrate", int(run.parts is None), "default", 1, 0.0, "", "", run.metrics, extra)

    def values(self, env: Mapping[str, str]) -> dict[str, float] | None:
        """Runs the program once, and returns peak memory in bytes and CPU time in seconds; None if it failed."""
        run = self.run(env, MeterOptions(backend="poll", pss=self.tree, timeout=60))
        if run is None:
            return None
        peak = run.metrics["peak_pss_bytes" if self.tree else "peak_rss_bytes"]
        cpu = run.metrics["cpu_s"]
        return {"peak": peak, "cpu_s": cpu} if peak and cpu else None

    def judged(self) -> tuple[SavingBound | None, SavingBound | None]:
        """The bounds that `tune` states before and after it has a recording; None if unknown."""
        first = self.run({}, MeterOptions(backend="poll", pss=True, parts=True))
        if first is None:
            raise SystemExit(f"{self.workload.file.command}: the program fails without any setting")
        self.tree = (first.extra["processes"] or 1) > 1
        plain = [self.run({}, MeterOptions(backend="poll")) for _ in range(3)]
        runs = [first, *(run for run in plain if run is not None)]
        default = study_bound.default_of(runs, self.tree, (shutil.which(self.workload.program()) or "",))
        if default is None:
            return None, None
        trace = self.folder / f"program-{os.getpid()}.hwt"
        trace.unlink(missing_ok=True)
        try:
            executor = Executor(self.workload, MeterOptions(backend="poll"), self.folder / "references")
            recorded = proxy.record_input(self.workload, executor, self.input, trace)
        except HeapwrightError as error:
            print(f"  not recorded: {error.message}", file=sys.stderr)
            return saving_bound.saving_bound([(default, None)]), None
        counts = study_bound.recorded_counts_of(recorded, served=True)
        return saving_bound.saving_bound([(default, None)]), saving_bound.saving_bound([(default, counts)])


def _plain(value: Any) -> dict[str, Any]:
    return {key: getattr(value, key) for key in value.__struct_fields__}


def settings(allocators: list[Allocator], count: int, seed: int) -> dict[str, dict[str, str]]:
    """Makes the configurations: every allocator at its defaults and with random settings.

    Args:
        allocators: The allocators.
        count: How many random settings each gets; glibc gets four times as many.
        seed: Seed of the random settings.

    Returns:
        The environment variables of each configuration, by name.
    """
    rng = random.Random(seed)
    found = {}
    for allocator in allocators:
        found[allocator.name] = allocator.environment(os.environ)
        space = allocator.space(threads=True)
        for _ in range((4 if allocator.name == "glibc" else 1) * count if space.params else 0):
            point = [rng.randint(1, size) if rng.random() < 0.4 else 0 for size in space.sizes]
            made = space.render(point, os.environ)
            found[f"{allocator.name} {made.settings}"] = made.env
    return found


def best(program: Program, envs: Mapping[str, Mapping[str, str]], rounds: int) -> dict[str, tuple[float, str]]:
    """Finds the smallest ratio to the default for each metric, and the configuration that gives it.

    Args:
        program: The program to run.
        envs: The variables of each configuration, by name.
        rounds: How many rounds the best configurations run again.
    """
    seen = {name: values for name, env in envs.items() if (values := program.values(env)) is not None}
    chosen = {name for metric in METRICS for name in sorted(seen, key=lambda n: seen[n][metric])[:3]}
    ratios: dict[str, dict[str, list[float]]] = {name: {m: [] for m in METRICS} for name in chosen}
    for _ in range(rounds):
        base = program.values({})
        for name in sorted(chosen):
            values = program.values(envs[name])
            if values is not None and base is not None:
                for metric in METRICS:
                    ratios[name][metric].append(values[metric] / base[metric])
    means = {m: {n: geometric_mean(r[m]) for n, r in ratios.items() if len(r[m]) == rounds} for m in METRICS}
    return {m: min(((ratio, name) for name, ratio in means[m].items()), default=(1.0, "")) for m in METRICS}


def _share(value: float | None) -> str:
    return "n/a" if value is None else "most" if value >= 1 else f"{value:.1%}"


def row(name: str, kept: dict[str, Any]) -> str:
    """Formats a line of the table."""
    early, late, found = kept["early"] or {}, kept["late"] or kept["early"] or {}, kept["found"]
    gains = {metric: max(0.0, 1 - found[metric][0]) for metric in METRICS}
    low = [
        label
        for label, metric, key in (("memory", "peak", "memory_bound"), ("CPU", "cpu_s", "cpu_bound"))
        if late.get(key) is not None and gains[metric] > late[key]
    ]
    under = [found[metric][1].split(" ")[0] or "n/a" for metric in METRICS]
    return (
        f"| {name} | {_share(early.get('memory_bound'))} | {_share(late.get('memory_bound'))} | {gains['peak']:.1%}"
        f" ({under[0]}) | {_share(late.get('cpu_bound'))} | {gains['cpu_s']:.1%} ({under[1]}) |"
        f" {', '.join(low) or 'none'} |"
    )


def main() -> None:
    """Measures all programs and prints Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, default=Path("out/matters"))
    parser.add_argument("--programs", help="only these, separated by '|', for names have commas: sort, threads|xz")
    parser.add_argument("--settings", type=int, default=2, help="random settings of each allocator")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--bounds", action="store_true", help="compute only the bounds again; read the gains from the folder"
    )
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    make_more(args.folder)
    os.chdir(args.folder)
    os.environ["LC_ALL"] = "C"
    every = {**PROGRAMS, **MORE}
    names = args.programs.split("|") if args.programs else list(every)
    envs = settings(ordinary_allocators(), args.settings, 1)
    heads = ["program", "memory, at most", "with the recording", "found", "CPU, at most", "found", "too low"]
    print(f"{len(envs)} settings, {args.rounds} rounds\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}", flush=True)
    for name in names:
        if not shutil.which(every[name][0]):
            continue
        began = time.monotonic()
        program = Program(every[name], Path())
        early, late = program.judged()
        file = Path(f"{name}.json")
        found = json.loads(file.read_text())["found"] if args.bounds else best(program, envs, args.rounds)
        kept = {"early": early and asdict(early), "late": late and asdict(late), "found": found}
        file.write_text(json.dumps(kept, indent=1))
        print(row(name, kept), flush=True)
        print(f"{name}: {time.monotonic() - began:.0f} s; {(late or early or kept)!r:.200}", file=sys.stderr)


if __name__ == "__main__":
    main()
