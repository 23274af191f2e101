#!/usr/bin/env python3
"""Measures the picks of studies of Z3 on other problems of the same kind: a table of docs/results/papers.md.

    .venv/bin/python tools/papers_transfer.py out/landscapes/greenmalloc.study --inputs 50

A problem asks for two factors of a 24-bit number below 4096, as z.smt2 of programs.py does; its number is the seed of
that product. Each problem runs once at the defaults and once under each pick. A run of a pick that fails, or whose
output differs from that at the defaults, counts as failed. The table tells the change in each metric over the problems:
its median, its range, and on how many problems it is lower, equal or higher. The folder keeps all results, and they are
not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

sys.path.insert(0, str(Path(__file__).resolve().parent))

import heapwright
from heapwright.measure.meter import MeterOptions
from heapwright.metrics import METRICS
from heapwright.report.tables import markdown_table
from heapwright.workload.execute import Executor
from heapwright.workload.model import from_command
from programs import SCRIPTS

PRODUCT = "#x7f4a15"  # in z.smt2
LIMIT = 600.0  # seconds of a run
RUNS = {  # how the peak is measured → the metrics of such a run
    "emulation": ("massif_peak_bytes", "mean_heap_bytes", "peak_rss_bytes"),
    "valgrind": ("massif_peak_bytes",),
}

Figures = dict[str, float | None]  # metric → its value; empty if the run failed


class Entry(TypedDict):
    """A run that is kept: the digest of its output, and its metrics. Both are empty if it failed."""

    digest: str
    metrics: Figures


def problem(number: int) -> str:
    """Return the SMT problem with this number, from 1 on."""
    product = random.Random(number).randrange(1 << 24)
    return SCRIPTS["z.smt2"].replace(PRODUCT, f"#x{product:06x}")


class Transfer:
    """Runs Z3 on the problems, once for each problem and environment.

    Args:
        folder: for the problems and the results.
        by: how Massif's peak is measured: 'emulation' or 'valgrind'.
    """

    def __init__(self, folder: Path, by: str) -> None:
        self.folder = folder
        self.by = by
        self.known = folder / f"{by}.json"
        self.runs: dict[str, Entry] = json.loads(self.known.read_text()) if self.known.exists() else {}

    def run(self, number: int, env: Mapping[str, str]) -> Figures:
        """Return the metrics of one run; empty if it failed or its output differs from that at the defaults."""
        entry = self._entry(number, env)
        return entry["metrics"] if entry["digest"] == self._entry(number, {})["digest"] else {}

    def _entry(self, number: int, env: Mapping[str, str]) -> Entry:
        key = json.dumps([number, dict(env)], sort_keys=True)
        if key not in self.runs:
            file = self.folder / f"{number}.smt2"
            file.write_text(problem(number))
            workload = from_command(["z3", str(file)])
            options = MeterOptions(massif=True, massif_by=self.by, timeout=LIMIT)
            outcome = Executor(workload, options, self.folder / "reference").run(workload.train[0], env)
            if outcome.failure:
                self.runs[key] = {"digest": "", "metrics": {}}
            else:
                metrics = {m: outcome.run.metrics.get(m) for m in RUNS[self.by]}
                self.runs[key] = {"digest": outcome.digest, "metrics": metrics}
            draft = self.known.with_suffix(".new")
            draft.write_text(json.dumps(self.runs))
            draft.replace(self.known)
        return self.runs[key]


def picks_of(study: Path) -> dict[str, dict[str, str]]:
    """Return the picks of a study by name, each with its environment variables; equal ones are named together."""
    names: dict[str, list[str]] = {}
    for name, pick in heapwright.open_study(study).picks.items():
        names.setdefault(json.dumps(pick.env, sort_keys=True), []).append(name)
    return {" and ".join(found): json.loads(env) for env, found in names.items()}


def row(defaults: Sequence[Figures], found: Sequence[Figures], metric: str) -> list[str]:
    """Compare a pick with the defaults in one metric.

    Args:
        defaults: the metrics of each problem at the defaults.
        found: those under the pick, in the same order.
        metric: the key of the metric.

    Returns:
        The number of problems, the median change, its range, and the numbers of lower, equal, higher and failed ones.
    """
    changes = []
    for default, figures in zip(defaults, found, strict=True):
        before, after = default.get(metric), figures.get(metric)
        if before and after is not None:
            changes.append(after / before - 1)
    failed = len(found) - len(changes)
    if not changes:
        return ["0", "n/a", "n/a", "0", "0", "0", str(failed)]
    signs = [sum(c < 0 for c in changes), sum(c == 0 for c in changes), sum(c > 0 for c in changes)]
    spread = f"[{min(changes):+.2%}, {max(changes):+.2%}]"
    return [str(len(changes)), f"{statistics.median(changes):+.2%}", spread, *map(str, signs), str(failed)]


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("studies", nargs="+", type=Path, help="studies of Z3, or of recordings of it")
    parser.add_argument("--inputs", type=int, default=50, help="how many problems")
    parser.add_argument("--massif", choices=list(RUNS), default="emulation", help="how Massif's peak is measured")
    parser.add_argument("--folder", type=Path, default=Path("out/landscapes/transfer"))
    args = parser.parse_args()
    os.environ["LC_ALL"] = "C"
    args.folder.mkdir(parents=True, exist_ok=True)
    transfer = Transfer(args.folder.resolve(), args.massif)
    numbers = range(1, args.inputs + 1)
    rows = [["study", "pick", "metric", "problems", "median", "range", "lower", "equal", "higher", "failed"]]
    defaults = [transfer.run(number, {}) for number in numbers]
    for study in args.studies:
        for name, env in picks_of(study).items():
            found = [transfer.run(number, env) for number in numbers]
            for metric in RUNS[args.massif]:
                rows.append([study.stem, name, METRICS[metric].label, *row(defaults, found, metric)])
    print("\n".join(markdown_table(rows)))


if __name__ == "__main__":
    main()
