"""Compares the searches of an experiment: convergence, evaluations to target, rank tests and critical differences.

The quality of a search after n evaluations is, for one objective, the best ratio to the default among its first n
configurations (1 before the first, smaller is better); for several objectives, the hypervolume of their Pareto front
(`search.quality`, larger is better). Ratios are those of the search's single runs, also if later stages ran its picks
again. So luck selects the best of them, and the qualities are optimistic for every method alike; only `confirm` proves
a gain.

- Mann-Whitney U, two-sided (`rank_sum_p`), of each method against the reference; Holm's method adjusts p over all.
- A12 (Vargha and Delaney 2000): probability that a search of the method is better than one of the reference, ties half.
- Average ranks over programs with Friedman's test, and Nemenyi's critical difference (Demsar 2006). Each program counts
  once, at its largest budget: a search of a larger budget begins as one of a smaller budget does.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from heapwright.errors import HeapwrightError
from heapwright.experiment.definition import Definition, PlannedSearch
from heapwright.interleaving.phases import OF_REPLAYS, Phase
from heapwright.interleaving.stats import ALPHA, holm
from heapwright.search.quality import REFERENCE, hypervolume_so_far
from heapwright.study.export import EvaluationRun, evaluation_runs
from heapwright.study.load import view_of
from heapwright.study.store import read_study, study_errors

_EXACT_UP_TO = 8  # values of each sample


@dataclass(frozen=True)
class QualityCurve:
    """The quality of one search over its evaluations.

    Attributes:
        planned: the search.
        values: quality after 1, 2, … evaluations, up to the budget. A search that ended early keeps its last value.
        evaluations: configurations that were evaluated.
        infeasible: of these, how many crashed, timed out or changed the output.
        without_ratio: of these, how many are feasible but have no ratio of an objective, so that they do not count.
        machines: the workers of a cluster that made its runs, as machine:process; empty if there was no cluster.
        start: the quality of the default alone.
    """

    planned: PlannedSearch
    values: list[float]
    evaluations: int
    infeasible: int
    machines: tuple[str, ...] = ()
    without_ratio: int = 0
    start: float = 1.0

    @property
    def gains(self) -> bool:
        """Whether it found a configuration that is better than the default."""
        return not math.isclose(self.final, self.start)

    @property
    def is_short(self) -> bool:
        """Whether it ended before its budget: its method had nothing more to propose."""
        return self.evaluations < self.planned.budget

    @property
    def final(self) -> float:
        """The quality at the end."""
        return self.values[-1]


@dataclass(frozen=True)
class MethodTest:
    """A method against the reference, for one program and budget.

    Attributes:
        p: of the Mann-Whitney test; adjusted: by Holm over all tests of the experiment.
        a12: probability that the method is better; 0.5 is no difference.
        size: 'negligible', 'small', 'medium' or 'large', by the thresholds 0.56, 0.64 and 0.71 of Vargha and Delaney.
    """

    program: str
    budget: int
    method: str
    reference: str
    p: float
    adjusted: float
    a12: float
    size: str


@dataclass(frozen=True)
class Ranks:
    """Average ranks of the methods over programs; rank 1 is the best.

    Attributes:
        average: method → average rank.
        programs: number of programs; each is a block.
        friedman_p: p value that all methods are alike; None with fewer than three methods or two programs.
        difference: Nemenyi's critical difference; None with fewer than two programs.
    """

    average: dict[str, float]
    programs: int
    friedman_p: float | None
    difference: float | None


@dataclass(frozen=True)
class Analysis:
    """The results of an experiment.

    Attributes:
        objectives: metric keys.
        larger_is_better: whether the quality is a hypervolume.
        curves: of all finished searches.
        comparisons: of each method with the reference.
        ranks: over programs.
        missing: number of searches that are not finished.
        searches: `PlannedSearch.file` → the search, for those of the curves.
    """

    definition: Definition
    objectives: list[str]
    larger_is_better: bool
    curves: list[QualityCurve]
    comparisons: list[MethodTest]
    ranks: Ranks
    missing: int
    searches: dict[str, FinishedSearch]

    def select(self, program: str, budget: int, method: str) -> list[QualityCurve]:
        """Return the searches of a program, budget and method, by seed."""
        return [
            c
            for c in self.curves
            if (c.planned.program.name, c.planned.budget, c.planned.method) == (program, budget, method)
        ]

    @property
    def predicted(self) -> list[str]:
        """The programs of which there are only recordings: all their runs are replays."""
        return [program.name for program in self.definition.program if program.traces]

    @property
    def without_gain(self) -> list[str]:
        """The programs of which no search found a configuration that is better than the default."""
        found = dict.fromkeys(c.planned.program.name for c in self.curves)
        return [name for name in found if not any(c.gains for c in self.curves if c.planned.program.name == name)]

    def groups(self) -> list[tuple[str, int]]:
        """Return the programs and budgets that have finished searches."""
        return list(dict.fromkeys((c.planned.program.name, c.planned.budget) for c in self.curves))


def a12(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the probability that a value of ours is larger than one of theirs; ties count half."""
    wins = sum((a > b) + 0.5 * (a == b) for a in ours for b in theirs)
    return wins / (len(ours) * len(theirs))


