#!/usr/bin/env python3
"""Measures how well replays rank allocators and decay settings for services: the figures in docs/results/services.md.

Runs services under loads with pauses, under every allocator and setting, and records each service once under the
malloc that it has by itself. Then replays the recording under the same allocators and settings. Compares mean and
idle resident memory. Idle memory is that at the end of a pause of the load; of services that end with a pause of
their own, that of 0.7 s before their end.

The prediction for the program is replay + base; base is the program less the replay, both under the malloc of the
recording. So that malloc is not in the statistics of errors. A malloc that a program is linked with stays loaded when
another one takes its place; the replays load it too, as the replays of `tune` do.

The rank is over all allocators and settings, the recorded one included. Spearman's counts settings that the program's
own runs cannot tell apart as if they had an order. So Goodman and Kruskal's gamma is given too: of the pairs in which
every run of the program under one setting is below every run under the other, the share that the replay has in the
same order, less the share in the opposite order. Two equal settings pass this test in one of 35 cases with four runs.
Pairs whose medians differ by less than 1% do not count: no user cares for their order.

    .venv/bin/python tools/service_fidelity.py --json out/services.json --markdown docs/results/services-tables.md
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import scipy.stats

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fidelity
import sample_fidelity
import sample_servers
import spread_servers

from heapwright.allocators.registry import find_allocators, get_allocator
from heapwright.measure.meter import MeterOptions
from heapwright.trace.replay import ReadyTrace, environment, make_ready, replay_once

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = {
    "glibc": ("glibc", {}),
    "glibc arena_max=1": ("glibc", {"arena_max": "1"}),
    "glibc trim_threshold=64K": ("glibc", {"trim_threshold": "65536"}),
    "jemalloc": ("jemalloc", {}),
    "jemalloc decay 500 ms": ("jemalloc", {"dirty_decay_ms": "500"}),
    "jemalloc decay 0": ("jemalloc", {"dirty_decay_ms": "0"}),
    "tcmalloc": ("tcmalloc", {}),
    "mimalloc2-nothp": ("mimalloc2-nothp", {}),
    "exgen": ("exgen", {}),
    "reaper": ("reaper", {}),
}
METRICS = ("mean", "idle")
MATTERS = 0.01  # relative difference of medians, below which an order does not matter
BEFORE_END_S = 0.7  # when services without a load of ours are idle; on a busy machine, a process takes long to end
# The malloc that a program is linked with, where it is not glibc's.
OWN = {"redis": "jemalloc", "redis-churn": "jemalloc"}


def services(folder: Path) -> list[fidelity.Program]:
    """Builds and lists the services."""
    source = ROOT / "tests/programs/paused_service.cpp"
    subprocess.run(["g++", "-O2", "-pthread", "-o", folder / "paused_service", source], check=True)
    found = [p for p in sample_servers.servers(folder) if not p.name.startswith("bench-")]
    found += [
        # As it is run: with Python's own arenas.
        fidelity.Program("python3-http-arenas", ["/usr/bin/python3", "http_server.py"], {"PYTHONHASHSEED": "0"}, True),
        fidelity.Program("peaks and pauses", [str(folder / "paused_service"), "pool"], {}, True),
        fidelity.Program("threads that exit", [str(folder / "paused_service"), "exiting"], {}, True),
        fidelity.Program(
            "peaks, 10 threads exit", [str(folder / "paused_service"), "exiting", "3", "2500", "10"], {}, True
        ),
        fidelity.Program("peaks of other sizes", [str(folder / "paused_service"), "shifting"], {}, True),
    ]
    found += spread_servers.spread_servers(folder)
    sample_servers.LOADS["python3-http-arenas"] = sample_servers.http_load
    return found


def variables(program: fidelity.Program, config: str) -> dict[str, str]:
    """Returns the whole environment of a configuration."""
    name, settings = CONFIGS[config]
    allocator = get_allocator(name)
    env = environment(allocator, settings, {**os.environ, "LC_ALL": "C", **program.env})
    if program.name in OWN and not allocator.preload:
        env["LD_PRELOAD"] = str(allocator.path)  # otherwise the program would have its own
    return env


def study(program: fidelity.Program, args: argparse.Namespace, configs: list[str]) -> dict[str, Any]:
    """Measures a service and the replays of its recording.

    Args:
        program: The service.
        args: Of the command line.
        configs: Names of configurations.

    Returns:
        The memory of the program and of the replay by configuration, in bytes.
    """
    trace = args.folder / f"{program.name.replace(' ', '-')}.hwt"
    if not (args.keep and trace.exists()):
        fidelity.record(program, args.folder, trace)
    found: dict[str, Any] = {"program": {}, "replay": {}}
    for config in configs:
        runs = [run(program, variables(program, config), args.folder) for _ in range(args.rounds)]
        found["program"][config] = {m: statistics.median(r[m] for r in runs) for m in METRICS}
        found["program"][config]["runs"] = {m: [r[m] for r in runs] for m in METRICS}
    found["replay"] = replays(program, trace, configs)
    return found


def run(program: fidelity.Program, env: dict[str, str], folder: Path) -> dict[str, float]:
    """Runs a service once. Returns peak, mean and idle memory in bytes.

    Args:
        program: The service.
        env: The whole environment.
        folder: Where it runs.
    """
    if program.name in sample_servers.LOADS:
        return sample_servers.run_program(program, env, folder)
    readings: list[tuple[float, int]] = []
    found = sample_servers.run_program(program, env, folder, readings)
    end = readings[-1][0] - BEFORE_END_S
    return {**found, "idle": float(next(bytes_ for at, bytes_ in reversed(readings) if at <= end))}


def replays(program: fidelity.Program, trace: Path, configs: list[str]) -> dict[str, dict[str, float]]:
    """Replays a recording once under each configuration, and returns its memory."""
    with make_ready(trace) as ready:
        return {c: replayed(ready, c, program.name in sample_servers.LOADS) for c in configs}


def replayed(ready: ReadyTrace, config: str, loaded: bool) -> dict[str, float]:
    """Replays once under a configuration, and returns its memory.

    Args:
        ready: The recording.
        config: The name of the configuration.
        loaded: Whether a load of ours pauses, and so tells when the service is idle.
    """
    name, settings = CONFIGS[config]
    allocator = get_allocator(name)
    env = environment(allocator, settings, os.environ)
    if ready.linked_malloc and name != "jemalloc":
        env["LD_PRELOAD"] = f"{allocator.preload or allocator.path}:{ready.linked_malloc}"
    done = replay_once(ready, MeterOptions(), env)
    found = sample_fidelity.memory_of(done, loaded)
    if loaded or done.report is None:
        return found
    left = BEFORE_END_S * 1e9
    for reading in reversed(done.report.readings):
        if left <= 0:
            break
        left -= reading.recorded_ns
    return {**found, "idle": float(reading.resident_bytes - done.report.own_rss_bytes)}


def errors(result: dict[str, Any], metric: str, own: str) -> dict[str, float]:
    """The relative errors of the predictions, by configuration.

    Args:
        result: A result of `study`.
        metric: Of METRICS.
        own: The configuration that was recorded.
    """
    program, replay = result["program"], result["replay"]
    base = program[own][metric] - replay[own][metric]
    return {c: (replay[c][metric] + base) / program[c][metric] - 1 for c in program if c != own}


def rank(result: dict[str, Any], metric: str) -> float:
    """Spearman's rho between program and replay over the configurations."""
    configs = list(result["program"])
    program, replay = ([float(result[side][c][metric]) for c in configs] for side in ("program", "replay"))
    return float(scipy.stats.spearmanr(program, replay).statistic)


