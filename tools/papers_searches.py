#!/usr/bin/env python3
"""Repeats the landscape paper's searches at their own scale on replays, and confirms them under Valgrind's Massif.

    .venv/bin/python tools/papers_searches.py record out/landscapes --programs z3,ngspice
    heapwright experiment examples/heap-landscapes.toml -o out/landscapes/searches
    .venv/bin/python tools/papers_searches.py confirm examples/heap-landscapes.toml out/landscapes/searches

`record` records the programs of papers_tables.py: PROGRAM.hwt in the folder, and their inputs beside them. `confirm`
runs each program under Massif at its defaults and under the best configuration of each search. It prints the
prediction of the replays and the figure of Massif. The folder of the searches keeps Massif's peaks, so `confirm` goes
on after an interruption.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent))

from papers_tables import workloads

from heapwright.experiment.analysis import a12, rank_sum_p
from heapwright.experiment.definition import expand_searches, load_definition
from heapwright.experiment.run import is_done
from heapwright.files import write_whole
from heapwright.interleaving.configuration import DEFAULT_ID
from heapwright.interleaving.phases import Phase
from heapwright.interleaving.stats import ALPHA, holm
from heapwright.measure.meter import MeterOptions
from heapwright.report.tables import markdown_table
from heapwright.study.store import read_study
from heapwright.workload.execute import Executor
from heapwright.workload.model import Workload

PEAK = "massif_peak_bytes"
NEVER = 3600.0  # seconds: a run under Massif may take a hundred times as long as the program
HIT = 0.005  # the paper's gains are larger than this; ours are counted from here on


class Best(msgspec.Struct):
    """The best configuration of a search.

    Attributes:
        env: its environment variables.
        saved: bytes by which the replay's peak is below that at the defaults; 0 if none is smaller.
        evaluations: configurations of the search.
        infeasible: of these, how many crashed or ran out of time.
    """

    env: dict[str, str]
    saved: float
    evaluations: int
    infeasible: int


class Massif:
    """Runs a program under Valgrind's Massif, once for each environment.

    Args:
        workload: the program.
        known: a file with the peaks that are known, in bytes.
    """

    def __init__(self, workload: Workload, known: Path) -> None:
        options = MeterOptions(massif=True, massif_by="valgrind", timeout=NEVER)
        self.executor = Executor(workload, options, known.with_suffix(".reference"))
        self.input = workload.train[0]
        self.known = known
        self.peaks: dict[str, float | None] = json.loads(known.read_text()) if known.exists() else {}
        self.saving = threading.Lock()

    def measure(self, envs: Sequence[Mapping[str, str]], jobs: int) -> None:
        """Run the program under each environment, several at a time: other processes do not change its peak."""
        distinct = {json.dumps(dict(env), sort_keys=True): env for env in envs}
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(self.peak, distinct.values()))

    def peak(self, env: Mapping[str, str]) -> float | None:
        """Return the peak in bytes under these variables; None if the run failed."""
        key = json.dumps(dict(env), sort_keys=True)
        if key not in self.peaks:
            outcome = self.executor.run(self.input, env)
            if outcome.failure:
                print(f"Massif under {key}: {outcome.failure}", file=sys.stderr)
            with self.saving:
                self.peaks[key] = None if outcome.failure else outcome.run.metrics[PEAK]
                write_whole(self.known, json.dumps(self.peaks))
        return self.peaks[key]


def best_of(study: Path) -> Best:
    """Return the best configuration of a finished search. It reads the runs alone: a whole view takes a second."""
    with read_study(study) as store:
        runs = [run for run in store.runs() if run.phase != Phase.CALIBRATE]
        peaks = {run.config: peak for run in runs if not run.failure and (peak := run.metrics.get(PEAK))}
        tried = {run.config for run in runs} - {DEFAULT_ID}
        default = peaks.pop(DEFAULT_ID)
        infeasible = len(tried - peaks.keys())
        best = min(peaks, key=lambda config: peaks[config], default=DEFAULT_ID)
        saved = default - peaks.get(best, default)
        if saved <= 0:
            return Best({}, 0.0, len(tried), infeasible)
        return Best(dict(store.config_by_id(best).env), saved, len(tried), infeasible)


def confirm(file: Path, folder: Path, jobs: int = 1) -> list[list[str]]:
    """Return the table: a row for each program and method.

    Args:
        file: the definition of the experiment.
        folder: its studies.
        jobs: how many runs under Massif at once.
    """
    definition = load_definition(file)
    against = definition.against
    rows = [["program", "method", "searches", "replays predict", "Massif says", "below −0.5%", "A12", "p", "best"]]
    planned_searches = [planned for planned in expand_searches(definition) if is_done(folder / planned.file)]
    names = [p.name for p in definition.program if any(c.program.name == p.name for c in planned_searches)]
    for name, workload in workloads(file.parent / Path(definition.program[0].traces[0]).parent / "inputs", names):
        massif = Massif(workload, folder / f"{name}.massif.json")
        own = [planned for planned in planned_searches if planned.program.name == name]
        picked = [(planned, best_of(folder / planned.file)) for planned in own]
        massif.measure([{}, *(best.env for _, best in picked)], jobs)
        default = massif.peak({})
        if default is None:
            continue
        found: dict[str, list[tuple[float, float, Best]]] = {}
        for planned, best in picked:
            peak = massif.peak(best.env)
            real = math.nan if peak is None else peak / default - 1
            found.setdefault(planned.method, []).append((0.0 - best.saved / default, real, best))
        rows += _rows(name, found, against)
    return rows


def _rows(name: str, found: Mapping[str, list[tuple[float, float, Best]]], against: str) -> list[list[str]]:
    gains = {method: [-real for _, real, _ in searches] for method, searches in found.items()}
    others = [m for m in gains if m != against and against in gains]
    tested = dict(zip(others, holm([rank_sum_p(gains[m], gains[against]) for m in others]), strict=True))
    rows = []
    for method, searches in found.items():
        predicted, real = [p for p, _, _ in searches], [r for _, r, _ in searches]
        best = min(searches, key=lambda s: s[1])
        settings = " ".join(best[2].env.values()).replace("glibc.malloc.", "").replace(":", " ")
        effect = f"{a12(gains[method], gains[against]):.2f}" if method in tested else ""
        p = f"{tested[method]:.3f}{'*' if tested[method] < ALPHA else ''}" if method in tested else ""
        rows.append(
            [
                name, method, str(len(searches)), _spread(predicted), _spread(real),
                f"{sum(r < -HIT for r in real)} of {len(real)}", effect, p, f"{best[1]:+.2%}: `{settings or 'none'}`",
            ]
        )  # fmt: skip
    return rows


def _spread(values: list[float]) -> str:
    """Format the mean of relative changes, their standard deviation and their range."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):+.2%} ±{deviation:.2%} [{min(values):+.2%}, {max(values):+.2%}]"