def size_of(effect: float) -> str:
    """Return the size of an A12 in words (Vargha and Delaney 2000)."""
    distance = abs(effect - 0.5)
    return next(
        (name for limit, name in ((0.06, "negligible"), (0.14, "small"), (0.21, "medium")) if distance < limit), "large"
    )


@dataclass(frozen=True)
class SearchEvaluation:
    """The evaluation of a configuration in its search, before any later stage ran it again.

    Attributes:
        feasible: none of its runs crashed, timed out or changed the output.
        ratios: metric key → geometric mean of the ratios to the default's runs beside it; of runs of the program. A
            metric with a pair of which one value is 0 and the other is not has no ratio: the other pairs alone would
            hide the change.
    """

    feasible: bool
    ratios: dict[str, float]


def search_evaluations(runs: Sequence[EvaluationRun]) -> list[SearchEvaluation]:
    """Return the configurations of a search, in the order of first evaluation.

    Args:
        runs: of the study, all stages.
    """
    later = (Phase.SHORTLIST, Phase.CONFIRM, Phase.WHOLE_RUN, Phase.VERIFY)
    found: dict[int, list[EvaluationRun]] = {}
    for run in runs:
        if run.evaluation and run.stage not in later and not run.stage.startswith(Phase.minify("")):
            found.setdefault(run.evaluation, []).append(run)
    return [SearchEvaluation(all(r.feasible for r in own), _mean_ratios(own)) for _, own in sorted(found.items())]


def _mean_ratios(runs: Sequence[EvaluationRun]) -> dict[str, float]:
    own = [r.ratios for r in runs if r.stage not in OF_REPLAYS]
    logs: dict[str, list[float]] = {}
    for key, ratio in (item for ratios in own for item in ratios.items()):
        logs.setdefault(key, []).append(math.log(ratio) if 0 < ratio < math.inf else math.nan)
    means = {key: statistics.fmean(values) for key, values in logs.items()}
    return {key: math.exp(mean) for key, mean in means.items() if not math.isnan(mean)}


def best_so_far(evaluations: Sequence[SearchEvaluation], objectives: Sequence[str]) -> list[float]:
    """Return the quality after each evaluation; an infeasible one changes nothing."""
    if len(objectives) > 1:
        worst = [math.inf] * len(objectives)  # dominated by the default, so it adds no hypervolume
        return hypervolume_so_far([[e.ratios[k] for k in objectives] if _counts(e, objectives) else worst
                                   for e in evaluations])  # fmt: skip
    best, found = 1.0, []
    for e in evaluations:
        if _counts(e, objectives):
            best = min(best, e.ratios[objectives[0]])
        found.append(best)
    return found


def default_quality(objectives: Sequence[str]) -> float:
    """Return the quality of the default alone."""
    return (REFERENCE - 1) ** len(objectives) if len(objectives) > 1 else 1.0


