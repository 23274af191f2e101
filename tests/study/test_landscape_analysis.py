"""Tests measures of landscapes on landscapes with known answers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heapwright.study.landscape_analysis import (
    analyse_landscape,
    autocorrelation,
    correlation_length,
    fitness_distance,
    local_optima,
    neutrality,
)
from heapwright.study.landscape_judge import neighbours

CUBE = [2] * 8
BITS = list(itertools.product((0, 1), repeat=8))
ONE_MAX = [float(8 - sum(bits)) for bits in BITS]  # the cost: how many bits are 0
TRAP = [0.0 if sum(bits) == 8 else 1.0 + sum(bits) for bits in BITS]  # all ones are best, and every step there is worse


def nk(n: int, k: int, seed: int) -> list[float]:
    """An NK landscape with random neighbours (Kauffman)."""
    rng = np.random.default_rng(seed)
    tables = rng.random((n, 2 ** (k + 1)))
    others = [rng.choice([j for j in range(n) if j != i], k, replace=False) for i in range(n)]
    weights = 2 ** np.arange(k + 1)
    return [
        float(np.mean([tables[i][np.dot([bits[i], *(bits[j] for j in others[i])], weights)] for i in range(n)]))
        for bits in itertools.product((0, 1), repeat=n)
    ]


def test_the_fitness_distance_of_one_max_and_of_a_trap() -> None:
    """Jones and Forrest 1995: -1 for the fitness of one-max, so 1 for its cost; a trap deceives."""
    assert fitness_distance(ONE_MAX, CUBE) == pytest.approx(1)
    assert (fitness_distance(TRAP, CUBE) or 0) < -0.85
    assert fitness_distance([1.0] * 256, CUBE) is None


def test_one_max_is_linear() -> None:
    """The landscape is elementary: r(1) = 1 - 2/n over the whole hypercube (Stadler 1996)."""
    assert autocorrelation(ONE_MAX, CUBE) == pytest.approx(1 - 2 / 8)
    assert correlation_length(1 - 2 / 8) == pytest.approx(-1 / math.log(0.75))
    assert neutrality(ONE_MAX, CUBE) == 0
    found = local_optima(ONE_MAX, CUBE)
    assert [(o.cost, o.basin) for o in found.optima] == [(0, 256)]
    assert found.edges == {(0, 0): pytest.approx(1)}


@pytest.mark.parametrize("k", [1, 3, 7])
def test_the_correlation_of_nk_landscapes(k: int) -> None:
    """Weinberger 1990: r(1) = 1 - (K + 1) / N on average, where the mean over all landscapes is subtracted.

    Here each landscape's own mean is subtracted. In Walsh terms, each of the 2^(K+1) - 1 coefficients of a part that
    are not constant has the same power, and one of order p is correlated by 1 - 2p / N (Stadler 1996).
    """
    found = [autocorrelation(nk(8, k, seed), CUBE) or 0.0 for seed in range(40)]
    expected = 1 - 2 * (k + 1) * 2**k / (8 * (2 ** (k + 1) - 1))
    error = float(np.std(found)) / math.sqrt(len(found))
    assert float(np.mean(found)) == pytest.approx(expected, abs=4 * error + 0.005)


def test_more_epistasis_has_more_optima() -> None:
    """Ochoa et al. 2008: the number of optima grows with K; that of random landscapes is 2^N / (N + 1)."""
    counts = [np.mean([len(local_optima(nk(8, k, seed), CUBE).optima) for seed in range(20)]) for k in (1, 4, 7)]
    assert counts == sorted(counts)
    assert counts[2] == pytest.approx(256 / 9, rel=0.1)


def test_two_valleys_have_two_basins_and_their_transitions() -> None:
    """Nine points in a row: basins of four and five points, and one border that both sides cross."""
    costs = [3.0, 1.0, 2.0, 4.0, 5.0, 3.0, 2.0, 0.0, 1.0]
    found = local_optima(costs, [9])
    assert [(o.point, o.cost, o.basin) for o in found.optima] == [(7, 0, 5), (1, 1, 4)]
    # Of the five points only the border (4) has a neighbour in the other basin: half of its steps,
    # a tenth of all.
    assert found.edges == {
        (0, 0): pytest.approx(0.9), (0, 1): pytest.approx(0.1),
        (1, 0): pytest.approx(0.125), (1, 1): pytest.approx(0.875),
    }  # fmt: skip


def test_a_wave_has_its_own_correlation() -> None:
    """A cosine of period 20 over many periods: r(s) = cos(2 pi s / 20)."""
    costs = [math.cos(2 * math.pi * i / 20) for i in range(2000)]
    for distance in (1, 5, 10):
        assert autocorrelation(costs, [2000], distance) == pytest.approx(
            math.cos(2 * math.pi * distance / 20), abs=0.01
        )


def test_a_correlation_that_falls_exponentially_has_its_length() -> None:
    rng = np.random.default_rng(3)
    values = [0.0]
    for _ in range(20_000):
        values.append(0.9 * values[-1] + rng.normal())
    length = correlation_length(autocorrelation(values, [len(values)]))
    assert length == pytest.approx(-1 / math.log(0.9), rel=0.1)
    assert correlation_length(None) is None
    assert correlation_length(1.0) == math.inf
    assert correlation_length(0.0) is None
    assert correlation_length(-0.1) is None, "neighbours that are unlike have no length"


def test_neutrality_counts_steps_without_change() -> None:
    stairs = [0.0, 0.0, 0.0, 1.0, 1.0, 2.0]
    assert neutrality(stairs, [6]) == pytest.approx(3 / 5)
    assert neutrality([0.0, 0.4, 1.0], [3], tolerance=0.5) == pytest.approx(1 / 2)
    assert neutrality([0.0, None, 1.0], [3]) is None


def test_noise_within_the_tolerance_makes_no_optima() -> None:
    rng = np.random.default_rng(1)
    noisy = [abs(i - 10) + float(rng.uniform(-0.05, 0.05)) for i in range(21)]
    assert len(local_optima([0.3 + 0.02 * (i % 2) for i in range(9)], [9]).optima) == 5
    assert len(local_optima([0.3 + 0.02 * (i % 2) for i in range(9)], [9], tolerance=0.1).optima) == 1
    assert [o.point for o in local_optima(noisy, [21], tolerance=0.2).optima] == [10]


def test_two_points_within_the_tolerance_of_each_other_make_no_two_optima() -> None:
    """A sweep of peak memory under load: all ratios are within the tolerance. Rounding to bins gave three optima."""
    ratios = [1.0042, 1.0065, 1.0023, 1.0089, 1.0143, 1.0049, 1.0189, 1.0261, 1.0142, 1.0215, 1.0177, 1.0120]
    costs = [math.log(r) for r in ratios]
    assert neutrality(costs, [12], 0.0417) == 1
    assert [(o.point, o.basin) for o in local_optima(costs, [12], 0.0417).optima] == [(2, 12)]


def test_a_plateau_with_a_way_down_is_no_optimum() -> None:
    assert [(o.point, o.basin) for o in local_optima([2.0, 1.0, 1.0, 0.0, 3.0], [5]).optima] == [(3, 5)]
    assert [(o.point, o.basin) for o in local_optima([2.0, 1.0, 1.0, 3.0, 0.0], [5]).optima] == [(4, 2), (1, 3)]
    # A sweep of page faults: 1 KiB is within the tolerance of 4 KiB, from which a step leads down
    # to 16 KiB, and from there a step up that is within the tolerance leads to the valley.
    ratios = [1.0583, 1.0379, 1.0376, 1.0132, 1.0305, 0.7183, 0.6931, 0.6930, 0.6926, 0.6926, 0.6927, 0.6926]
    assert [o.basin for o in local_optima([math.log(r) for r in ratios], [12], 0.01804).optima] == [12]
    assert [o.basin for o in local_optima([math.log(r) for r in ratios], [12], 0.01).optima] == [8, 4]


def test_a_ridge_of_small_steps_separates_two_valleys() -> None:
    """Each step is within the tolerance; the ridge is not."""
    costs = [*range(6), *range(5, -1, -1)]
    assert [(o.point, o.basin) for o in local_optima([float(c) for c in costs], [12], 2.0).optima] == [(0, 6), (11, 6)]
    assert [o.basin for o in local_optima([float(c) for c in costs], [12], 5.0).optima] == [12]


@given(st.lists(st.integers(0, 6), min_size=20, max_size=20), st.integers(0, 3))
def test_an_optimum_is_lower_than_all_that_a_small_rise_reaches(costs: list[int], tolerance: int) -> None:
    """The definition, by a flood from each point up to the tolerance above it; of equal points the first counts."""
    shape = [4, 5]
    adjacent: dict[int, set[int]] = {i: set() for i in range(20)}
    for i, j in neighbours(shape):
        adjacent[i].add(j)
        adjacent[j].add(i)
    expected = []
    for point in range(20):
        flood, new = {point}, [point]
        while new:
            around = {p for p in adjacent[new.pop()] if costs[p] <= costs[point] + tolerance} - flood
            flood |= around
            new += around
        if min((costs[p], p) for p in flood) == (costs[point], point):
            expected.append(point)
    assert sorted(o.point for o in local_optima(costs, shape, tolerance).optima) == expected


@given(st.lists(st.one_of(st.none(), st.floats(-1, 1)), min_size=12, max_size=12), st.sampled_from([0.0, 0.25]))
def test_a_network_is_a_partition_with_probabilities(costs: list[float | None], tolerance: float) -> None:
    found = local_optima(costs, [3, 4], tolerance)
    assert sum(o.basin for o in found.optima) == sum(c is not None for c in costs)
    for node in range(len(found.optima)):
        assert sum(p for (a, _), p in found.edges.items() if a == node) == pytest.approx(1)
    if found.optima:
        least = min(c for c in costs if c is not None)
        assert found.optima[0].cost <= least + tolerance


def test_all_measures_of_one_landscape_agree() -> None:
    found = analyse_landscape([float(abs(i - 5)) for i in range(11)], [11])
    assert found.neutrality == 0
    assert found.fitness_distance == pytest.approx(1)
    assert len(found.network.optima) == 1
    assert len(found.autocorrelation) == 5
    empty = analyse_landscape([None, None, None], [3])
    assert (empty.neutrality, empty.fitness_distance, empty.correlation_length) == (None, None, None)
    assert empty.network.optima == []
