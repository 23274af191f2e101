"""Runs programs under `heapwright compare` and prints tables of the results; shared by the tools that compare programs.

A program is given as the words that `compare` takes after its options: `-- COMMAND...`, or
`--workload FILE`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HEAPWRIGHT = Path(sys.executable).parent / "heapwright"
LABELS = {
    "wall_s": "wall time",
    "cpu_s": "CPU time",
    "peak_rss_bytes": "peak RSS",
    "mean_rss_bytes": "mean RSS",
    "instructions": "instructions",
}


def add_options(parser: argparse.ArgumentParser, allocators: str, folder: str, rounds: int) -> None:
    """Adds the options that all these tools share.

    Args:
        parser: The parser to add to.
        allocators: Default of --allocators, separated by commas, the reference first.
        folder: Default of --folder, for inputs and results.
        rounds: Default of --rounds.
    """
    parser.add_argument("--allocators", default=allocators, help="the reference first")
    parser.add_argument("--folder", type=Path, default=Path(folder))
    parser.add_argument("--programs", help="only these, separated by commas (default: all installed ones)")
    parser.add_argument("-n", "--rounds", type=int, default=rounds)
    parser.add_argument("--resume", action="store_true", help="do not run programs again whose results are in --folder")


def compare(
    name: str, words: Sequence[str], folder: Path, allocators: str, rounds: int, callgrind: bool = False
) -> dict[str, Any]:
    """Runs one program under all allocators.

    Args:
        name: The program's name, for messages.
        words: The program as `compare` takes it.
        folder: Where to run it.
        allocators: Names separated by commas, the reference first.
        rounds: How many rounds to run.
        callgrind: Whether to count instructions with callgrind.

    Returns:
        The JSON of `compare` for each allocator.
    """
    options = ["-q", "-n", str(rounds), "--allocators", allocators, "--json", "-"]
    options += ["--instructions", "callgrind"] if callgrind else []
    environment = {**os.environ, "LC_ALL": "C"}
    command = [str(HEAPWRIGHT), "compare", *options, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    if not done.stdout:
        raise SystemExit(f"{name}: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)["allocators"]
    return found


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of ratios above 0."""
    return math.exp(sum(map(math.log, values)) / len(values))


def _ratio(found: Mapping[str, Any], allocator: str, reference: str, metric: str) -> dict[str, float] | None:
    """The ratio to the reference; without an interval if there is one round only, as for instructions."""
    ratio: dict[str, float] | None = found[allocator]["ratio"].get(metric)
    both = [found[name]["summary"].get(metric) for name in (allocator, reference)]
    if ratio is None and all(both):
        return {"value": both[0]["median"] / both[1]["median"]}
    return ratio


def _cell(found: Mapping[str, Any], allocator: str, reference: str, metric: str) -> str:
    ratio = _ratio(found, allocator, reference, metric)
    if ratio is None:
        return found[allocator].get("failure") or "n/a"
    if ratio.get("low") is None:  # one round has no interval
        return f"{ratio['value']:.3f}"
    return f"{ratio['value']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"


def _mean(results: Mapping[str, Mapping[str, Any]], allocator: str, reference: str, metric: str) -> str:
    """The mean over the programs that ran under the allocator, with their number if some did not."""
    ratios = [_ratio(found, allocator, reference, metric) for found in results.values()]
    values = [ratio["value"] for ratio in ratios if ratio]
    if not values:
        return "n/a"
    return f"**{geometric_mean(values):.3f}**" + ("" if len(values) == len(ratios) else f" ({len(values)})")


def report(programs: Mapping[str, Sequence[str]], args: argparse.Namespace, metrics: Sequence[str]) -> None:
    """Runs all programs and prints Markdown: a table for each metric, with geometric means.

    The folder keeps the output of `compare` for each program in NAME.json, with the load after it as `load`.

    Args:
        programs: Each program's words, by name.
        args: The parsed options of `add_options`.
        metrics: The keys of the metrics to print.
    """
    results: dict[str, dict[str, Any]] = {}
    loads: list[float] = []
    for name, words in programs.items():
        kept = args.folder / f"{name}.json"
        if not (args.resume and kept.exists()):
            print(f"{name} ", end="", file=sys.stderr, flush=True)
            found = compare(name, words, args.folder, args.allocators, args.rounds, "instructions" in metrics)
            kept.write_text(json.dumps({"allocators": found, "load": os.getloadavg()[0]}))
        said = json.loads(kept.read_text())
        results[name] = said["allocators"]
        loads.append(said["load"])
    reference, *others = (Path(name).name for name in args.allocators.split(","))  # `compare` calls a path by its name
    load = f"{min(loads):.1f} to {max(loads):.1f}"
    print(f"\n{args.rounds} rounds; load (of 1 minute, after each program) {load}, this program's own included.")
    for metric in metrics:
        print(f"\n**{LABELS[metric]}, ratio to {reference}**\n")
        print("| program | " + " | ".join(others) + " |\n|---" + "|---" * len(others) + "|")
        for name, found in results.items():
            print(f"| {name} | " + " | ".join(_cell(found, other, reference, metric) for other in others) + " |")
        means = (_mean(results, other, reference, metric) for other in others)
        print("| geometric mean | " + " | ".join(means) + " |")