def _counts(evaluation: SearchEvaluation, objectives: Sequence[str]) -> bool:
    return evaluation.feasible and all(k in evaluation.ratios for k in objectives)


def evaluations_to(curve: QualityCurve, target: float, larger_is_better: bool) -> int | None:
    """Return the number of evaluations in which a search reached a target; None if it did not.

    Args:
        curve: the search.
        target: the quality to reach.
        larger_is_better: whether the quality is a hypervolume.
    """
    return next((n for n, v in enumerate(curve.values, 1) if (v >= target if larger_is_better else v <= target)), None)


def bands(curves: Sequence[QualityCurve]) -> NDArray[np.float64]:
    """Return (3, budget): the quartiles over searches after each evaluation."""
    quartiles: NDArray[np.float64] = np.quantile(np.array([c.values for c in curves]), [0.25, 0.5, 0.75], axis=0)
    return quartiles


def curve_of(planned: PlannedSearch, runs: Sequence[EvaluationRun], objectives: Sequence[str]) -> QualityCurve:
    """Return the curve of a finished study.

    Args:
        planned: the search.
        runs: of its study.
        objectives: metric keys.
    """
    evaluations = search_evaluations(runs)
    values = best_so_far(evaluations, objectives)[: planned.budget]
    start = default_quality(objectives)
    values += [values[-1] if values else start] * (planned.budget - len(values))
    machines = dict.fromkeys(run.machine for run in runs if run.machine)
    infeasible = sum(not e.feasible for e in evaluations)
    without_ratio = sum(e.feasible and not _counts(e, objectives) for e in evaluations)
    return QualityCurve(planned, values, len(evaluations), infeasible, tuple(machines), without_ratio, start)


def median_evaluations(curves: Sequence[QualityCurve], target: float, larger_is_better: bool) -> float | None:
    """Return the median number of evaluations to a target over all searches; None if half of them did not reach it.

    Args:
        curves: the searches of a method.
        target: the quality to reach.
        larger_is_better: whether the quality is a hypervolume.
    """
    found = [evaluations_to(c, target, larger_is_better) for c in curves]
    middle = statistics.median(math.inf if n is None else n for n in found)
    return None if math.isinf(middle) else middle


