"""Prefixes of long runs: a study measures them if its time budget holds too few whole runs for a proof.

The first run, a whole one, shows when the program reaches its peak. If that is early, later runs end soon after it, and
the study proves gains of peak memory. At the end, one whole run with the chosen configuration shows whether the gain
of the prefix is also a gain of the program.

    first run      |----------peak-----------------------------------------|
    later runs     |----------peak---|     `_SLACK` times the time of the peak, for slower settings
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import msgspec

from heapwright.interleaving.records import StoredRun
from heapwright.interleaving.stats import log_ratio
from heapwright.measure.prefix import Prefix
from heapwright.metrics import METRICS, show_seconds
from heapwright.study.options import MIN_GAIN, Options
from heapwright.study.store import Store
from heapwright.study.view import Pick, PickName
from heapwright.units import percent
from heapwright.workload.execute import Outcome
from heapwright.workload.model import Input

PEAK_SHARE = 0.98  # this share of the peak counts as the peak: later slow growth does not matter
_SLACK, _MIN_SLACK_S = 1.25, 0.5
_MIN_PEAK_SHARE = 0.95  # a prefix must reach this share of a whole run's peak: peaks vary
_MAX_RUN_SHARE = 0.5  # a prefix may take at most this share of a run


class WholeRun(msgspec.Struct, frozen=True):
    """One whole run with the chosen configuration.

    Attributes:
        config: the configuration's number.
        failure: why the run does not count, or empty.
        ratios: metric → ratio to the default's whole run.
        charged_s: seconds it took.
    """

    config: int
    failure: str = ""
    ratios: dict[str, float] = {}
    charged_s: float = 0.0

    def objection(self, claimed: Mapping[str, float]) -> str:
        """Why the whole run contradicts the configuration, or empty.

        A prefix ends after a time. A slower program has allocated less by then, so a whole run must show a part of the
        gain, and must not be slow. That is judged by CPU time: the study's first run, which it is compared with, reads
        more of /proc with cold caches, which costs wall time.

        Args:
            claimed: objective → ratio to the default, in prefixes; of proven gains.
        """
        if self.failure:
            return f"a whole run under it failed: {self.failure}"
        lost = [
            metric
            for metric, ratio in self.ratios.items()
            if metric in claimed and math.log(ratio) > min(math.log(1 - MIN_GAIN), math.log(claimed[metric]) / 2)
        ]
        if lost:
            of_gain = {metric: self.ratios[metric] for metric in lost}
            return f"in a whole run under it the gain does not show ({_changes(of_gain)})"
        if self.ratios.get("cpu_s", 1.0) > _SLACK:
            return f"a whole run under it is slower ({_changes({'cpu_s': self.ratios['cpu_s']})})"
        return ""


class ChosenPrefix(msgspec.Struct, frozen=True):
    """The prefix that a study has chosen, as stored with it.

    Attributes:
        prefix: where its runs end.
        run_s: seconds of a whole run.
        whole: the whole run at the end; None before it, or where there was no time for it.
    """

    prefix: Prefix
    run_s: float
    whole: WholeRun | None = None


def chosen_prefix(store: Store) -> ChosenPrefix | None:
    """The prefix that the study chose by itself; None for whole runs, and for a prefix that the user chose."""
    kept = store.meta.prefix
    return msgspec.convert(kept, ChosenPrefix) if kept else None


def find_prefix(first: Sequence[StoredRun], objectives: Sequence[str]) -> tuple[Prefix, tuple[str, ...]] | None:
    """Find the time at which runs can end, and the objectives that show by then; None if none shows early enough.

    Args:
        first: a whole run of each input, with memory over time.
        objectives: metric keys.
    """
    shown = tuple(m for m in objectives if METRICS[m].series)
    if not shown or not first:
        return None
    lengths = []
    for run in first:
        wall = run.metrics.get("wall_s") or 0.0
        times = [_reached_s(run, metric) for metric in shown]
        known = [t for t in times if t is not None]
        if len(known) < len(times):
            return None
        length = max(_SLACK * max(known), max(known) + _MIN_SLACK_S)
        if length > _MAX_RUN_SHARE * wall:
            return None
        lengths.append(length)
    return Prefix(seconds=math.ceil(round(10 * max(lengths), 6)) / 10), shown


def _reached_s(run: StoredRun, metric: str) -> float | None:
    """Seconds until a run came close to its peak; None if unknown.

    A point of the series has the largest values from its time until the time of the next point.
    """
    series = run.series or {}
    values, times = series.get(METRICS[metric].series) or [], series.get("t") or []
    highest = max(values, default=0.0)
    ends = [*times[1:], run.metrics.get("wall_s") or 0.0]
    return next((t for t, value in zip(ends, values, strict=False) if value >= PEAK_SHARE * highest > 0), None)


def prefixes_miss_peak(runs: Sequence[StoredRun], objectives: Sequence[str]) -> bool:
    """Whether the prefixes of the default stay below the peaks of its whole runs, and so show too little.

    Args:
        runs: the calibration; block 0 has a whole run of each input, later blocks have prefixes.
    """
    for whole in (run for run in runs if run.block == 0):
        for metric in objectives:
            peak = whole.metrics.get(metric) or 0.0
            values = [run.metrics.get(metric) or 0.0 for run in runs if run.block > 0 and run.input == whole.input]
            if values and max(values) < _MIN_PEAK_SHARE * peak:
                return True
    return False


def whole_ratios(
    outcomes: Sequence[Outcome], first: Sequence[StoredRun], inputs: Sequence[Input], objectives: Sequence[str]
) -> dict[str, float]:
    """Compare whole runs of a configuration with the first runs of the default.

    Args:
        outcomes: a whole run of each input with the configuration.
        first: the first run of each input, whole, of the default.
        inputs: the inputs, in the order of `outcomes`.
        objectives: metric keys.

    Returns:
        Objective → geometric mean of the ratios over inputs.
    """
    by_input = {run.input: run for run in first}
    found = {}
    for metric in objectives:
        logs = [
            log_ratio(outcome.run.metrics.get(metric), by_input[input_.name].metrics.get(metric))
            for outcome, input_ in zip(outcomes, inputs, strict=True)
        ]
        known = [log for log in logs if log is not None]
        if len(known) == len(logs):
            found[metric] = math.exp(math.fsum(known) / len(known))
    return found


def with_objection(picks: Mapping[PickName, Pick], kept: ChosenPrefix | None) -> dict[PickName, Pick]:
    """The picks, with an objection to the one that a whole run contradicts, and to all without a whole run."""
    if kept is None:
        return dict(picks)
    found = {}
    for name, pick in picks.items():
        claimed = {m: c.ratio for m, c in pick.confirmed.items() if c.verdict == "better"}
        why = ""
        if kept.whole is not None and pick.config.id == kept.whole.config:
            why = kept.whole.objection(claimed)
        elif claimed:  # fresh runs may give a name to another row than the one that had the whole run
            none = "there was no time for a whole run" if kept.whole is None else "no whole run was made"
            why = f"{none} under it, and prefixes do not show whether it is slower"
        found[name] = dataclasses.replace(pick, objection=pick.objection or why)
    return found


def prefix_sentence(kept: ChosenPrefix, objectives: Sequence[str], chosen: str) -> str:
    """The prefix that the study measured, and the result of the whole run, in words.

    Args:
        kept: the prefix.
        objectives: metric keys.
        chosen: the configuration of the whole run, for people; unused without one.
    """
    labels = " and ".join(METRICS[m].label for m in objectives)
    text = (
        f"A whole run takes {show_seconds(kept.run_s)}, and the time budget holds too few of them. A run reaches"
        f" {100 * PEAK_SHARE:.0f}% of its {labels} early, so heapwright compared {kept.prefix.shown()}."
    )
    if left_out := [METRICS[m].label for m in Options().objectives if m not in objectives]:
        text += (
            f" {' and '.join(left_out)} cannot be compared so, because a faster run has done more by then:"
            " give a larger --budget, or a smaller input."
        )
    if kept.whole is None:
        return f"{text} Later parts of a run were not compared."
    if kept.whole.failure:
        return f"{text} One whole run with {chosen} failed: {kept.whole.failure}."
    return f"{text} One whole run with {chosen}, no proof by itself: {_changes(kept.whole.ratios)}."


def _changes(ratios: Mapping[str, float]) -> str:
    return ", ".join(f"{METRICS[m].label} {percent(r)}" for m, r in ratios.items())
