#!/usr/bin/env python3
"""Measures the picks of studies of Z3 on other problems of the same kind: a table of docs/results/papers.md.

    .venv/bin/python tools/papers_transfer.py out/landscapes/greenmalloc.study --by emulation massif callgrind

The studies searched on z.smt2 of programs.py, or on a recording of Z3 with it. That problem asks for two factors below
4096 of a 24-bit number. Each other problem has another number, which its own seed draws. Z3 runs once on each problem
at the defaults and once under each pick. A run of a pick that fails, or whose output differs from that at the defaults,
counts as failed.

The table has the prediction of the replays, the change on the problem of the search, and the changes on the
other problems: their median, their range, and on how many problems the metric is lower, equal or higher. The folder
keeps all results, and they are not measured again. `--thresholds` adds rows of one setting, as in the landscape paper's
sweep of Z3 over 40 problems:

    .venv/bin/python tools/papers_transfer.py --problems 40 --thresholds 4096 8192 16384
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

sys.path.insert(0, str(Path(__file__).resolve().parent))

import heapwright
from heapwright.files import write_whole
from heapwright.measure.meter import MeterOptions
from heapwright.metrics import METRICS
from heapwright.report.tables import markdown_table
from heapwright.workload.execute import Executor
from heapwright.workload.model import from_command
from programs import SCRIPTS

PEAK = "massif_peak_bytes"
PRODUCT = "#x7f4a15"  # in z.smt2
SEARCHED = 0  # the number of the problem on which the studies searched
LIMIT = 600.0  # seconds of a run
MEASURES = {  # name → how to run, and the metrics of such a run
    "emulation": (MeterOptions(massif=True), (PEAK, "peak_rss_bytes")),
    "massif": (MeterOptions(massif=True, massif_by="valgrind"), (PEAK,)),
    "callgrind": (MeterOptions(callgrind=True), ("instructions",)),
}

Figures = dict[str, float | None]  # metric → its value; empty if the run failed


class Entry(TypedDict):
    """A run that is kept: the digest of its output, and its metrics. Both are empty if it failed."""

    digest: str
    metrics: Figures


def problem(number: int) -> str:
    """Return the SMT problem with this number: 0 is that of the searches."""
    if number == SEARCHED:
        return SCRIPTS["z.smt2"]
    product = random.Random(number).randrange(1 << 24)
    return SCRIPTS["z.smt2"].replace(PRODUCT, f"#x{product:06x}")


class Transfer:
    """Runs Z3 on the problems, once for each problem and environment.

    Args:
        folder: for the problems and the results.
        by: how to measure, a key of MEASURES.
    """

    def __init__(self, folder: Path, by: str) -> None:
        self.folder = folder
        self.options, self.metrics = MEASURES[by]
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
            executor = Executor(workload, replace(self.options, timeout=LIMIT), self.folder / "reference")
            outcome = executor.run(workload.train[0], env)
            entry: Entry = {"digest": "", "metrics": {}}
            if not outcome.failure:
                entry = {"digest": outcome.digest, "metrics": {m: outcome.run.metrics.get(m) for m in self.metrics}}
            self.runs[key] = entry
            write_whole(self.known, json.dumps(self.runs))
        return self.runs[key]


class Picked(TypedDict):
    """A pick of a search, or another setting.

    Attributes:
        env: its environment variables.
        defaults: those of its allocator at the defaults.
        saved: bytes by which Massif's peak is below that at the defaults in the search; None if there was no search.
    """

    env: dict[str, str]
    defaults: dict[str, str]
    saved: float | None


def picks_of(study: Path) -> dict[str, Picked]:
    """Return the picks of a study by name; equal ones are named together."""
    opened = heapwright.open_study(study)
    default = next((r.metrics[PEAK] for r in opened.runs() if r.evaluation == 0 and PEAK in r.metrics), 0.0)
    names: dict[str, list[str]] = {}
    saved: dict[str, float] = {}
    for name, pick in opened.picks.items():
        key = json.dumps(pick.env, sort_keys=True)
        names.setdefault(key, []).append(name)
        saved[key] = default * (1 - pick.search.get(PEAK, 1.0))
    picks: dict[str, Picked] = {}
    for key, found in names.items():
        env = json.loads(key)
        defaults = {name: value for name, value in env.items() if name == "LD_PRELOAD"}
        picks[" and ".join(found)] = {"env": env, "defaults": defaults, "saved": saved[key]}
    return picks


def change(default: Figures, figures: Figures, metric: str) -> float | None:
    """Return the relative change of a metric; None if a run failed or did not tell it."""
    before, after = default.get(metric), figures.get(metric)
    return after / before - 1 if before and after is not None else None


def cells(found: Sequence[float | None]) -> list[str]:
    """Format changes: their median, their range, and the numbers of lower, equal, higher and failed ones."""
    changes = [c for c in found if c is not None]
    if not changes:
        return ["n/a", "n/a", "0", "0", "0", str(len(found))]
    signs = [sum(c < 0 for c in changes), sum(c == 0 for c in changes), sum(c > 0 for c in changes)]
    spread = f"[{min(changes):+.2%}, {max(changes):+.2%}]"
    return [f"{statistics.median(changes):+.2%}", spread, *map(str, signs), str(len(found) - len(changes))]


def rows_of(
    label: Sequence[str], pick: Picked, by: str, metrics: Sequence[str], problems: int, folder: Path
) -> list[list[str]]:
    """Return a row for each metric.

    Args:
        label: the first cells.
        pick: what to compare with the defaults.
        by: how to measure, a key of MEASURES.
        metrics: which metrics to tell, of those measured.
        problems: how many other problems.
        folder: for the problems and the results.
    """
    transfer = Transfer(folder, by)
    rows = []
    for metric in (m for m in transfer.metrics if m in metrics):
        numbers = range(SEARCHED, problems + 1)
        base = pick["defaults"]
        changes = [change(transfer.run(n, base), transfer.run(n, pick["env"]), metric) for n in numbers]
        default = transfer.run(SEARCHED, base).get(PEAK)
        saved = pick["saved"]
        predicted = f"{-saved / default:+.2%}" if metric == PEAK and default and saved is not None else ""
        own = "failed" if changes[0] is None else f"{changes[0]:+.2%}"
        rows.append([*label, METRICS[metric].label, by, predicted, own, *cells(changes[1:])])
    return rows


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("studies", nargs="*", type=Path, help="studies of Z3, or of recordings of it")
    parser.add_argument("--thresholds", nargs="+", type=int, default=[], help="values of mmap_threshold, in bytes")
    parser.add_argument("--problems", type=int, default=50, help="how many other problems")
    parser.add_argument("--by", nargs="+", choices=list(MEASURES), default=["emulation"], help="how to measure")
    parser.add_argument("--metrics", nargs="+", default=sorted({m for _, keys in MEASURES.values() for m in keys}))
    parser.add_argument("--folder", type=Path, default=Path("out/landscapes/transfer"))
    args = parser.parse_args()
    os.environ["LC_ALL"] = "C"
    folder = args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    settings = [((study.stem, name), pick) for study in args.studies for name, pick in picks_of(study).items()]
    for value in args.thresholds:
        env = {"GLIBC_TUNABLES": f"glibc.malloc.mmap_threshold={value}"}
        settings.append((("mmap_threshold", str(value)), {"env": env, "defaults": {}, "saved": None}))
    rows = [["study", "pick", "metric", "by", "replays predict", "problem of the search"]]
    rows[0] += ["median of the others", "range", "lower", "equal", "higher", "failed"]
    for label, pick in settings:
        for by in args.by:
            rows += rows_of(label, pick, by, args.metrics, args.problems, folder)
    print("\n".join(markdown_table(rows)))


if __name__ == "__main__":
    main()