def record(folder: Path, names: list[str]) -> None:
    """Record programs of papers_tables.py, unless a recording is there: searches are only compared on the same one.

    Args:
        folder: where the traces go; the inputs go to its folder 'inputs'.
        names: of the programs.
    """
    (folder / "inputs").mkdir(parents=True, exist_ok=True)
    folder = folder.absolute()
    command = [str(Path(sys.executable).with_name("heapwright")), "record", "-q", "-o"]
    for name, workload in workloads(folder / "inputs", names):
        if (folder / f"{name}.hwt").exists():
            continue
        file = Path(f"{name}.toml")
        target = ["--workload", str(file)] if file.exists() else ["--", *workload.file.command]
        subprocess.run([*command, str(folder / f"{name}.hwt"), *target], stdout=subprocess.DEVNULL, check=True)


def main() -> None:
    """Record the programs, or print the table of the confirmed searches as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--programs", default="z3,ngspice")
    confirming = verbs.add_parser("confirm")
    confirming.add_argument("file", type=Path, help="the definition of the experiment")
    confirming.add_argument("folder", type=Path, help="the folder of its studies")
    confirming.add_argument("--jobs", type=int, default=1, help="how many runs under Massif at once")
    args = parser.parse_args()
    os.environ["LC_ALL"] = "C"
    if args.verb == "record":
        record(args.folder, args.programs.split(","))
    else:
        print("\n".join(markdown_table(confirm(args.file.absolute(), args.folder.absolute(), args.jobs))))


if __name__ == "__main__":
    main()
