"""Requirements on a pick: bounds of metrics that it must keep, whether or not they are objectives.

    METRIC <= 1.05x     at most 1.05 times the default's value; also >=
    METRIC <= 64MiB     at most this value, in the metric's unit; also >=

The search treats a setting as worse that breaks a requirement in the runs so far, so it is not picked. Fresh runs then
decide: a requirement is met if the whole 95% interval lies within the bound, not met if it lies wholly beyond, and
otherwise not known. A pick that does not meet one is not recommended.
"""

from __future__ import annotations

import dataclasses
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from heapwright.errors import UsageError
from heapwright.interleaving.candidates import Candidate
from heapwright.interleaving.stats import ALPHA, mean_errors
from heapwright.metrics import METRICS, find_metric
from heapwright.study.view import MET, Confirmation, Pick, Reference, RequirementResult, State
from heapwright.terminal_text import counted
from heapwright.units import percent

_FORM = re.compile(r"\s*([A-Za-z0-9_]+)\s*(<=|>=)\s*(\d+(?:\.\d+)?)\s*(x|[A-Za-zµ/%]*)\s*")
_UNITS = {
    "B": {"": 1.0, "B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
    "s": {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6},
    "s/op": {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6},
    "ms": {"": 1.0, "ms": 1.0, "s": 1e3},
    "1/s": {"": 1.0, "/s": 1.0},
}
_MIN_EXCESS = 0.05  # log ratio at which the search sees any break of an absolute bound, however small
# Log ratio at which the search sees the break of a bound that has no finite ratio (a value, a
# default or a bound of 0), and the largest excess over one limit (`Policy.excess`).
MAX_EXCESS = 1.0


class Requirement(msgspec.Struct, frozen=True):
    """A bound of a metric.

    Attributes:
        metric: key.
        bound: a ratio to the default, or a value in the metric's unit.
        relative: whether it is a ratio.
        at_least: whether it is a lower bound.
    """

    metric: str
    bound: float
    relative: bool
    at_least: bool = False

    @property
    def text(self) -> str:
        """'p99_ms <= 1.05x', 'peak_rss_bytes <= 67108864': `parse_requirement` reads it again."""
        bound = f"{self.bound:.12f}".rstrip("0").rstrip(".")  # without an exponent
        return f"{self.metric} {'>=' if self.at_least else '<='} {bound}{'x' if self.relative else ''}"

    @property
    def shown(self) -> str:
        """The requirement for people: 'peak_rss <= 64.0 MiB'."""
        return f"{METRICS[self.metric].short} {self.bound_shown}"

    @property
    def bound_shown(self) -> str:
        """The bound for people: '<= 64.0 MiB'."""
        bound = f"{self.bound:g}x" if self.relative else METRICS[self.metric].show(self.bound)
        return f"{'>=' if self.at_least else '<='} {bound}"

    @property
    def upper_bound(self) -> float:
        """The largest log ratio, or the largest share of an absolute bound (1), both negated for a lower bound.

        The bound is not 0.
        """
        bound = math.log(self.bound) if self.relative else 1.0
        return -bound if self.at_least else bound

    def within(self, low: float, high: float) -> bool | None:
        """Whether an interval keeps the bound; None if it lies on both sides."""
        if self.at_least:
            low, high, bound = -high, -low, -self.bound
        else:
            bound = self.bound
        return True if high <= bound else False if low > bound else None

    def value_of(self, candidate: Candidate) -> float | None:
        """A candidate's ratio or value, to compare with the bound; None if it was not measured."""
        if self.relative:
            change = candidate.change(self.metric)
            return None if change is None else math.exp(change)
        figures = [self._figure(values) for values in candidate.values.get(self.metric, {}).values()]
        return self._worst(figures) if figures else None

    def value_shown(self, candidate: Candidate) -> str:
        """A candidate's ratio or value for people: '1.12x', '64.0 MiB', or 'n/a'."""
        value = self.value_of(candidate)
        if value is None:
            return "n/a"
        if math.isinf(value):
            return candidate.means_shown(self.metric)
        return f"{value:.3g}x" if self.relative else METRICS[self.metric].show(value)

    def excess(self, candidate: Candidate) -> float:
        """How far a candidate lies beyond the bound, as a log ratio; 0 if it keeps it or was not measured."""
        value = self.value_of(candidate)
        if value is None or self.within(value, value):
            return 0.0
        far = abs(math.log(value / self.bound)) if 0 < value < math.inf and self.bound > 0 else MAX_EXCESS
        return far if self.relative else max(far, _MIN_EXCESS)  # ratios of single runs vary around their bound

    def judge(self, confirmed: Mapping[str, Confirmation], candidate: Candidate | None) -> RequirementResult:
        """Whether fresh runs show that the requirement is kept.

        Args:
            confirmed: the confirmation, by metric.
            candidate: the fresh runs.
        """
        if self.relative:
            found = confirmed.get(self.metric)
            kept, shown = None, "not measured"
            if found is not None:
                kept = self.within(found.low, found.high)
                shown = " to ".join(map(percent, (found.low, found.high)))
            elif candidate is not None and candidate.has_no_ratio(self.metric):
                kept, shown = self.keeps(candidate), candidate.means_shown(self.metric)
        else:
            kept, shown = self._judge_values(candidate.values.get(self.metric, {}) if candidate else {})
        state: State = "not shown" if kept is None else "kept" if kept else "broken"
        return RequirementResult(self.shown, state, shown, self.metric, self.bound_shown)

    def keeps(self, candidate: Candidate, alpha: float = ALPHA) -> bool | None:
        """Whether the values of a metric without ratios are shown to keep a relative bound, or to break it.

        Args:
            candidate: its runs.
            alpha: error probability.

        Returns:
            None if neither is shown, or the metric has ratios (`Candidate.is_above`).
        """
        above = candidate.is_above(self.metric, self.bound, alpha)
        return None if above is None else above == self.at_least

    def _judge_values(self, values: Mapping[str, Sequence[float]]) -> tuple[bool | None, str]:
        """Return whether the values of each input keep an absolute bound (None: not shown), and those of the worst.

        Args:
            values: input → values of its runs. Small inputs do not make up for a large one.
        """
        if not values:
            return None, "not measured"
        show = METRICS[self.metric].show
        worst = self._worst([self._figure(of_input) for of_input in values.values()])
        if self.for_every_run:
            runs = sum(map(len, values.values()))
            return self.within(worst, worst), f"at most {show(worst)} in {counted(runs, 'run')}"
        intervals = [_mean_interval(of_input) for of_input in values.values()]
        known = [interval for interval in intervals if interval is not None]
        if len(known) < len(intervals):
            return None, "not measured often enough"
        states = {self.within(*interval) for interval in known}
        kept = False if False in states else None if None in states else True
        key = min if self.at_least else max
        shown = key(known, key=lambda interval: interval[0 if self.at_least else 1])
        return kept, " to ".join(map(show, shown))

    @property
    def for_every_run(self) -> bool:
        """Whether no run may exceed the bound: of memory, which a limit ends, and of 0. Otherwise the mean counts."""
        if self.relative:
            return False
        return not self.at_least and (self.bound == 0 or METRICS[self.metric].kind == "memory")

    def _figure(self, values: Sequence[float]) -> float:
        """Return the figure of one input's runs that an absolute bound applies to."""
        return max(values) if self.for_every_run else statistics.fmean(values)

    def _worst(self, figures: Sequence[float]) -> float:
        return min(figures) if self.at_least else max(figures)


def _mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95% interval of the mean of some values, in the order of measurement; None for fewer than two.

    It is Student's t, wider where the values fall into groups or come in spells (`stats.mean_errors`).
    """
    import numpy as np
    from scipy.special import stdtrit

    if len(values) < 2:
        return None
    mean = statistics.fmean(values)
    if mean == 0:
        return 0.0, 0.0  # no value of a metric is negative
    found = mean_errors(np.asarray(values)[None] / mean)  # shares, because its tests expect the scale of logarithms
    half = abs(mean) * float(stdtrit(found.freedom[0], 1 - ALPHA / 2) * found.error[0])
    return mean - half, mean + half


def metrics_of(texts: Iterable[str]) -> list[str]:
    """Return the keys of the metrics that requirements bound."""
    return [parse_requirement(text).metric for text in texts]


def parse_requirement(text: str, stored: bool = False) -> Requirement:
    """'p99_ms <= 1.05x' as a requirement.

    Args:
        text: as given to --require.
        stored: whether a study has it. Version 0.2.0 took a ratio of 0.

    Raises:
        UsageError: another form, an unknown metric or unit, a ratio of a metric that is mostly 0, or a ratio of 0.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise UsageError(f"--require '{text}' is not METRIC <= BOUND", "for example --require 'p99_ms <= 1.05x'")
    name, sign, number, unit = match.groups()
    metric = find_metric(name)
    if metric.kind == "output":
        raise UsageError(f"--require: '{metric.key}' is not a number")
    relative = unit == "x"
    if relative and metric.key == "load_errors":
        raise UsageError("--require: load_errors may be 0, so it has no ratio", "give a number: 'load_errors <= 0'")
    if relative and float(number) == 0 and not stored:
        raise UsageError(f"--require '{text}': 0 is no ratio", f"give a number: '{metric.short} {sign} 0'")
    scale = 1.0 if relative else _UNITS.get(metric.unit, {"": 1.0}).get(unit)
    if scale is None:
        known = ", ".join(filter(None, _UNITS.get(metric.unit, {}))) or "none"
        raise UsageError(f"--require: '{unit}' is not a unit of {metric.key}", f"units: {known}; or 1.05x for a ratio")
    return Requirement(metric.key, float(number) * scale, relative, sign == ">=")


Name = TypeVar("Name", bound=str)
Row = TypeVar("Row", Pick, Reference)


def with_requirements(
    rows: Mapping[Name, Row],
    requires: Sequence[Requirement],
    confirmed: Mapping[int, Mapping[str, Confirmation]],
    fresh: Mapping[int, Candidate],
) -> dict[Name, Row]:
    """The rows with the results of the requirements, which their claims state.

    Args:
        rows: picks or references, by name.
        requires: the requirements.
        confirmed: configuration → its confirmation.
        fresh: configuration → its fresh runs.
    """
    found: dict[Name, Row] = {}
    for name, row in rows.items():
        seen = confirmed.get(row.config.id)
        results = [r.judge(seen or {}, fresh.get(row.config.id)) for r in requires]
        said = "".join(f" Requirement {MET[r.state]}: {r.text} ({r.shown})." for r in results) if seen else ""
        found[name] = dataclasses.replace(row, requirements=results, claim=f"{row.claim}{said}")
    return found


def objection(results: Sequence[RequirementResult]) -> str:
    """Why a proven setting breaks a requirement, in one clause; empty if none is shown to be broken."""
    return "; ".join(f"it does not meet the requirement {r.text} ({r.shown})" for r in results if r.state == "broken")
