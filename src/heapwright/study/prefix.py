"""Prefixes of long runs: what a study measures where its time budget holds too few whole runs to prove anything.

The first run, a whole one, shows when the program has reached its peak. Where that is early, later runs end soon after
it, and the study proves what shows by then: peak memory. One whole run under what was found is the last step: it says
whether the gain of the prefix is one of the program too.

    first run      |----------peak-----------------------------------------|
    later runs     |----------peak---|     `_SLACK` times as long as the peak took, for settings that are slower
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import msgspec

from heapwright.experiment.records import StoredRun
from heapwright.experiment.stats import log_ratio
from heapwright.measure.prefix import Prefix
from heapwright.metrics import METRICS, show_seconds
from heapwright.study.options import LEAST_GAIN
from heapwright.study.store import Store
from heapwright.study.view import Pick, PickName
from heapwright.workload.execute import Outcome
from heapwright.workload.model import Input

REACHED = 0.98  # share of the peak that counts as the peak: memory that creeps on for an hour does not matter
_SLACK, _LEAST_SLACK_S = 1.25, 0.5
_SEEN = 0.95  # share of a whole run's peak that a prefix must reach: peaks vary, and a sampled one more
_WORTH = 0.5  # share of a run that its prefix may take at most


class Whole(msgspec.Struct, frozen=True):
    """One whole run under what was found.

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

    @property
    def objection(self) -> str:
        """Why it speaks against the configuration, or empty."""
        if self.failure:
            return f"a whole run under it failed: {self.failure}"
        if min(self.ratios.values(), default=0.0) > 1 - LEAST_GAIN:
            return f"in a whole run under it the gain does not show ({_changes(self.ratios)})"
        return ""


class Kept(msgspec.Struct, frozen=True):
    """The prefix that a study has chosen, as stored with it.

    Attributes:
        prefix: where its runs end.
        run_s: seconds of a whole run.
        whole: the whole run at the end; None before it, or where there was no time for it.
    """

    prefix: Prefix
    run_s: float
    whole: Whole | None = None


def kept_prefix(store: Store) -> Kept | None:
    """The prefix that the study has chosen by itself; None if its runs are whole, or end where the user says."""
    kept = store.meta.prefix
    return msgspec.convert(kept, Kept) if kept else None


def find_prefix(first: Sequence[StoredRun], objectives: Sequence[str]) -> tuple[Prefix, tuple[str, ...]] | None:
    """Where runs can be ended, and which of the objectives show by then; None where none does early enough.

    Args:
        first: a whole run of each input, with its memory over time.
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
        length = max(_SLACK * max(known), max(known) + _LEAST_SLACK_S)
        if length > _WORTH * wall:
            return None
        lengths.append(length)
    return Prefix(seconds=math.ceil(round(10 * max(lengths), 6)) / 10), shown


def _reached_s(run: StoredRun, metric: str) -> float | None:
    """Seconds until a run came near its peak; None where that is not known.

    A point of the series has the largest figures from its time until that of the next point.
    """
    series = run.series or {}
    values, times = series.get(METRICS[metric].series) or [], series.get("t") or []
    highest = max(values, default=0.0)
    ends = [*times[1:], run.metrics.get("wall_s") or 0.0]
    return next((t for t, value in zip(ends, values, strict=False) if value >= REACHED * highest > 0), None)


def missed(runs: Sequence[StoredRun], objectives: Sequence[str]) -> bool:
    """Whether the default's prefixes stay below the peaks of its whole runs, so that they show too little.

    Args:
        runs: the calibration; block 0 has a whole run of each input, later blocks have prefixes.
    """
    for whole in (run for run in runs if run.block == 0):
        for metric in objectives:
            peak = whole.metrics.get(metric) or 0.0
            values = [run.metrics.get(metric) or 0.0 for run in runs if run.block > 0 and run.input == whole.input]
            if values and max(values) < _SEEN * peak:
                return True
    return False


def whole_ratios(
    outcomes: Sequence[Outcome], first: Sequence[StoredRun], inputs: Sequence[Input], objectives: Sequence[str]
) -> dict[str, float]:
    """Objective → geometric mean over inputs of the ratio of a whole run to the input's first run."""
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


def with_objection(picks: Mapping[PickName, Pick], kept: Kept | None) -> dict[PickName, Pick]:
    """The picks, with an objection to the one that a whole run speaks against."""
    whole = kept.whole if kept else None
    if whole is None or not whole.objection:
        return dict(picks)
    return {
        name: dataclasses.replace(pick, objection=whole.objection)
        if pick.config.id == whole.config and not pick.objection
        else pick
        for name, pick in picks.items()
    }


def sentence(kept: Kept, objectives: Sequence[str]) -> str:
    """What the study measured, and what one whole run said, for people."""
    labels = " and ".join(METRICS[m].label for m in objectives)
    text = (
        f"A whole run takes {show_seconds(kept.run_s)}, and the time budget holds too few of them. Its {labels}"
        f" shows early ({100 * REACHED:.0f}% of it), so {kept.prefix.shown()} was compared."
    )
    if kept.whole is None:
        return f"{text} What comes later was not."
    if kept.whole.failure:
        return f"{text} One whole run with the choice failed: {kept.whole.failure}."
    return f"{text} One whole run with the choice, no proof by itself: {_changes(kept.whole.ratios)}."


def _changes(ratios: Mapping[str, float]) -> str:
    return ", ".join(f"{METRICS[m].label} {100 * (r - 1):+.1f}%".replace("-", "−") for m, r in ratios.items())
