"""Gathers paired log ratios of configurations to the default from the runs of blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from heapwright.interleaving.configuration import Config
from heapwright.interleaving.records import StoredRun
from heapwright.interleaving.stats import ALPHA, log_ratio, signed_rank
from heapwright.metrics import METRICS

# (input, metric) → value of the program under the default.
Program = Mapping[tuple[str, str], float]


@dataclass
class Candidate:
    """One configuration compared with the default.

    Attributes:
        config: the configuration.
        failure: why the configuration is infeasible, or empty.
        runs: number of its runs that succeeded.
        logs: metric → input name → paired log ratios to the reference, in the order of the runs. A metric with a pair
            of which one value is 0 and the other is not has no logs: the other pairs alone would hide the change.
            `change` and `is_above` judge it by its values.
        values: metric → input → values of its runs of the program, in the order of the runs.
        pairs: likewise, with the value of the reference in the same pair; where both were measured.
    """

    config: Config
    failure: str = ""
    runs: int = 0
    logs: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    pairs: dict[str, dict[str, list[tuple[float, float]]]] = field(default_factory=dict)
    _without_ratio: set[str] = field(default_factory=set)

    def add(self, run: StoredRun, reference: StoredRun, program: Program | None = None) -> None:
        """Take in a run and the reference's run of the same block and input, which together are a pair.

        Args:
            run: a run of this configuration.
            reference: the reference's run. Not used if `run` failed.
            program: see `gather`.
        """
        if run.failure:
            self.failure = self.failure or run.failure
            return
        self.runs += 1
        for metric, value in run.metrics.items():
            default_value = reference.metrics.get(metric)
            if program is None and value is not None:
                self.values.setdefault(metric, {}).setdefault(run.input, []).append(value)
                if default_value is not None:
                    self.pairs.setdefault(metric, {}).setdefault(run.input, []).append((value, default_value))
            if program is not None:
                value, default_value = _predicted(value, default_value, program.get((run.input, metric)))
            ratio = log_ratio(value, default_value)
            if ratio is None and value is not None and default_value is not None:
                self._without_ratio.add(metric)
                self.logs.pop(metric, None)
            elif ratio is not None and metric not in self._without_ratio:
                self.logs.setdefault(metric, {}).setdefault(run.input, []).append(ratio)

    def cost(self, metric: str) -> float | None:
        """Return the mean over inputs of the mean log ratio; None where the metric was not measured or has no ratio."""
        groups = self.logs.get(metric)
        if not groups:
            return None
        return sum(sum(g) / len(g) for g in groups.values()) / len(groups)

    def has_no_ratio(self, metric: str) -> bool:
        """Whether runs of the program measured this metric, and it is 0 in one run of a pair and not in the other."""
        return metric in self._without_ratio and metric in self.pairs

    def change(self, metric: str) -> float | None:
        """Return the cost; of a metric without ratios the log of the ratio of means, infinite if the default's is 0."""
        if not self.has_no_ratio(metric):
            return self.cost(metric)
        mean, default_mean = self._means(metric)
        if default_mean == 0:
            return math.inf
        return math.log(mean / default_mean) if mean > 0 else -math.inf

    def is_above(self, metric: str, ratio: float, alpha: float = ALPHA) -> bool | None:
        """Whether the values of a metric without ratios are shown to be above a multiple of the default's, or below.

        It is Wilcoxon's signed-rank test of the differences, because they exist for a default of 0 too.

        Args:
            metric: key.
            ratio: the multiple.
            alpha: error probability.

        Returns:
            None if neither is shown, or if the metric has ratios or was not measured.
        """
        if not self.has_no_ratio(metric):
            return None
        found = [value - ratio * default for group in self.pairs[metric].values() for value, default in group]
        p, above = signed_rank(found)
        return above if p < alpha else None

    def means_shown(self, metric: str) -> str:
        """The mean values of this setting and the default, for people: '20.0 MiB, by default 0 B'."""
        show = METRICS[metric].show
        mean, default_mean = self._means(metric)
        return f"{show(mean)}, by default {show(default_mean)}"

    def _means(self, metric: str) -> tuple[float, float]:
        """Return the mean value of the metric here and under the default; each input counts the same."""
        means = [map(fmean, zip(*group, strict=True)) for group in self.pairs[metric].values()]
        mean, default_mean = map(fmean, zip(*means, strict=True))
        return mean, default_mean

    def costs(self, metrics: Sequence[str]) -> tuple[float, ...] | None:
        """Return the cost in each of these metrics; None if the configuration failed or a metric has no cost."""
        values = [self.cost(m) for m in metrics]
        if self.failure or any(v is None for v in values):
            return None
        return tuple(v for v in values if v is not None)


class Comparisons:
    """The runs of blocks, compared with any configuration that the blocks hold."""

    def __init__(self, runs: Sequence[StoredRun], configs: Mapping[int, Config]) -> None:
        self._runs, self._configs = runs, configs
        self._found: dict[int, dict[int, Candidate]] = {}

    def to(self, reference: int) -> dict[int, Candidate]:
        """Configuration id → its comparison with this one, in the blocks that hold both."""
        if reference not in self._found:
            self._found[reference] = gather(self._runs, self._configs, reference)
        return self._found[reference]


def gather(
    runs: Sequence[StoredRun], configs: Mapping[int, Config], reference: int, program: Program | None = None
) -> dict[int, Candidate]:
    """Compare each run with the reference's run of the same block and input.

    Args:
        runs: runs of any number of blocks.
        configs: configuration id → configuration.
        reference: id of the reference.
        program: None if the runs are runs of the program. If they are replays: values of the program under the
            default; the log ratios are then those predicted for the program.

    Returns:
        Configuration id → its log ratios, for every configuration but the reference.
    """
    base = {(r.phase, r.block, r.input): r for r in runs if r.config == reference and not r.failure}
    found: dict[int, Candidate] = {}
    for run in runs:
        if run.config == reference:
            continue
        candidate = found.setdefault(run.config, Candidate(configs[run.config]))
        against = base.get((run.phase, run.block, run.input))
        if against is not None and not _same_kind(run, against):
            against = None
        if run.failure or against is not None:
            candidate.add(run, against or run, program)
    return found


def _same_kind(one: StoredRun, other: StoredRun) -> bool:
    """Whether two runs were made on the same kind of machine. Runs of older studies do not say; they count as equal."""
    kinds = {one.extra.get("host"), other.extra.get("host")} - {None}
    return len(kinds) < 2


def _predicted(
    value: float | None, reference: float | None, program: float | None
) -> tuple[float | None, float | None]:
    """Predict the program's value from a replay: it changes by as much as the replay, in the metric's own unit.

    A program does more than allocate. If a replay takes 10 ms less, the program takes 10 ms less too, not the same
    share less. A predicted value is at least a twentieth of the program's, because a replay can err by a constant.

    Args:
        value: the metric in a replay of the configuration.
        reference: the metric in the replay of the default in the same block.
        program: the metric in the program under the default.

    Returns:
        The predicted value and the program's value; both None where one of the three is unknown, or the last is 0.
    """
    if value is None or reference is None or not program:
        return None, None
    return max(program + value - reference, program / 20), program
