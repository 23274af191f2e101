#!/usr/bin/env python3
"""Measures how well a fitted model reproduces its trace: the figures in docs/results/synth.md.

Records each program of tools/fidelity.py once and fits two models: one of windows, and one like
rand_malloc. Then makes a synthetic trace from each, and replays all three traces under every
allocator, interleaved. It compares the traces' peaks of live bytes and the replays' resident memory
(without the replayer's own part), as medians over the rounds.

    .venv/bin/python tools/synth_fidelity.py -n 3 --json out/synth.json --markdown out/synth.md
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fidelity

import programs
from heapwright.allocators.registry import get_allocator
from heapwright.measure.meter import MeterOptions
from heapwright.trace.info import read_info
from heapwright.trace.model import Kind, fit, synthesise, to_text
from heapwright.trace.replay import environment, make_ready, replay_once

ALLOCATORS = ("glibc", "jemalloc", "tcmalloc", "mimalloc2-nothp", "rpmalloc", "exgen")
KINDS: tuple[Kind, ...] = ("windows", "rand-malloc")
MEMORY = {"peak_rss_bytes": "peak RSS", "mean_rss_bytes": "mean RSS"}


def study(program: fidelity.Program, allocators: list[str], folder: Path, rounds: int) -> dict[str, Any]:
    """Records a program, fits both models, synthesises their traces, and replays all three.

    Args:
        program: The program.
        allocators: The names of the allocators.
        folder: The folder of inputs and traces.
        rounds: How many times to replay each trace under each allocator.

    Returns:
        Peak live bytes, events and replays of each trace, and the size of each model, by name.
    """
    trace = folder / f"{program.name}.hwt"
    fidelity.record(program, folder, trace)
    traces = {"trace": trace}
    found: dict[str, Any] = {"live": {}, "events": {}, "model_bytes": {}, "replays": {}}
    for kind in KINDS:
        model, _ = fit(trace, kind)
        found["model_bytes"][kind] = len(to_text(model))
        traces[kind] = folder / f"{program.name}.{kind}.hwt"
        synthesise(model, traces[kind])
    for name, path in traces.items():
        info, _ = read_info(path)
        found["live"][name], found["events"][name] = info.peak_live_bytes, info.events
        runs: dict[str, list[dict[str, float]]] = {a: [] for a in allocators}
        with make_ready(path) as ready:
            for _ in range(rounds):
                for allocator in allocators:
                    env = environment(get_allocator(allocator), {}, os.environ)
                    replayed = replay_once(ready, MeterOptions(), env)
                    if replayed.failure or replayed.report is None:
                        raise SystemExit(f"{path} under {allocator}: {replayed.failure}")
                    metrics = replayed.metrics()
                    told = {m: metrics[m] or 0.0 for m in MEMORY}
                    runs[allocator].append({**told, "calls_cpu_s": replayed.report.calls_cpu_s})
        found["replays"][name] = {
            allocator: {m: statistics.median(r[m] for r in done) for m in done[0]} for allocator, done in runs.items()
        }
    return found


def error(result: dict[str, Any], kind: str, allocator: str, metric: str) -> float:
    """The relative error of a synthetic trace's replay, compared with the replay of the recorded trace.

    Args:
        result: A result of `study`.
        kind: The kind of the model.
        allocator: The allocator's name.
        metric: The key of the metric.
    """
    replays = result["replays"]
    return float(replays[kind][allocator][metric] / replays["trace"][allocator][metric] - 1)


def spread(values: list[float]) -> str:
    """Formats the median and the largest absolute error, and how many are within 5%."""
    sizes = sorted(abs(v) for v in values)
    within = sum(v <= 0.05 for v in sizes)
    return f"{100 * statistics.median(sizes):.1f}% | {100 * sizes[-1]:.1f}% | {within} of {len(sizes)}"


def table(results: dict[str, Any], allocators: list[str]) -> str:
    """Formats the tables as Markdown: peaks of live bytes, resident memory, and a summary."""
    lines = ["| program | events | model | peak live | windows | rand-malloc |", "|---|--:|--:|--:|--:|--:|"]
    for name, r in results.items():
        live = r["live"]
        off = [f"{100 * (live[k] / live['trace'] - 1):+.2f}%" for k in KINDS]
        size = f"{r['model_bytes']['windows'] / 1000:.0f} kB"
        lines.append(
            f"| {name} | {r['events']['trace']:,} | {size} | {live['trace'] / 2**20:.1f} MiB | {' | '.join(off)} |"
        )
    for metric, label in MEMORY.items():
        for kind in KINDS:
            lines += ["", f"{label} of the {kind} model's replay, relative to that of the trace:", ""]
            lines += [f"| program | {' | '.join(allocators)} |", "|---|" + "--:|" * len(allocators)]
            for name, r in results.items():
                cells = [f"{100 * error(r, kind, a, metric):+.1f}%" for a in allocators]
                lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", "| | median error | largest | within 5% |", "|---|--:|--:|--:|"]
    for metric, label in MEMORY.items():
        for kind in KINDS:
            errors = [error(r, kind, a, metric) for r in results.values() for a in allocators]
            lines.append(f"| {label}, {kind} | {spread(errors)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measures all programs and prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-n", "--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("out/synth"))
    parser.add_argument("--programs", default="", help="only these, separated by commas")
    parser.add_argument("--allocators", default=",".join(ALLOCATORS))
    parser.add_argument("--json", type=Path, help="file for all measurements, written after each program")
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    allocators = args.allocators.split(",")
    args.folder.mkdir(parents=True, exist_ok=True)
    programs.make_inputs(args.folder)
    results: dict[str, Any] = {}
    for program in fidelity.known_programs(args.folder):
        if args.programs and program.name not in args.programs.split(","):
            continue
        try:
            results[program.name] = study(program, allocators, args.folder, args.rounds)
        except subprocess.CalledProcessError as failed:
            raise SystemExit(f"{program.name}: {failed}") from None
        print(f"{program.name} ", end="", file=sys.stderr, flush=True)
        if args.json:
            args.json.write_text(json.dumps(results, indent=1))
    text = table(results, allocators)
    if args.markdown:
        args.markdown.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