def rank_sum_p(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the two-sided p value of Mann and Whitney's test; 1 if all values are equal or a sample has only one.

    It is exact for up to eight values each: by the test's distribution, or, if values are equal, by all permutations.
    Above, it is the normal approximation, corrected for equal values.
    """
    from scipy.stats import PermutationMethod, mannwhitneyu

    if min(len(ours), len(theirs)) < 2:
        return 1.0
    ways = math.comb(len(ours) + len(theirs), len(ours))
    method: Literal["exact", "asymptotic"] | PermutationMethod = "asymptotic"
    if max(len(ours), len(theirs)) <= _EXACT_UP_TO:
        equal = len({*ours, *theirs}) < len(ours) + len(theirs)
        method = PermutationMethod(n_resamples=ways) if equal else "exact"
    p = float(mannwhitneyu(ours, theirs, alternative="two-sided", method=method).pvalue)
    return 1.0 if math.isnan(p) else p


@dataclass(frozen=True)
class FinishedSearch:
    """A finished search, as its study has it.

    Attributes:
        runs: all of them, in order.
        objectives: metric keys.
        allocators: names of those that were searched.
        claim: the study's sentence on its picks; of interest if the experiment confirms them.
        version: of heapwright.
        created: when the study began, UTC in ISO 8601.
        host: the machine, as `measure.host.describe_host` describes it.
        not_repeated: number of configurations that the method proposed before an interruption and not again
            (`study.meta`).
    """

    runs: list[EvaluationRun]
    objectives: list[str]
    allocators: list[str]
    claim: str
    version: str
    created: str
    host: dict[str, Any]
    not_repeated: int = 0


def read_search(study: Path) -> FinishedSearch:
    """Read a finished search.

    Raises:
        HeapwrightError: the study cannot be read.
    """
    with read_study(study) as store, study_errors(study):
        view, meta = view_of(store), store.meta
        return FinishedSearch(
            evaluation_runs(store), list(view.objectives), sorted(meta.spaces), view.claim, meta.version,
            meta.created, dict(meta.host), meta.strayed,
        )  # fmt: skip


def analyse(
    definition: Definition, planned_searches: Sequence[PlannedSearch], done: Mapping[str, FinishedSearch]
) -> Analysis:
    """Compare the finished searches.

    Args:
        definition: the experiment.
        planned_searches: all its searches.
        done: name of a finished search (`PlannedSearch.file`) → what its study has.

    Raises:
        HeapwrightError: two studies have different objectives.
    """
    curves, objectives = [], list[str]()
    for planned in planned_searches:
        if planned.file in done:
            search = done[planned.file]
            if objectives and search.objectives != objectives:
                raise HeapwrightError(
                    f"{planned.file} has other objectives ({', '.join(search.objectives)}) than the searches before it"
                )
            objectives = search.objectives
            curves.append(curve_of(planned, search.runs, objectives))
    larger = len(objectives) > 1
    return Analysis(
        definition,
        objectives,
        larger,
        curves,
        _comparisons(definition, curves, larger),
        ranks_of(definition.methods, curves, larger),
        len(planned_searches) - len(curves),
        {c.planned.file: done[c.planned.file] for c in curves},
    )


def _finals(curves: Sequence[QualityCurve]) -> dict[tuple[str, int], dict[str, list[float]]]:
    """Return (program, budget) → method → final qualities."""
    found: dict[tuple[str, int], dict[str, list[float]]] = {}
    for c in curves:
        key = (c.planned.program.name, c.planned.budget)
        found.setdefault(key, {}).setdefault(c.planned.method, []).append(c.final)
    return found


def _comparisons(definition: Definition, curves: Sequence[QualityCurve], larger: bool) -> list[MethodTest]:
    raw: list[tuple[str, int, str, float, float]] = []
    for (program, budget), methods in _finals(curves).items():
        theirs = methods.get(definition.against, [])
        for method, ours in methods.items():
            if method == definition.against or len(ours) < 2 or len(theirs) < 2:
                continue
            effect = a12(ours, theirs) if larger else a12(theirs, ours)
            raw.append((program, budget, method, rank_sum_p(ours, theirs), effect))
    adjusted = holm([p for *_, p, _ in raw])
    return [
        MethodTest(program, budget, method, definition.against, p, q, effect, size_of(effect))
        for (program, budget, method, p, effect), q in zip(raw, adjusted, strict=True)
    ]


def ranks_of(methods: Sequence[str], curves: Sequence[QualityCurve], larger: bool) -> Ranks:
    """Return the average ranks of the methods over programs.

    A program counts once, at the largest budget with which all methods have finished searches. Its budgets are no
    independent repetitions.

    Args:
        methods: names, in the order of the definition.
        curves: the finished searches.
        larger: whether a larger quality is better.
    """
    from scipy.stats import friedmanchisquare, rankdata, studentized_range

    largest: dict[str, tuple[int, dict[str, list[float]]]] = {}
    for (program, budget), found in _finals(curves).items():
        if set(methods) <= set(found) and budget > largest.get(program, (0,))[0]:
            largest[program] = budget, found
    whole = [found for _, found in largest.values()]
    if not whole or len(methods) < 2:
        return Ranks({}, len(whole), None, None)
    table = np.array([[float(np.median(found[m])) for m in methods] for found in whole])
    ranks = np.array([rankdata(-row if larger else row) for row in table])
    k, n = len(methods), len(whole)
    p = float(friedmanchisquare(*ranks.T).pvalue) if k > 2 and n > 1 else math.nan
    width = float(studentized_range.ppf(1 - ALPHA, k, np.inf)) / math.sqrt(2) * math.sqrt(k * (k + 1) / (6 * n))
    average = dict(zip(methods, (float(r) for r in ranks.mean(axis=0)), strict=True))
    return Ranks(average, n, None if math.isnan(p) else p, width if n > 1 else None)
