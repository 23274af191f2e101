#!/usr/bin/env python3
"""Measures how well a sample of a program's objects stands in for it: the figures in docs/results/sample.md.

Runs servers under a load with pauses, and other programs, under every allocator, and records each of them
completely under glibc's malloc. Then draws samples of the recording, and replays under every allocator the
recording, each sample (which the replay expands) and a model fitted to the first sample. It compares peak, mean and
idle resident memory. Idle memory is that at the end of the longest time without an event, of programs that pause.

The error of a stand-in is relative to the replay of the whole recording. The prediction for the program itself is
stand-in + base, where base is the program less the replay of the recording, both under glibc's malloc
(tools/fidelity.py). So glibc's malloc is not in the statistics of predictions of the program.

    .venv/bin/python tools/sample_fidelity.py --json out/sample.json --markdown out/sample.md
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
import sample_servers
from synth_fidelity import spread

import programs
from heapwright.allocators.registry import get_allocator
from heapwright.measure.meter import MeterOptions
from heapwright.trace.info import read_info
from heapwright.trace.model import fit, synthesise
from heapwright.trace.pack import native_program
from heapwright.trace.replay import ReplayRun, environment, make_ready, replay_once

ALLOCATORS = ("glibc", "jemalloc", "mimalloc2-nothp", "tcmalloc", "exgen", "reaper")
OTHERS = ("perl", "xmllint", "python3-malloc", "sqlite3", "z3", "cc1plus")
# Not on the page's list, so that the expansion of samples is not tuned to the list: --held-out
# measures only these.
HELD_OUT = ("python3-threads", "gawk", "jq")
# Only these have idle memory.
PAUSING = (*sample_servers.LOADS, "sessions")
MEMORY = {"peak": "peak RSS", "mean": "mean RSS", "idle": "idle RSS"}


def memory_of(replayed: ReplayRun, pauses: bool) -> dict[str, float]:
    """Peak, mean and, of a program that pauses, idle memory of a replay, without the replayer's own tables."""
    if replayed.failure or replayed.report is None:
        raise SystemExit(replayed.failure)
    found, readings = replayed.metrics(), replayed.report.readings
    memory = {"peak": found["peak_rss_bytes"] or 0.0, "mean": found["mean_rss_bytes"] or 0.0}
    if pauses:
        pause = max(readings, key=lambda r: r.recorded_ns)
        memory["idle"] = float(pause.resident_bytes - replayed.report.own_rss_bytes)
    return memory


def replays(trace: Path, allocators: list[str], pauses: bool) -> dict[str, dict[str, float]]:
    """Replays a trace once under each allocator, and returns its memory. See `memory_of`."""
    with make_ready(trace) as ready:
        return {
            a: memory_of(replay_once(ready, MeterOptions(), environment(get_allocator(a), {}, os.environ)), pauses)
            for a in allocators
        }


def study(program: fidelity.Program, args: argparse.Namespace, allocators: list[str]) -> dict[str, Any]:
    """Runs a program under all allocators and replays its recording, samples of it and a model.

    Args:
        program: The program.
        args: Of the command line.
        allocators: The names of the allocators.

    Returns:
        Peak live bytes and replays of each trace, by name; the program's own memory by allocator.
    """
    trace = args.folder / f"{program.name}.hwt"
    if not (args.keep and trace.exists()):
        fidelity.record(program, args.folder, trace)
    traces = {"trace": trace}
    for seed in range(args.samples):
        sample = args.folder / f"{program.name}.sample{seed}.hwt"
        words = ("sample", trace, "-o", sample, "-n", str(args.rate), "--seed", str(seed))
        subprocess.run([native_program("heapwright-trace"), *words], check=True, stdout=subprocess.DEVNULL)
        traces[f"sample {seed}"] = sample
    model, _ = fit(traces["sample 0"])
    traces["model"] = args.folder / f"{program.name}.model.hwt"
    synthesise(model, traces["model"])
    found: dict[str, Any] = {"live": {}, "events": {}, "replays": {}, "program": {}}
    for name, path in traces.items():
        info, _ = read_info(path)
        found["live"][name], found["events"][name] = info.peak_live_bytes, info.events
        found["replays"][name] = replays(path, allocators, program.name in PAUSING)
    found["bytes"] = {name: path.stat().st_size for name, path in traces.items()}
    info, _ = read_info(traces["sample 0"])
    found["error"] = info.sample.peak_share if info.sample else None
    for allocator in allocators if not args.no_programs else []:
        base = {**os.environ, "LC_ALL": "C", **program.env}
        env = environment(get_allocator(allocator), {}, base)
        runs = [sample_servers.run_program(program, env, args.folder) for _ in range(args.rounds)]
        found["program"][allocator] = {m: statistics.median(r[m] for r in runs) for m in MEMORY}
    return found


def errors(result: dict[str, Any], name: str, metric: str) -> dict[str, float]:
    """The relative errors of the replay of a stand-in by allocator, compared with the replay of the whole recording.

    Idle memory has none for a program without a pause.

    Args:
        result: A result of `study`.
        name: The name of the stand-in.
        metric: A key of MEMORY.
    """
    whole = result["replays"]["trace"]
    played = result["replays"][name]
    return {a: played[a][metric] / whole[a][metric] - 1 for a in whole if metric in whole[a]}


def program_errors(result: dict[str, Any], name: str, metric: str) -> dict[str, float]:
    """The relative errors of the prediction of the program itself, by allocator; without glibc, which gives the base.

    Args:
        result: A result of `study`.
        name: The name of the stand-in, or 'trace' for the whole recording.
        metric: A key of MEMORY.
    """
    own, played = result["program"], result["replays"]
    if "glibc" not in own:
        return {}
    if metric not in played["trace"]["glibc"]:
        return {}
    base = own["glibc"][metric] - played["trace"]["glibc"][metric]
    return {a: (played[name][a][metric] + base) / own[a][metric] - 1 for a in own if a != "glibc"}


