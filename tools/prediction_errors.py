#!/usr/bin/env python3
"""Compares predictions from recordings alone with the truth: the figures in docs/results/predictions.md.

For each workload file the tool records the program, completely and as a sample, and measures the program under some
mallocs and settings. Then it predicts the same changes from the recordings, as `compare --trace` and `tune --trace` do.
An error is the log of the true ratio less that of the predicted one. The interval of a prediction is as wide as the
largest error of any program; of each program the tool tells what share of its changes the largest error of the others
covers.

    .venv/bin/python tools/prediction_errors.py tools/prediction_services/*.toml --rounds 2 \\
        --folder out/predictions --json out/predictions.json --markdown out/predictions.md

The services need pip's fastapi, uvicorn, flask and gunicorn on PATH, g++, and Debian's nodejs, redis, memcached,
mosquitto, nginx-light, apache2-utils, slapd, ldap-utils, mariadb-server and sysbench. The tool must run as root.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from heapwright.allocators.registry import find_allocators, get_allocator
from heapwright.interleaving.replays import recorded_replays
from heapwright.measure.meter import MeterOptions
from heapwright.study.usual_error import MAX_MISFIT
from heapwright.trace.recordings import as_replayed, read_recordings, recorded_workload
from heapwright.trace.replay import environment

METRICS = {"peak_rss_bytes": "peak", "mean_rss_bytes": "mean"}
KINDS: dict[str, list[str]] = {"complete": [], "sample": ["--sample", "16"]}
DEFAULT = "default"
SETTINGS: dict[str, tuple[str, dict[str, str]]] = {
    "arena_max=1": ("glibc", {"arena_max": "1"}),
    "mmap_threshold=32K": ("glibc", {"mmap_threshold": "32768"}),
    "trim_threshold=64K": ("glibc", {"trim_threshold": "65536", "top_pad": "0"}),
    "all three": ("glibc", {"arena_max": "1", "mmap_threshold": "32768", "tcache_max": "24"}),
    "jemalloc": ("jemalloc", {}),
    "mimalloc2-nothp": ("mimalloc2-nothp", {}),
    "exgen": ("exgen", {}),
    "reaper": ("reaper", {}),
}
HEAPWRIGHT = [sys.executable, "-c", "import sys; from heapwright.cli.main import main; sys.exit(main())"]


def heapwright(*words: object) -> None:
    """Runs the command; its messages are shown."""
    subprocess.run([*HEAPWRIGHT, *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def variables(setting: str, recordings: Any) -> dict[str, str]:
    """The environment variables of a setting, for a program with the malloc of these recordings."""
    if setting == DEFAULT:
        return {}
    name, settings = SETTINGS[setting]
    return environment(as_replayed(get_allocator(name), recordings), settings, {})


def predicted(trace: Path, settings: list[str]) -> dict[str, Any]:
    """Predicts the program's memory (bytes) under each setting from one recording."""
    workload = recorded_workload([trace])
    recordings = read_recordings(workload)
    [input_] = workload.inputs
    found: dict[str, Any] = {}
    with recorded_replays(workload, MeterOptions(), recordings.program_memory) as replays:
        for setting in settings:
            outcome = replays.run(input_, variables(setting, recordings))
            if not outcome.failure:
                found[setting] = {m: outcome.run.metrics[m] for m in METRICS}
    recording = recordings.inputs[input_.name]
    facts = {
        "reference": recordings.reference,
        "rate": recording.rate,
        "threads": recording.threads,
        "forked": recording.forked,
    }
    return {**facts, "misfit": replays.misfits.get(input_.name), "memory": found}


def measured(workload: Path, trace: Path, settings: list[str], folder: Path) -> dict[str, dict[str, float]]:
    """Measures the program once under each setting: setting → metric → bytes."""
    recordings, result, found = read_recordings(recorded_workload([trace])), folder / "run.json", {}
    for setting in settings:
        env = [word for k, v in variables(setting, recordings).items() for word in ("--env", f"{k}={v}")]
        heapwright("measure", "-q", "--meter", "poll", "--workload", workload, *env, "--json", result)
        [run] = json.loads(result.read_text())["runs"]
        found[setting] = {m: run[m] for m in METRICS}
    return found


def errors(result: dict[str, Any], kind: str, metric: str) -> dict[str, tuple[float, float]]:
    """Setting → (log of the predicted ratio, log of the true ratio)."""
    memory = result[kind]["memory"]
    true = {s: statistics.median(run[metric] for run in runs) for s, runs in result["program"].items() if runs}
    both = [s for s in true if s in memory and s != DEFAULT]
    return {s: (math.log(memory[s][metric] / memory[DEFAULT][metric]), math.log(true[s] / true[DEFAULT])) for s in both}


def several(result: dict[str, Any], kind: str) -> bool:
    """Whether the program has several threads, or is one of several processes."""
    return bool(result[kind]["threads"] > 1 or result[kind]["forked"])


