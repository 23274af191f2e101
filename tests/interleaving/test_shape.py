"""Tests that planted groups, outliers and spells are found, and that false alarms are rare."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heapwright.interleaving.irregularities import groups_of, irregularities, median_gap
from heapwright.interleaving.shape import MIN_VALUES, groups, shapes
from heapwright.interleaving.stats import Ratio, mean_errors, ratio_interval

RNG = np.random.default_rng(7)
SLOW = math.log(1.6)


def show(value: float) -> str:
    return f"{value:.2f} s"


def two_speeds(n: int, slow: int, seed: int = 1) -> list[float]:
    """Values around 1 s, the last ones around 1.6 s, shuffled."""
    rng = np.random.default_rng(seed)
    logs = rng.normal(0, 0.01, n) + SLOW * (np.arange(n) >= n - slow)
    return [float(v) for v in np.exp(rng.permutation(logs))]


# shapes


@pytest.mark.parametrize("n", [MIN_VALUES, 10, 15, 20, 40, 100])
def test_normal_samples_are_regular(n: int) -> None:
    found = shapes(RNG.normal(0, 0.02, (4000, n)))
    assert found.grouped.mean() <= 0.05
    assert found.irregular.mean() <= 0.1
    assert (found.independent == n).mean() >= 0.9


@pytest.mark.parametrize(("n", "slow"), [(10, 1), (10, 2), (10, 5), (15, 3), (40, 1), (40, 8), (40, 20)])
def test_planted_groups_are_found(n: int, slow: int) -> None:
    rows = np.log([two_speeds(n, slow, seed) for seed in range(200)])
    assert shapes(rows).grouped.mean() >= 0.98
    assert [len(g) for g in groups(list(rows[0]))] == [n - slow, slow]


def test_three_groups_are_found() -> None:
    """Pairs of a program with two speeds."""
    logs = RNG.normal(0, 0.01, 40) + SLOW * np.repeat([-1, 0, 1], [10, 20, 10])
    assert [len(g) for g in groups(list(logs))] == [10, 20, 10]


def test_groups_that_differ_by_less_than_0_05_percent_are_ignored() -> None:
    assert groups([0.0] * 10 + [4e-4] * 10) == [list(range(20))]
    assert not shapes(np.array([[0.0] * 10 + [4e-4] * 10])).uneven[0]


def test_scattered_outliers_are_found() -> None:
    rows = RNG.normal(0, 0.02, (500, 40))
    rows[:, :3] += RNG.uniform(0.1, 0.6, (500, 3))
    assert shapes(rows).uneven.mean() >= 0.95


def test_spells_reduce_the_effective_sample_size() -> None:
    """Each spell has ten values, so 40 values carry about as much information as four independent ones."""
    logs = np.where(np.arange(40) // 10 % 2 == 0, 0.0, SLOW) + RNG.normal(0, 0.01, (200, 40))
    found = shapes(logs)
    assert found.spells.all()
    assert found.independent.max() <= 8


def test_samples_of_fewer_than_eight_values_are_not_tested() -> None:
    found = shapes(np.array([[0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 9.0]]))
    assert (bool(found.irregular[0]), found.independent[0]) == (False, 7)
    assert groups([0.0, 0.0, 0.0, 1.0]) == [[0, 1, 2, 3]]
    assert groups([]) == [[]]


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=60))
def test_groups_are_an_ordered_partition(logs: list[float]) -> None:
    found = groups(logs)
    assert sorted(i for group in found for i in group) == list(range(len(logs)))
    for low, high in itertools.pairwise(found):
        assert max(logs[i] for i in low) < min(logs[i] for i in high)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=50))
def test_standard_errors_are_never_smaller_than_the_usual_one(logs: list[float]) -> None:
    found = mean_errors(np.asarray(logs)[None])
    assert found.error[0] >= np.std(logs, ddof=1) / math.sqrt(len(logs)) - 1e-12
    assert 1 <= found.freedom[0] <= len(logs) - 1


# sentences


def test_groups_are_described() -> None:
    assert groups_of(two_speeds(40, 17), show) == "two groups: 23 of 40 around 1.00 s, 17 of 40 around 1.60 s"
    assert groups_of(two_speeds(40, 2), show) == (
        "a main group and outliers: 38 of 40 around 1.00 s, 2 of 40 around 1.60 s"
    )
    assert groups_of([1.0 + 0.01 * i for i in range(20)], show) is None
    assert groups_of([0.0] * 10 + [1.0] * 10, show) is None  # a value of 0 has no ratio
    assert groups_of([], show) is None


def noted(default: list[float], pick: list[float], **more: tuple[list[float], list[float]]) -> str:
    """The note on one input, or on several."""
    sides = {"default": (default, pick), **more}
    logs = {k: [math.log(b / a) for a, b in zip(*v, strict=True)] for k, v in sides.items()}
    return irregularities(
        {k: v[0] for k, v in sides.items()},
        {k: v[1] for k, v in sides.items()},
        logs,
        ratio_interval(logs, 1),
        0.005,
        show,
    )


def test_regular_runs_need_no_note() -> None:
    steady = [1.0 + 0.01 * (i * 7 % 10) for i in range(40)]
    assert noted(steady, [v * 0.9 for v in reversed(steady)]) == ""


def test_two_groups_are_described() -> None:
    text = noted(two_speeds(40, 17, seed=1), two_speeds(40, 8, seed=2))
    assert "runs of the default fall into two groups: 23 of 40 around 1.00 s, 17 of 40 around 1.60 s" in text
    assert "runs of the pick fall into two groups: 32 of 40 around 1.00 s, 8 of 40 around 1.60 s" in text


def test_drift_that_cancels_in_the_pairs_is_not_described() -> None:
    """The machine was slow during half of the study, for the default and the pick alike."""
    course = [1.0 if i < 20 else 1.6 for i in range(40)]
    wobble = [1 + 0.01 * (i * 7 % 10) for i in range(40)]
    assert noted([a * b for a, b in zip(course, wobble, strict=True)], [a * 0.9 for a in course]) == ""


def test_spells_are_described() -> None:
    pick = [(1.6 if i // 10 % 2 else 1.0) * (1 + 0.001 * (i * 7 % 10)) for i in range(40)]
    text = noted([1.0] * 40, pick)
    assert "high and low pairs come in spells, so 40 pairs carry as much information as" in text
    assert "a study at another time may have other shares of high and low pairs" in text


def test_medians_that_differ_from_the_mean_are_explained() -> None:
    """The default is slow in 21 of 40 runs, the pick in 19. The medians differ by −37%, pairs by a few per cent."""
    text = noted(two_speeds(40, 21, seed=1), two_speeds(40, 19, seed=2))
    assert "the medians of all runs differ by −3" in text
    assert "the median shows only the largest group of runs, the mean weighs every pair" in text


def test_medians_over_inputs_are_explained_by_the_inputs() -> None:
    short = [1.0 + 0.001 * i for i in range(30)]
    others = {f"long {i}": ([50.0 + i, 51.0 + i],) * 2 for i in range(5)}
    text = noted(short, [v * 1.1 for v in short], **others)
    assert text.startswith("the medians of all runs differ by +10.0%, the mean over pairs by +1.6%")
    assert text.endswith("the medians are over the runs of all inputs together, the mean weighs every pair")


def test_an_input_that_changes_the_other_way_is_named() -> None:
    steady = [1.0 + 0.01 * (i * 7 % 10) for i in range(20)]
    worse = (steady, [v * 1.05 for v in reversed(steady)])
    text = noted(steady, [v * 0.8 for v in reversed(steady)], large=worse)
    assert text.startswith("inputs differ: from −20.0% on 'default' to +5.0% on 'large'")
    same = (steady, [v * 0.97 for v in reversed(steady)])
    assert "inputs differ" not in noted(steady, [v * 0.8 for v in reversed(steady)], large=same)


def test_a_gap_of_medians_within_the_interval_is_ignored() -> None:
    sides = {"": [1.0, 1.0, 1.0]}, {"": [0.71, 0.71, 1.2]}
    assert median_gap(*sides, Ratio(0.878, 0.84, 0.91), 0.005) == pytest.approx(0.71)
    assert median_gap(*sides, Ratio(0.75, 0.65, 0.85), 0.005) is None
    assert median_gap(*sides, Ratio(0.878, 0.0, math.inf), 0.005) is None
    assert median_gap({"": [0.0]}, {"": [1.0]}, Ratio(1.0, 0.9, 1.1), 0.005) is None
