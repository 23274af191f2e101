"""Decides which trade-offs are good advice: how much a setting must gain, and how much it may cost.

    gain     at least 1% and 1 MiB of memory, or 1% of time (or of another count)
    price    a loss weighs three times a gain; with prices of the user's own, as much as they say
    limit    no metric may grow beyond its limit (up to 1% may be noise); only the user sets limits

A setting that is proven but not good advice is shown, and shipped only by its name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from heapwright.errors import UsageError
from heapwright.interleaving.candidates import Candidate
from heapwright.metrics import METRICS, find_metric, show_bytes
from heapwright.search.pareto import LOSS_WEIGHT, weighted_score
from heapwright.study.options import MIN_GAIN, Options
from heapwright.study.requirement import MAX_EXCESS, Requirement, parse_requirement
from heapwright.study.view import Confirmation
from heapwright.units import percent

MIN_GAIN_BYTES = 1 << 20
_KINDS = ("memory", "time")
# A limit of a kind holds for these metrics, and for the objectives of the kind. The others do not
# say that the program needs more: address space is not memory in use, and faults and system time
# are a part of CPU time.
_LIMITED_BY_KIND = (
    *("peak_rss_bytes", "mean_rss_bytes", "p95_rss_bytes", "final_rss_bytes", "idle_rss_bytes"),
    *("peak_pss_bytes", "mean_pss_bytes", "wall_s", "cpu_s", "time_per_op_s", "cpu_per_op_s"),
)
_LIMIT_PENALTY = 10.0  # how much worse the search sees a candidate for each unit of log ratio beyond a limit


class Policy(msgspec.Struct, frozen=True):
    """The user's limits and prices of trade-offs.

    Attributes:
        limits: metric, or 'memory' or 'time' → the highest ratio to the default (`limits_with`).
        prices: metric or kind → value of one per cent; empty: a loss weighs three times a gain.
    """

    limits: dict[str, float] = {}
    prices: dict[str, float] = {}

    def score(self, costs: Mapping[str, float]) -> float:
        """The balance of a trade-off; below 0 it is a gain.

        Args:
            costs: objective → log ratio to the default.
        """
        if not self.prices:
            return weighted_score(tuple(costs.values()))
        return sum(cost * self._find(self.prices, metric, 1.0) for metric, cost in costs.items())

    def limits_with(self, objectives: Sequence[str]) -> dict[str, float]:
        """Metric → the highest ratio that its limit allows (`with_noise` adds what may be noise).

        Args:
            objectives: metric keys. Besides them, a limit of a kind holds for `_LIMITED_BY_KIND`.
        """
        by_kind = {m: METRICS[m].kind for m in (*objectives, *_LIMITED_BY_KIND)}
        of_kinds = {m: self.limits[kind] for m, kind in by_kind.items() if kind in self.limits}
        named = {m: limit for m, limit in self.limits.items() if m in METRICS}
        return of_kinds | {m: limit for m, limit in named.items() if not METRICS[m].larger_is_better}

    def only_by_kind(self, metric: str, objectives: Sequence[str]) -> bool:
        """Whether a limit holds for this metric only as one of its kind: then only a proven excess counts."""
        return metric not in self.limits and metric not in objectives

    def excess(self, candidate: Candidate, objectives: Sequence[str]) -> float:
        """How far a candidate lies beyond all limits together, as a log ratio; 0 if it keeps them.

        Args:
            candidate: its runs so far.
            objectives: metric keys.
        """
        found = 0.0
        for metric, limit in self.limits_with(objectives).items():
            change = candidate.change(metric)
            if change is not None:
                found += min(max(change - math.log(with_noise(limit)), 0.0), MAX_EXCESS)
        return found

    def costs_of(self, tested: Sequence[Confirmation]) -> dict[str, float]:
        """Return what confirmed changes count for in `score`: objective → log ratio.

        A change that is shown to be within the margin counts nothing, and a gain that is not proven neither. A loss
        needs less evidence than a gain, because a user is worse off without a proof as well: it counts in full if its
        interval is above 1, although the test over all objectives and picks may not show it. Otherwise it counts by
        its estimate, with the weight of a gain.
        """
        found = {}
        for c in tested:
            log = math.log(c.ratio)
            if c.verdict in ("better", "worse") or (c.verdict == "unproven" and c.low > 1):
                found[c.metric] = log
            else:
                unproven = max(0.0, log) / (1.0 if self.prices else LOSS_WEIGHT)
                found[c.metric] = 0.0 if c.verdict == "same" else unproven
        return found

    def objection(
        self, confirmed: Mapping[str, Confirmation], objectives: Sequence[str], fresh: Candidate | None = None
    ) -> str:
        """Why a proven setting is not good advice, in one clause; empty if it is.

        Args:
            confirmed: metric → confirmation; limits hold for metrics that are not objectives too.
            objectives: metric keys.
            fresh: the fresh runs, for metrics without a ratio.
        """
        for metric, limit in self.limits_with(objectives).items():
            label, highest, c = METRICS[metric].label, with_noise(limit), confirmed.get(metric)
            beyond = f"is beyond the limit of {percent(limit)}"
            if c is not None and (c.low if self.only_by_kind(metric, objectives) else c.ratio) > highest:
                return f"{label} {percent(c.ratio)} {beyond}"
            if c is None and fresh is not None and fresh.is_above(metric, highest):
                return f"{label} {beyond}: {fresh.means_shown(metric)}"
        tested = [confirmed[m] for m in objectives if m in confirmed]
        gains = [c for c in tested if c.verdict == "better"]
        if gains and not any(map(gain_matters, gains)):
            sizes = (
                f"{METRICS[c.metric].label} {percent(c.ratio)}"
                + (f", {show_bytes(c.default_median * (1 - c.ratio))}" if METRICS[c.metric].unit == "B" else "")
                for c in gains
            )
            return f"the gain is too small to matter ({'; '.join(sizes)})"
        costs = self.costs_of(tested)
        if gains and self.score(costs) >= 0:
            losses = [c for c in tested if costs[c.metric] > 0]
            cost = " and ".join(f"{METRICS[c.metric].label} {percent(c.ratio)}" for c in losses)
            gain = " and ".join(f"{METRICS[c.metric].label} {percent(c.ratio)}" for c in gains)
            return f"{cost} costs too much for {gain}"
        return ""

    @staticmethod
    def _find(values: Mapping[str, float], metric: str, otherwise: float) -> float:
        return values.get(metric, values.get(METRICS[metric].kind, otherwise))


class Aims(NamedTuple):
    """The objectives of a study, the policy on trade-offs, and the user's requirements."""

    objectives: tuple[str, ...]
    policy: Policy = Policy()
    requires: tuple[Requirement, ...] = ()

    def costs(self, candidate: Candidate) -> tuple[float, ...] | None:
        """A candidate's costs, worse than measured beyond a limit or a requirement; None if it cannot be chosen."""
        costs = candidate.costs(self.objectives)
        if costs is None:
            return None
        beyond = self.policy.excess(candidate, self.objectives) + sum(r.excess(candidate) for r in self.requires)
        return tuple(cost + _LIMIT_PENALTY * beyond for cost in costs)

    @property
    def bounded(self) -> list[str]:
        """The metrics that a limit or a requirement bounds, besides the objectives."""
        named = {metric for metric in self.policy.limits if metric in METRICS} | {r.metric for r in self.requires}
        return sorted(named - set(self.objectives))

    def score(self, costs: Sequence[float]) -> float:
        """Return the sum of the costs by the policy's weights; below 0 the gains outweigh the losses."""
        return self.policy.score(dict(zip(self.objectives, costs, strict=True)))


