"""Tests the comparison of searches on curves with known answers."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from heapwright.errors import HeapwrightError
from heapwright.experiment.analysis import (
    Analysis,
    QualityCurve,
    Ranks,
    a12,
    analyse,
    bands,
    best_so_far,
    curve_of,
    evaluations_to,
    median_evaluations,
    rank_sum_p,
    ranks_of,
    read_search,
    search_evaluations,
    size_of,
)
from heapwright.experiment.definition import Definition, PlannedSearch, Program, expand_searches
from heapwright.report import experiment as pages
from heapwright.report.experiment import joined, ranks_text, summary_table, without_gain, write_results
from heapwright.study.export import EvaluationRun

from ..study.conftest import Tuning
from ..study.fakes import World

PROGRAM = Program("p", ["true"])


def curves(values: dict[str, list[float]], program: str = "p", budget: int = 3) -> list[QualityCurve]:
    return [
        QualityCurve(PlannedSearch(Program(program, ["true"]), method, seed, budget), [1.0, v, v], 3, 0)
        for method, finals in values.items()
        for seed, v in enumerate(finals, 1)
    ]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_a12_is_the_u_statistic(ours: list[float], theirs: list[float]) -> None:
    u = mannwhitneyu(ours, theirs).statistic
    assert a12(ours, theirs) == pytest.approx(u / (len(ours) * len(theirs)))
    assert a12(ours, theirs) == pytest.approx(1 - a12(theirs, ours))


def test_sizes_are_those_of_vargha_and_delaney() -> None:
    assert [size_of(x) for x in (0.5, 0.57, 0.65, 0.72, 0.43, 0.0)] == [
        "negligible", "small", "medium", "large", "small", "large",
    ]  # fmt: skip


def test_evaluations_to_a_target_are_counted() -> None:
    curve = QualityCurve(PlannedSearch(PROGRAM, "m", 1, 4), [1.0, 0.97, 0.97, 0.9], 4, 0)
    assert [evaluations_to(curve, t, False) for t in (1.0, 0.97, 0.95, 0.9, 0.8)] == [1, 2, 4, 4, None]
    grows = QualityCurve(PlannedSearch(PROGRAM, "m", 1, 3), [0.01, 0.02, 0.05], 3, 0)
    assert [evaluations_to(grows, t, True) for t in (0.02, 0.06)] == [2, None]


def test_bands_are_quartiles() -> None:
    found = bands(curves({"m": [0.1, 0.2, 0.3, 0.4, 0.5]}))
    assert found[:, -1] == pytest.approx([0.2, 0.3, 0.4])


def test_ranks_and_the_critical_difference_of_demsar() -> None:
    """Demsar 2006, section 3.2.2: four classifiers on fourteen data sets have a critical difference of 1.25."""
    rng = np.random.default_rng(1)
    every = [
        curve
        for block in range(14)
        for curve in curves(
            {m: [base + rng.normal(0, 0.001)] for m, base in zip("abcd", (0.1, 0.2, 0.3, 0.4), strict=True)},
            f"p{block}",
        )
    ]
    ranks = ranks_of(list("abcd"), every, False)
    assert ranks.average == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert ranks.difference == pytest.approx(1.25, abs=0.005)
    assert ranks.friedman_p is not None
    assert ranks.friedman_p < 1e-6
    assert ranks_of(list("abcd"), every, True).average == {"a": 4, "b": 3, "c": 2, "d": 1}
    assert ranks_of(list("abcde"), every, False).average == {}, "a method that is missing has no rank"


def test_budgets_are_no_repetitions() -> None:
    """Each program counts once, at the largest budget with which all methods have finished."""
    small, large = {"a": [0.1], "b": [0.2], "c": [0.3]}, {"a": [0.3], "b": [0.2], "c": [0.1]}
    every = [
        curve
        for program in ("p1", "p2")
        for budget, values in ((10, small), (20, small), (40, large))
        for curve in curves(values, program, budget)
    ]
    ranks = ranks_of(list("abc"), every, False)
    assert (ranks.programs, ranks.average) == (2, {"a": 3, "b": 2, "c": 1})
    assert ranks.difference == ranks_of(list("abc"), [c for c in every if c.planned.budget == 40], False).difference
    unfinished = [c for c in every if (c.planned.budget, c.planned.method) != (40, "c")]
    assert ranks_of(list("abc"), unfinished, False).average == {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize("odd", [0.0, math.inf], ids=["0 of the setting", "0 of the default"])
def test_a_metric_that_is_zero_in_one_run_of_a_pair_has_no_ratio(odd: float) -> None:
    """The other pairs alone would say that nothing changes."""
    runs = [
        EvaluationRun(n, 1, "search", 1, n, "small", 1, 1, "toy", {}, True, "", {"cpu_s": 0.5, "huge_bytes": ratio}, {})
        for n, ratio in enumerate([1.0, odd])
    ]
    (found,) = search_evaluations(runs)
    assert found.ratios == {"cpu_s": pytest.approx(0.5)}
    curve = curve_of(PlannedSearch(PROGRAM, "random", 1, 2), runs, ["huge_bytes"])
    assert (curve.values, curve.infeasible, curve.without_ratio) == ([1.0, 1.0], 0, 1)


def test_bars_join_methods_that_do_not_differ() -> None:
    assert joined([1.0, 1.5, 2.4, 4.0], 1.0) == [(0, 1), (1, 2)]
    assert joined([1.0, 1.1, 1.2], 5.0) == [(0, 2)]
    assert joined([1.0, 3.0], None) == []


def analysis_of(tmp_path: Path, tuning: Callable[..., Tuning], objectives: tuple[str, ...]) -> Analysis:
    """Two methods with six seeds on a simulated program, on which only `local` comes to an end; one is unfinished."""
    definition = Definition(["random", "local"], [Program("toy", ["true"])], [20], 6, targets=[0.95, 0.85])
    planned_searches = expand_searches(definition)
    done = {}
    for planned in planned_searches[:-1]:

        def effect(settings: dict[str, str], _input: str) -> dict[str, float]:
            return {"cpu_s": 1.0 - 0.02 * len(settings)}

        options: dict[str, object] = {
            "allocator": "toy",
            "method": planned.method,
            "evaluations": planned.budget,
            "seed": planned.seed,
        }
        made = tuning(World(effect=effect), options={**options, "search_only": True, "objectives": objectives})
        made.path = tmp_path / planned.file
        made.go()
        done[planned.file] = read_search(made.path)
    return analyse(definition, planned_searches, done)


def test_an_experiment_is_analysed_from_its_studies(tmp_path: Path, tuning: Callable[..., Tuning]) -> None:
    found = analysis_of(tmp_path, tuning, ("cpu_s",))
    assert (found.missing, len(found.curves), found.larger_is_better) == (1, 11, False)
    for curve in found.curves:
        assert len(curve.values) == 20
        assert curve.values == sorted(curve.values, reverse=True)
        assert 0.9 <= curve.final <= 0.98
    (test,) = found.comparisons
    random, local = ([c.final for c in found.select("toy", 20, m)] for m in ("random", "local"))
    assert test.p == rank_sum_p(local, random)
    assert test.a12 == pytest.approx(a12(random, local))
    head, first, _ = summary_table(found)
    row = dict(zip(head, first, strict=True))
    assert (row["method"], row["searches"]) == ("random", "6")
    head, first, _ = pages.targets_table(found)
    row = dict(zip(head, first, strict=True))
    assert (row["0.85: reached"], row["0.85: evaluations"]) == ("0 of 6", "n/a")
    assert row["0.95: reached"] == f"{sum(v <= 0.95 for v in random)} of 6"
    (numbers, _) = csv.DictReader(io.StringIO(pages.summary_csv(found)))
    assert [float(numbers[k]) for k in ("q1", "median", "q3")] == pytest.approx(np.quantile(random, [0.25, 0.5, 0.75]))
    assert (numbers["reached_0.85"], numbers["median_evaluations_0.85"]) == ("0", "")
    assert pages.tests_table(found)[1][2:4] == ["local", "random"]
    (tested,) = csv.DictReader(io.StringIO(pages.tests_csv(found)))
    assert (float(tested["p"]), float(tested["a12"])) == (test.p, test.a12)
    (tmp_path / "x y.toml").write_text("methods = ['random', 'local']\n")
    files = write_results(found, tmp_path, "heapwright experiment x.toml", tmp_path / "x y.toml")
    assert {f.name for f in files} >= {"results.md", "results.tex", "summary.csv", "convergence.csv", "report.html"}
    page = (tmp_path / "report.html").read_text()
    for name in ("report.html", "results.md", "results.tex"):
        assert "Not finished: it lacks 1 search." in (tmp_path / name).read_text(), name
    assert "methods = [" in (tmp_path / "results.md").read_text(), "the definition"
    assert r"\label{tab:x-y-summary}" in (tmp_path / "results.tex").read_text()
    assert (tmp_path / "runs.csv").read_text().startswith("study,")
    assert page.count("<svg") == 2 * 2
    assert len((tmp_path / "convergence.csv").read_text().splitlines()) == 1 + 11 * 20
    assert ranks_text(found).startswith("Ranks over 1 program; 1 is the best")


def test_several_objectives_are_judged_by_hypervolume(tmp_path: Path, tuning: Callable[..., Tuning]) -> None:
    found = analysis_of(tmp_path, tuning, ("cpu_s", "peak_rss_bytes"))
    assert found.larger_is_better
    for curve in found.curves:
        assert curve.values == sorted(curve.values)
        assert curve.values[0] >= 0.01 - 1e-12
    assert (found.without_gain, without_gain(found)) == ([], "")
    assert pages.quality_name(found).endswith("(larger is better; the default alone has 0.01)")


@pytest.mark.parametrize(("start", "gained"), [(0.01, 0.012), (1.0, 0.98)])
def test_programs_without_any_gain_are_named(start: float, gained: float) -> None:
    """A hypervolume of 0.01 is that of the default alone: methods cannot differ."""
    definition = Definition(["random", "local"], [Program("flat", ["true"]), Program("gains", ["true"])], [2], 1)
    curves = [
        QualityCurve(planned, [start, start if planned.program.name == "flat" else gained], 2, 0, start=start)
        for planned in expand_searches(definition)
    ]
    found = Analysis(definition, ["cpu_s"], start != 1.0, curves, [], Ranks({}, 0, None, None), 0, {})
    assert found.without_gain == ["flat"]
    assert without_gain(found) == (
        "No search found a configuration better than the default, so methods cannot differ: flat."
    )


def test_infeasible_evaluations_change_nothing(tuning: Callable[..., Tuning]) -> None:
    world = World(fails=lambda s: "it crashed" if s else "")
    made = tuning(world, options={"allocator": "toy", "method": "random", "evaluations": 10, "search_only": True})
    made.go()
    runs = read_search(made.path).runs
    assert best_so_far(search_evaluations(runs), ["cpu_s"]) == [1.0] * 10
    assert best_so_far(search_evaluations(runs), ["cpu_s", "peak_rss_bytes"]) == pytest.approx([0.01] * 10)
    curve = curve_of(PlannedSearch(PROGRAM, "random", 1, 15), runs, ["cpu_s", "peak_rss_bytes"])
    assert (len(curve.values), curve.infeasible, curve.is_short) == (15, 10, True)
    assert math.isclose(curve.final, 0.01)


def test_later_stages_do_not_change_the_quality(tuning: Callable[..., Tuning]) -> None:
    def effect(settings: dict[str, str], _input: str) -> dict[str, float]:
        return {"cpu_s": 1.0 - 0.02 * len(settings)}

    options = {"allocator": "toy", "method": "random", "evaluations": 12, "seed": 3}
    alone = tuning(World(effect=effect), options={**options, "search_only": True})
    confirmed = tuning(World(effect=effect), options=options)
    confirmed.path = alone.path.with_name("confirmed.study")
    for made in (alone, confirmed):
        made.go()
    search, whole = (read_search(made.path) for made in (alone, confirmed))
    assert {run.stage for run in whole.runs} > {run.stage for run in search.runs}, "there are later stages"
    first = {(r.evaluation, r.block): r.ratios for r in whole.runs if r.stage == "search" and r.evaluation}
    for number, found in enumerate(search_evaluations(whole.runs), 1):
        (ratios,) = (v for (n, _), v in first.items() if n == number)
        assert found.ratios == pytest.approx(ratios)


def test_the_median_counts_the_searches_that_did_not_reach_the_target() -> None:
    def three(*values: list[float]) -> list[QualityCurve]:
        return [QualityCurve(PlannedSearch(PROGRAM, "m", seed, 3), v, 3, 0) for seed, v in enumerate(values, 1)]

    never, late, early = [1.0, 1.0, 1.0], [1.0, 1.0, 0.9], [0.9, 0.9, 0.9]
    assert median_evaluations(three(never, late, early), 0.9, False) == 3
    assert median_evaluations(three(never, never, early), 0.9, False) is None
    assert median_evaluations(three(early), 0.9, False) == 1


def test_p_is_never_smaller_than_the_number_of_searches_allows() -> None:
    assert rank_sum_p([1.0, 1.0, 1.0], [0.5, 0.6, 0.5]) == pytest.approx(0.1), "2 of the 20 ways to divide six values"
    assert rank_sum_p([1.0, 1.0], [0.5, 0.5]) == pytest.approx(1 / 3)
    assert rank_sum_p([1.0] * 3, [1.0] * 3) == 1
    assert rank_sum_p([1.0], [0.5, 0.6]) == 1
    assert rank_sum_p([1, 2, 3], [4, 5, 6]) == pytest.approx(0.1)
    many = list(range(30))
    assert rank_sum_p(many, many) == pytest.approx(1)


def test_studies_of_other_objectives_are_not_mixed(tmp_path: Path, tuning: Callable[..., Tuning]) -> None:
    definition = Definition(["random"], [Program("toy", ["true"])], [3], 2)
    done = {}
    for planned, objective in zip(expand_searches(definition), ("cpu_s", "peak_rss_bytes"), strict=True):
        options = {"allocator": "toy", "method": "random", "evaluations": 3, "objectives": (objective,)}
        made = tuning(World(), options={**options, "search_only": True})
        made.path = tmp_path / planned.file
        made.go()
        done[planned.file] = read_search(made.path)
    with pytest.raises(HeapwrightError, match=r"toy-random-3-2\.study has other objectives \(peak_rss_bytes\)"):
        analyse(definition, expand_searches(definition), done)
