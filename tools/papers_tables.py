#!/usr/bin/env python3
"""Repeats the searches of the heap-landscape paper and GreenMalloc's table: docs/results/papers.md.

    .venv/bin/python tools/papers_tables.py searches --programs z3,gcc,clang,redis,ngspice --evaluations 60 --repeats 10
    .venv/bin/python tools/papers_tables.py four-way --programs z3,gcc,clang,redis,ngspice -n 5

`searches` runs Magpie-like, CMA-ES, grid and NSGA-II searches over the paper's three settings of
glibc (the preset `landscape`). They minimise the peak that Massif --pages-as-heap=yes would report.
Each configuration runs once, and all methods share the result. The best configuration of all then
runs interleaved with the default, to compare resident memory and time.

`four-way` measures glibc and tcmalloc at their defaults, and with the settings that NSGA-II finds
in GreenMalloc's spaces (its pick for memory), and every other allocator at its defaults.

The folder keeps all results, and they are not measured again. The tool names programs that are not
installed and leaves them out. Any other name is that of a workload file in the folder: `--programs
gem5` reads gem5.toml.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shlex
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from heapwright.allocators.presets import load_preset, preset_allocators
from heapwright.allocators.registry import Allocator, ordinary_allocators
from heapwright.allocators.space import Space
from heapwright.errors import HeapwrightError
from heapwright.measure.meter import MeterOptions
from heapwright.search.methods import make_strategy
from heapwright.search.protocol import Observation, Setup
from heapwright.workload.execute import Executor
from heapwright.workload.model import Workload, from_command, load_workload
from programs import make_inputs

METHODS = ("magpie", "cmaes", "grid", "nsga2", "sobol")
CIRCUIT = """* a ring of CMOS inverters
.model n nmos level=1 vto=0.7 kp=110u
.model p pmos level=1 vto=-0.7 kp=50u
vdd v 0 3.3
{stages}
.ic v(n0)=0
.control
tran 20p 60n uic
wrdata ring.data v(n0)
quit
.endc
.end
"""
BIG = """#include <algorithm>
#include <functional>
#include <map>
#include <regex>
#include <sstream>
#include <unordered_map>
template <int N> struct T { std::map<std::string, std::vector<T<N - 1>>> m; int f() { return T<N - 1>{}.f() + N; } };
template <> struct T<0> { int f() { return 0; } };
int main() { std::regex r("a(b|c)*d"); std::unordered_map<std::string, std::function<int()>> u;
u["x"] = [] { return T<40>{}.f(); }; return u["x"]() + std::regex_match("abd", r); }
"""
REDIS = """command = ["redis-server", "--port", "7791", "--save", "", "--appendonly", "no", "--loglevel", "warning"]
[output]
compare = "none"
[server]
ready = ["redis-cli", "-p", "7791", "ping"]
load = ["redis-benchmark", "-p", "7791", "-q", "-P", "16", "-c", "1", "-d", "10000", "-n", "992", "-t", "set,get"]
"""
NGSPICE = """command = ["ngspice", "-b", "ring.cir"]
[output]
compare = "files"
files = ["ring.data"]
"""
COMMANDS = {
    "z3": ["z3", "z.smt2"],
    "gcc": [
        "g++",
        "-std=c++20",
        "-O1",
        "-S",
        "-o",
        "-",
        "big.cpp",
    ],  # cc1plus itself runs, because Massif follows no child
    "clang": ["clang", "-std=c++20", "-O1", "-S", "-o", "-", "big.cpp"],
    "redis": ["redis-server"],
    "ngspice": ["ngspice"],
    "sqlite3": ["sqlite3", ":memory:", ".read q.sql"],
}
METRICS = ("massif_peak_bytes", "peak_rss_bytes", "mean_rss_bytes", "peak_heap_bytes", "mean_heap_bytes")


def workloads(folder: Path, names: Sequence[str]) -> Iterator[tuple[str, Workload]]:
    """Writes the inputs and yields the workloads of the installed programs."""
    make_inputs(folder)
    (folder / "big.cpp").write_text(BIG)
    stages = (
        f"m{i}a n{(i + 1) % 101} n{i} v v p w=4u l=1u\nm{i}b n{(i + 1) % 101} n{i} 0 0 n w=2u l=1u" for i in range(101)
    )
    (folder / "ring.cir").write_text(CIRCUIT.format(stages="\n".join(stages)))
    (folder / "redis.toml").write_text(REDIS)
    (folder / "ngspice.toml").write_text(NGSPICE)  # not the standard output, which contains times
    os.chdir(folder)
    for name in names:
        file, command = Path(f"{name}.toml"), COMMANDS.get(name, [])
        if command and shutil.which(command[0]) is None:
            print(f"<!-- {command[0]} is not installed -->", flush=True)
        else:
            yield name, load_workload(file) if file.exists() or not command else from_command(_proper(command))


def _proper(command: list[str]) -> list[str]:
    """The command of cc1plus that g++ would run; other commands unchanged."""
    if command[0] != "g++":
        return command
    said = subprocess.run([*command, "-###"], capture_output=True, text=True, check=True).stderr
    return shlex.split(next(line for line in said.splitlines() if "cc1plus" in line.split(maxsplit=1)[0]))


class Bench:
    """Runs one program, each environment once for the searches, and keeps the results in a JSON file."""

    def __init__(self, name: str, workload: Workload, massif: bool) -> None:
        self.path = Path(f"{name}.runs.json")
        self.runs: dict[str, dict[str, Any]] = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.executor = Executor(workload, MeterOptions(massif=massif, timeout=60), Path(f"{name}.reference"))
        self.workload = workload
        default = self.once({})
        if not default:
            raise SystemExit(f"{name}: the program fails without any setting")
        self.output = default["digest"]
        limit = max(3.0, 3 * default["wall_s"])  # seconds; a slower setting is no candidate
        self.executor.options = MeterOptions(massif=massif, timeout=limit)

    def once(self, env: Mapping[str, str], turn: int | str = 0) -> dict[str, Any]:
        """Returns the metrics of a run under these variables, or {} if it failed.

        The result is kept and not measured again. So each table uses its own turns: runs hours apart are no pair.
        """
        key = json.dumps([dict(env), self.executor.options.massif, turn], sort_keys=True)
        if key not in self.runs:
            outcome = self.executor.run(self.workload.train[0], env, random.Random(key).randrange(4096))
            self.runs[key] = {} if outcome.failure else {**outcome.run.metrics, "digest": outcome.digest}
            draft = self.path.with_suffix(".new")
            draft.write_text(json.dumps(self.runs))
            draft.replace(self.path)
        return self.runs[key]

    def instructions(self, env: Mapping[str, str]) -> float | None:
        """Counts the instructions of one run under callgrind; None for a server, or if valgrind cannot run it."""
        options = self.executor.options
        self.executor.options = replace(options, callgrind=True, timeout=0)
        try:
            return None if self.workload.file.server else self.once(env, "callgrind").get("instructions")
        except HeapwrightError:
            return None
        finally:
            self.executor.options = options

    def cost(self, env: Mapping[str, str], metric: str) -> float | None:
        """The log ratio to the default; None if the run failed or its output differs."""
        default, found = self.once({}), self.once(env)
        if not found or found["digest"] != self.output or not found[metric]:
            return None
        return math.log(found[metric] / default[metric])


def search(
    method: str, space: Space, budget: int, seed: int, objectives: int, cost: Callable[[dict[str, str]], Any]
) -> list[tuple[tuple[float, ...], dict[str, str]]]:
    """Runs one search.

    Args:
        method: The name of the search method.
        space: The settings to search.
        budget: The largest number of evaluations.
        seed: Seed of the method.
        objectives: The number of objectives.
        cost: Measures settings; returns their costs, or None if they fail.

    Returns:
        The costs and settings of every point that did not fail.
    """
    strategy = make_strategy(method, Setup(space, objectives, budget, seed))
    seen: dict[Any, tuple[float, ...] | None] = {}
    stale = 0
    while len(seen) < budget and stale < 20:
        points = strategy.ask()
        if not points:
            break
        before = len(seen)
        for point in points:
            if point not in seen and len(seen) < budget:
                seen[point] = cost(space.settings(point))
        stale = 0 if len(seen) > before else stale + 1
        if any(point not in seen for point in points):
            break
        strategy.tell([Observation(p, seen[p]) for p in points])
    return [(costs, space.settings(point)) for point, costs in seen.items() if costs is not None]


def searches(args: argparse.Namespace) -> None:
    """Prints the table of the heap-landscape paper."""
    allocator = preset_allocators(load_preset("landscape"), [])[0]
    space = allocator.space(threads=False, expert=True)
    base = dict(os.environ)
    head = ["program", "default's peak", *METHODS, "best found", "its peak RSS", "mean RSS", "CPU time"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for name, workload in workloads(args.folder, args.programs.split(",")):
        bench = Bench(name, workload, massif=True)

        def cost(settings: dict[str, str], bench: Bench = bench) -> tuple[float, ...] | None:
            found = bench.cost(_own(space, settings, base), "massif_peak_bytes")
            return None if found is None else (found,)

        cells, best = [], (0.0, dict[str, str]())
        for method in METHODS:
            reached = []
            for seed in range(1, 2 if method == "grid" else args.repeats + 1):
                tried = search(method, space, args.evaluations, seed, 1, cost)
                low = min(((c[0], s) for c, s in tried), key=lambda x: x[0], default=(0.0, {}))
                reached.append(min(0.0, low[0]))
                best = min(best, low, key=lambda x: x[0])
            hits = sum(x < -0.005 for x in reached)
            spread = statistics.stdev(reached) if len(reached) > 1 else 0.0
            cells.append(f"{math.expm1(statistics.fmean(reached)):+.2%} ±{spread:.2%}, {hits}/{len(reached)}")
        setting = " ".join(f"{k}={v}" for k, v in best[1].items()) or "none"
        peak = bench.once({})["massif_peak_bytes"] / 2**20
        real = Bench(name, workload, massif=False)
        changes = [
            _paired(real, _own(space, best[1], base), m, args.rounds)
            for m in ("peak_rss_bytes", "mean_rss_bytes", "cpu_s")
        ]
        print(
            f"| {name} | {peak:.1f} MiB | {' | '.join(cells)} |"
            f" {math.expm1(best[0]):+.2%}: `{setting}` | {' | '.join(changes)} |",
            flush=True,
        )


def _own(space: Space, settings: Mapping[str, str], base: Mapping[str, str]) -> dict[str, str]:
    """The variables that settings add to our environment."""
    return {k: v for k, v in space.environment(dict(settings), base).items() if base.get(k) != v} if settings else {}


def _paired(bench: Bench, env: Mapping[str, str], metric: str, rounds: int) -> str:
    """Formats the median change over interleaved runs, and the range of the rounds."""
    ratios = []
    for number in range(1, rounds + 1):
        default, found = bench.once({}, number), bench.once(env, number)
        if found and default.get(metric) and found.get(metric):
            ratios.append(found[metric] / default[metric] - 1)
    return f"{statistics.median(ratios):+.1%} [{min(ratios):+.1%}, {max(ratios):+.1%}]" if ratios else "n/a"


def four_way(args: argparse.Namespace) -> None:
    """Prints GreenMalloc's table, with every allocator."""
    base = dict(os.environ)
    head = [
        "program",
        "malloc",
        "peak heap",
        "mean heap",
        "peak RSS",
        "mean RSS",
        "release rate",
        "instructions",
        "CPU time",
        "spread of CPU",
    ]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for name, workload in workloads(args.folder, args.programs.split(",")):
        bench = Bench(name, workload, massif=False)
        rows = {"glibc": {}, "glibc tuned": _tuned(bench, "glibc", args, base)}
        tcmalloc = next((a for a in ordinary_allocators() if a.name == "tcmalloc"), None)
        if tcmalloc:
            rows |= {"tcmalloc": _plain(tcmalloc, base), "tcmalloc tuned": _tuned(bench, "tcmalloc", args, base)}
        rows |= {a.name: _plain(a, base) for a in ordinary_allocators() if a.name not in rows}
        made: dict[str, list[dict[str, Any]]] = {row: [] for row in rows}
        for number in range(1, args.rounds + 1):
            order = list(rows)
            random.Random(number).shuffle(order)
            for row in order:
                made[row].append(bench.once(rows[row], f"four-way {number}"))
        default = {
            m: statistics.median(r[m] for r in made["glibc"])
            for m in ("peak_heap_bytes", "mean_heap_bytes", "peak_rss_bytes", "mean_rss_bytes", "cpu_s")
        }
        for row, runs in made.items():
            good = [r for r in runs if r]
            if len(good) < len(runs):
                print(f"| {name} | {row} | it failed ||||||||")
                continue
            counts = [bench.instructions(rows[r]) if args.instructions else None for r in ("glibc", row)]
            count = f"{counts[1] / counts[0]:.4f}" if counts[0] and counts[1] else "n/a"
            cells = [f"{statistics.median(r[m] for r in good) / default[m]:.3f}" for m in default]
            rate = statistics.median(r["release_rate"] or 0.0 for r in good) / 2**20
            times = [r["cpu_s"] for r in good]
            spread = statistics.stdev(times) / statistics.fmean(times) if len(times) > 1 else 0.0
            cells[4:] = [f"{rate:.1f} MiB/s", count, cells[4], f"{spread:.1%}"]
            print(f"| {name} | {row} | {' | '.join(cells)} |", flush=True)