def with_noise(limit: float) -> float:
    """The ratio that counts as beyond a limit: at least 1 + `MIN_GAIN`, because less may be noise."""
    return max(limit, 1 + MIN_GAIN)


def aims_of(options: Options) -> Aims:
    """The aims of a study."""
    return Aims(options.objectives, Policy(options.limits, options.prices), requirements_of(options))


def requirements_of(options: Options) -> tuple[Requirement, ...]:
    """The requirements of a study."""
    return tuple(parse_requirement(text, stored=True) for text in options.requires)


def gain_matters(c: Confirmation) -> bool:
    """Whether a gain is large enough to act on."""
    saved = c.default_median * (1 - c.ratio)
    return c.ratio <= 1 - MIN_GAIN and (METRICS[c.metric].unit != "B" or saved >= MIN_GAIN_BYTES)


def parse_limits(text: str) -> dict[str, float]:
    """'cpu=+2%,memory=0' → metric or kind → highest ratio.

    Raises:
        UsageError: no such metric, one of which more is better, or no percentage.
    """
    found: dict[str, float] = {}
    for part in filter(None, (word.strip() for word in text.split(","))):
        name, _, value = part.partition("=")
        match = re.fullmatch(r"\+?(\d{1,6}(?:\.\d{1,6})?)\s*%?", value.strip())
        if match is None:
            raise UsageError(f"--limit '{part}' is not METRIC=PERCENT", "for example --limit cpu=+2%")
        key = _named(name.strip())
        if key in METRICS and METRICS[key].larger_is_better:
            short = METRICS[key].short
            raise UsageError(f"--limit '{part}': more {short} is better", f"for example --require '{short} >= 0.98x'")
        found[key] = 1 + float(match[1]) / 100
    return found


def parse_prices(text: str) -> dict[str, float]:
    """'memory:cpu=1:2' (one per cent of memory is worth two of CPU time) → metric or kind → worth.

    Raises:
        UsageError: no such metric, or no two positive numbers.
    """
    names, _, values = text.partition("=")
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?):(\d{1,6}(?:\.\d{1,6})?)", values.strip())
    first, colon, second = names.partition(":")
    if match is None or not colon or min(float(match[1]), float(match[2])) <= 0:
        raise UsageError(f"--price '{text}' is not A:B=X:Y", "for example --price memory:cpu=1:2")
    # X per cent of A are worth as much as Y per cent of B.
    return {_named(first.strip()): 1.0, _named(second.strip()): float(match[1]) / float(match[2])}


def _named(name: str) -> str:
    """A kind ('memory', 'time') as it is, or the key of a metric."""
    return name if name in _KINDS else find_metric(name).key