def gamma(result: dict[str, Any], metric: str) -> tuple[float, int, int]:
    """Goodman and Kruskal's gamma over the pairs that the program's own runs tell apart.

    Args:
        result: A result of `study`.
        metric: Of METRICS.

    Returns:
        Gamma, how many of these pairs the replay has in the program's order, and how many there are.
    """
    runs = {c: v["runs"][metric] for c, v in result["program"].items()}
    replay = {c: v[metric] for c, v in result["replay"].items()}
    middle = {c: statistics.median(found) for c, found in runs.items()}
    pairs = itertools.permutations(runs, 2)
    apart = [(a, b) for a, b in pairs if max(runs[a]) < min(runs[b]) and middle[b] > (1 + MATTERS) * middle[a]]
    same = sum(replay[a] < replay[b] for a, b in apart)
    return (2 * same - len(apart)) / len(apart) if apart else math.nan, same, len(apart)


def table(results: dict[str, Any], configs: list[str]) -> str:
    """Formats the results as Markdown."""
    lines = []
    for metric in METRICS:
        lines += [
            f"{metric} resident memory in MiB: program / prediction",
            "",
            "| service | " + " | ".join(configs) + " | Spearman | gamma | in order |",
            "|---|" + "--:|" * (len(configs) + 3),
        ]
        for name, result in results.items():
            own = OWN.get(name, "glibc")
            base = result["program"][own][metric] - result["replay"][own][metric]
            cells = [
                f"{result['program'][c][metric] / 2**20:.1f} / {(result['replay'][c][metric] + base) / 2**20:.1f}"
                for c in configs
            ]
            value, same, apart = gamma(result, metric)
            ranks = f"{rank(result, metric):+.2f} | {value:+.2f} | {same} of {apart}"
            lines.append(f"| {name} | " + " | ".join(cells) + f" | {ranks} |")
        sizes = [e for n, r in results.items() for e in errors(r, metric, OWN.get(n, "glibc")).values()]
        within = sum(abs(e) <= 0.1 for e in sizes)
        high = fidelity.percentile([abs(e) for e in sizes], 0.95)
        lines += [
            "",
            f"Errors of {metric} memory: median {100 * statistics.median(map(abs, sizes)):.1f}%, 95th percentile"
            f" {100 * high:.1f}%, largest {100 * max(map(abs, sizes)):.1f}%; {within} of {len(sizes)} within 10%.",
            "",
        ]
    return "\n".join(lines)


def main() -> None:
    """Measures the services that the command line names, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="services (default: all)")
    parser.add_argument("--rounds", type=int, default=4, help="runs of the program for each configuration")
    parser.add_argument("--folder", type=Path, default=Path("out/services"), help="where traces go")
    parser.add_argument("--keep", action="store_true", help="use traces that exist")
    parser.add_argument("--replay", action="store_true", help="only replay; runs of the programs stay as in --json")
    parser.add_argument("--json", type=Path, help="results; those of services not named stay")
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    args.folder = args.folder.resolve()
    args.folder.mkdir(parents=True, exist_ok=True)
    configs = [c for c, (name, _) in CONFIGS.items() if name in find_allocators()]
    results = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    for program in services(args.folder):
        if args.names and program.name not in args.names:
            continue
        began = time.monotonic()
        if args.replay:
            trace = args.folder / f"{program.name.replace(' ', '-')}.hwt"
            results[program.name]["replay"] = replays(program, trace, configs)
        else:
            results[program.name] = study(program, args, configs)
        print(f"{program.name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
        if args.json:
            args.json.write_text(json.dumps(results, indent=1))
    text = table(results, configs)
    if args.markdown:
        args.markdown.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