def table(results: dict[str, Any], kind: str, metric: str) -> list[str]:
    """One row a service: predicted and true change under each setting, in per cent."""
    lines = [
        f"{METRICS[metric].capitalize()} resident memory, {kind} recordings: change predicted / true, in %",
        "",
        "| service | " + " | ".join(SETTINGS) + " | largest error |",
        "|---|" + "--:|" * (len(SETTINGS) + 1),
    ]
    for name, result in results.items():
        found = errors(result, kind, metric)
        cells = [
            " / ".join(f"{100 * math.expm1(x):+.1f}" for x in found[s]).replace("-", "−") if s in found else ""
            for s in SETTINGS
        ]
        worst = max(abs(math.expm1(t - p)) for p, t in found.values())
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {100 * worst:.1f} |")
    return [*lines, ""]


def excess(result: dict[str, Any], kind: str, same: bool) -> list[float]:
    """The errors beyond the misfit, by which the interval is wider anyway; empty if a prediction is refused.

    Args:
        result: of one program.
        kind: of the recording.
        same: for settings of the recorded malloc; otherwise for other mallocs.
    """
    misfit = result[kind]["misfit"] or 0.0
    if misfit > MAX_MISFIT:
        return []
    pairs = [
        pair
        for metric in METRICS
        for setting, pair in errors(result, kind, metric).items()
        if (SETTINGS[setting][0] == result[kind]["reference"]) == same
    ]
    return [max(0.0, abs(t - p) - math.log1p(misfit)) for p, t in pairs]


def coverage(results: dict[str, Any]) -> list[str]:
    """The largest errors, and what share of each program's changes the errors of the others cover."""
    lines = [
        "| recording | program | change | programs | changes | median error | largest | covered by the others' |",
        "|---|---|---|--:|--:|--:|--:|--:|",
    ]
    for kind, threads, same in itertools.product(KINDS, (False, True), (True, False)):
        sizes = {
            name: found
            for name, result in results.items()
            if several(result, kind) == threads and (found := excess(result, kind, same))
        }
        if not sizes:
            continue
        pooled = [size for found in sizes.values() for size in found]
        others = {n: max((max(f) for other, f in sizes.items() if other != n), default=0.0) for n in sizes}
        inside = sum(size <= others[name] for name, own in sizes.items() for size in own)
        whose = "several threads or processes" if threads else "one thread"
        change = "settings" if same else "another malloc"
        largest, median = (100 * math.expm1(f(pooled)) for f in (max, statistics.median))
        covered = f"{inside} of {len(pooled)}" if len(sizes) > 1 else "n/a"
        counts = f"{len(sizes)} | {len(pooled)} | {median:.1f}% | {largest:.1f}% | {covered}"
        lines.append(f"| {kind} | {whose} | {change} | {counts} |")
    return [*lines, ""]


def misfits(results: dict[str, Any]) -> list[str]:
    """One row a service: further facts of its recordings."""
    lines = [
        "| service | threads | forked | rate of the sample | misfit, complete | misfit, sample |",
        "|---|--:|---|--:|--:|--:|",
    ]
    for name, result in results.items():
        found = ["n/a" if result[kind]["misfit"] is None else f"{100 * result[kind]['misfit']:.1f}%" for kind in KINDS]
        whole, sample = result["complete"], result["sample"]
        forked = "yes" if whole["forked"] else "no"
        found = [
            f"{text} (refused)" if (result[k]["misfit"] or 0) > MAX_MISFIT else text
            for k, text in zip(KINDS, found, strict=True)
        ]
        lines.append(f"| {name} | {whole['threads']} | {forked} | {sample['rate']} | {' | '.join(found)} |")
    return [*lines, ""]


def main() -> None:
    """Measures and predicts for the workload files that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="+", type=Path, help="workload files; a result has the name of its file")
    parser.add_argument("--rounds", type=int, default=1, help="further runs of the program under each setting")
    parser.add_argument("--folder", type=Path, default=Path("out/predictions"), help="keeps the recordings")
    parser.add_argument("--json", type=Path, required=True, help="results; those that it has already stay")
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    settings = [DEFAULT, *(s for s, (name, _) in SETTINGS.items() if name in find_allocators())]
    results: dict[str, Any] = json.loads(args.json.read_text()) if args.json.exists() else {}
    for workload in args.workloads:
        result = results.setdefault(workload.stem, {"program": {s: [] for s in settings}})
        traces = {kind: args.folder / f"{workload.stem}.{kind}.hwt" for kind in KINDS}
        for kind, options in KINDS.items():
            if not traces[kind].exists():
                heapwright("record", "-q", *options, "-o", traces[kind], "--workload", workload)
            result[kind] = predicted(traces[kind], settings)
        for _ in range(args.rounds):
            for setting, run in measured(workload, traces["complete"], settings, args.folder).items():
                result["program"][setting].append(run)
        temporary = args.json.with_suffix(".tmp")
        temporary.write_text(json.dumps(results, indent=1))
        temporary.replace(args.json)
        print(f"{workload.stem}: done", file=sys.stderr)
    results = {name: result for name, result in results.items() if set(KINDS) <= set(result)}
    lines = [*coverage(results), *misfits(results)]
    lines += [line for kind in KINDS for metric in METRICS for line in table(results, kind, metric)]
    text = "\n".join(lines)
    if args.markdown:
        args.markdown.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