def summary(sizes: list[float]) -> str:
    """Formats the median, the 95th percentile and the largest of absolute errors, and how many are within 5%."""
    if not sizes:
        return "n/a | n/a | n/a | n/a"
    middle, largest, within = spread(sizes).split(" | ")
    high = fidelity.percentile([abs(s) for s in sizes], 0.95)
    return f"{middle} | {100 * high:.1f}% | {largest} | {within}"


def table(results: dict[str, Any], rate: int) -> str:
    """Formats the tables as Markdown.

    Args:
        results: The results of `study` by program.
        rate: Of the samples.
    """
    lines = [
        f"| program | events | peak live | sample 1/{rate}: bytes of the recording's | error of peak live | stated |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, r in results.items():
        samples = [k for k in r["live"] if k.startswith("sample")]
        off = ", ".join(f"{100 * (r['live'][k] / r['live']['trace'] - 1):+.1f}" for k in samples)
        stated = f"± {100 * r['error']:.1f}%" if r["error"] is not None else "n/a"
        share = r["bytes"]["sample 0"] / r["bytes"]["trace"]
        lines.append(
            f"| {name} | {r['events']['trace']:,} | {r['live']['trace'] / 2**20:.1f} MiB | {share:.1%} | {off}% "
            f"| {stated} |"
        )
    for metric, label in MEMORY.items():
        if not any(errors(r, "sample 0", metric) for r in results.values()):
            continue
        lines += ["", f"{label} of the replay of the first sample, relative to the replay of the whole recording:", ""]
        names = list(next(iter(results.values()))["replays"]["trace"])
        lines += [f"| program | {' | '.join(names)} |", "|---|" + "--:|" * len(names)]
        for name, r in results.items():
            cells = [f"{100 * e:+.1f}%" for e in errors(r, "sample 0", metric).values()]
            if not cells:
                continue
            lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", "| relative to the replay of the recording | median error | 95% | largest | within 5% |"]
    lines.append("|---|--:|--:|--:|--:|")
    for metric, label in MEMORY.items():
        every = [
            e for r in results.values() for k in r["replays"] if "sample" in k for e in errors(r, k, metric).values()
        ]
        model = [e for r in results.values() for e in errors(r, "model", metric).values()]
        lines += [f"| {label}, samples | {summary(every)} |", f"| {label}, model of a sample | {summary(model)} |"]
    every = [
        e
        for r in results.values()
        for m in MEMORY
        for k in r["replays"]
        if "sample" in k
        for e in errors(r, k, m).values()
    ]
    model = [e for r in results.values() for m in MEMORY for e in errors(r, "model", m).values()]
    lines += [f"| all, samples | {summary(every)} |", f"| all, model of a sample | {summary(model)} |"]
    lines += ["", "| relative to the program itself | median error | 95% | largest | within 5% |"]
    lines.append("|---|--:|--:|--:|--:|")
    for kind, label in (("trace", "whole recording"), ("sample 0", "sample"), ("model", "model of a sample")):
        for metric in MEMORY:
            found = [e for r in results.values() for e in program_errors(r, kind, metric).values()]
            lines.append(f"| {MEMORY[metric]}, {label} | {summary(found)} |")
    return "\n".join(lines) + "\n"


def held_out(folder: Path) -> list[fidelity.Program]:
    """Prepares the programs that are held out: one of our own, and some of Debian's."""
    source, built = Path(__file__).resolve().parent / "sessions.cpp", (folder / "sessions").resolve()
    subprocess.run(["g++", "-std=c++20", "-O2", "-pthread", "-o", built, source], check=True)
    known = [p for p in fidelity.known_programs(folder) if p.name in HELD_OUT]
    return [fidelity.Program("sessions", [str(built)], {}, True), *known]


def main() -> None:
    """Measures all programs and prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-n", "--rounds", type=int, default=1, help="runs of each program under each allocator")
    parser.add_argument("--rate", type=int, default=64)
    parser.add_argument("--samples", type=int, default=2, help="samples of each recording")
    parser.add_argument("--folder", type=Path, default=Path("out/sample"))
    parser.add_argument("--programs", default="", help="only these, separated by commas")
    parser.add_argument("--held-out", action="store_true", help="measure the programs that are held out instead")
    parser.add_argument("--allocators", default=",".join(ALLOCATORS))
    parser.add_argument("--keep", action="store_true", help="use recordings that are in the folder")
    parser.add_argument(
        "--no-programs", action="store_true", help="only replay; keep the measurements of the programs that --json has"
    )
    parser.add_argument("--json", type=Path, help="file for all measurements, written after each program; continued")
    parser.add_argument("--show", action="store_true", help="measure nothing: print the tables of the file --json")
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = json.loads(args.json.read_text()) if args.json and args.json.is_file() else {}
    if not args.show:
        programs.make_inputs(args.folder)
        if args.held_out:
            listed = held_out(args.folder)
        else:
            known = [p for p in fidelity.known_programs(args.folder) if p.name in OTHERS]
            listed = [*sample_servers.servers(args.folder), *known]
        for program in listed:
            if args.programs and program.name not in args.programs.split(","):
                continue
            before = results.get(program.name, {})
            results[program.name] = study(program, args, args.allocators.split(","))
            if args.no_programs:
                results[program.name]["program"] = before.get("program", {})
            print(f"{program.name} ", end="", file=sys.stderr, flush=True)
            if args.json:
                args.json.write_text(json.dumps(results, indent=1))
    text = table(results, args.rate)
    if args.markdown:
        args.markdown.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