def _plain(allocator: Allocator, base: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in allocator.environment(dict(base)).items() if base.get(k) != v}


def _tuned(bench: Bench, name: str, args: argparse.Namespace, base: Mapping[str, str]) -> dict[str, str]:
    """Runs NSGA-II for peak heap and CPU time over GreenMalloc's space; the variables with the smallest peak heap."""
    allocator = preset_allocators(load_preset("greenmalloc"), [name])[0]
    space = allocator.space(threads=False, expert=True)

    def cost(settings: dict[str, str]) -> tuple[float, ...] | None:
        env = {k: v for k, v in space.environment(settings, dict(base)).items() if base.get(k) != v}
        found = [bench.cost(env, m) for m in ("peak_heap_bytes", "cpu_s")]
        return None if None in found else tuple(x for x in found if x is not None)

    tried = search("nsga2", space, args.evaluations, 1, 2, cost)
    if not tried:
        return _plain(allocator, base)
    settings = min(tried, key=lambda x: x[0])[1]
    return {k: v for k, v in space.environment(settings, dict(base)).items() if base.get(k) != v}


def main() -> None:
    """Prints the chosen table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("table", choices=("searches", "four-way"))
    parser.add_argument("--programs", default="z3,gcc,clang,redis,ngspice")
    parser.add_argument("--folder", type=Path, default=Path("out/papers"))
    parser.add_argument("--evaluations", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("-n", "--rounds", type=int, default=5)
    parser.add_argument("--instructions", action="store_true", help="four-way: count instructions with callgrind")
    args = parser.parse_args()
    args.folder = args.folder.resolve()
    sys.stdout.write(f"`tools/papers_tables.py {' '.join(sys.argv[1:])}`\n\n")
    searches(args) if args.table == "searches" else four_way(args)


if __name__ == "__main__":
    main()
