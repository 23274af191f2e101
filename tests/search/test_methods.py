"""Tests the purpose of each method: grid covers the space, sobol spreads evenly, nsga2 learns."""

from __future__ import annotations

import itertools
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heapwright.allocators.space_spec import ParamSpec
from heapwright.search.grid import thin
from heapwright.search.methods import make_strategy
from heapwright.search.protocol import Observation, Setup
from heapwright.search.sobol import level, points_from_cube, sobol_cube

from ..allocators.spaces import number, small_space, toy_space
from .planted import planted_costs, planted_space, random_points, search, volume

# grid


def test_a_grid_that_fits_is_complete() -> None:
    space = small_space(number("a", 1, 8), ParamSpec("b", "e", type="bool"), number("c", 1, 2, specials=[0]))
    points = make_strategy("grid", Setup(space, 2, 24, 1)).ask()
    assert sorted(points) == sorted(itertools.product(range(1, 5), range(1, 3), range(1, 4)))


def test_a_grid_opens_its_gates() -> None:
    space = small_space(number("a", 1, 8, gate="g"), gates=("g",))
    assert make_strategy("grid", Setup(space, 1, 10, 1)).ask() == [(1, k) for k in range(1, 5)]


@pytest.mark.parametrize("budget", [1, 2, 5, 17, 95, 96, 300, 1000])
def test_a_grid_never_exceeds_its_budget(budget: int) -> None:
    points = make_strategy("grid", Setup(planted_space(), 2, budget, 1)).ask()
    assert 1 <= len(points) <= budget
    assert len(set(points)) == len(points)


def test_a_grid_limited_by_time_alone_is_finite() -> None:
    """Without a budget of evaluations a grid must not have millions of points."""
    points = make_strategy("grid", Setup(planted_space(), 2, 0, 1)).ask()
    assert 100 < len(points) <= 10_000


def test_a_thinned_grid_keeps_its_corners() -> None:
    space = small_space(number("a", 1, 1 << 20), number("b", 1, 1 << 20))
    points = make_strategy("grid", Setup(space, 2, 30, 1)).ask()
    assert len(points) == 25
    assert {(1, 1), (1, 21), (21, 1), (21, 21)} <= set(points)


@given(st.integers(1, 60), st.integers(1, 60))
def test_thinned_levels_are_evenly_spaced(levels: int, keep: int) -> None:
    found = thin(levels, keep)
    assert found == sorted(set(found))
    assert len(found) == min(levels, keep)
    assert set(found) <= set(range(1, levels + 1))
    if keep > 1:
        assert (found[0], found[-1]) == (1, levels)
        steps = [b - a for a, b in itertools.pairwise(found)]
        assert max(steps, default=0) - min(steps, default=0) <= 1


# sobol


@given(st.floats(0, 1, exclude_max=True), st.integers(0, 40), st.data())
def test_every_coordinate_is_a_level(u: float, levels: int, data: st.DataObject) -> None:
    specials = data.draw(st.integers(0, levels))
    assert 0 <= level(u, levels, specials) <= levels
    assert (level(u, levels, specials) == 0) == (u < 0.5 or levels == 0)


def test_half_is_unset_and_specials_are_half_of_the_rest() -> None:
    found = [level((i + 0.5) / 4000, 12, 2) for i in range(4000)]
    assert found.count(0) == 2000
    assert found.count(1) == found.count(2) == 500
    assert {found.count(k) for k in range(3, 13)} == {100}


def test_sobol_points_go_on_where_they_stopped() -> None:
    strategy = make_strategy("sobol", Setup(toy_space(), 2, 0, 5))
    points = strategy.ask() + strategy.ask() + strategy.ask()
    assert points == points_from_cube(toy_space(), sobol_cube(5, 48, 5))


def test_sobol_is_evener_than_chance() -> None:
    """Of 64 points each quarter of every pair of dimensions holds 16."""
    cube = sobol_cube(6, 64, 3) >= 0.5
    for a, b in itertools.combinations(range(6), 2):
        assert sum(cube[:, a] & cube[:, b]) == 16


# random


def test_random_points_are_uniform_where_everything_is_set() -> None:
    """Whole numbers to 2^25, as the papers drew them: each quarter of the range has a quarter of the points."""
    space = small_space(
        *(ParamSpec(key, "e", low=0, high=1 << 25, scale="uniform", always=True, start=9) for key in "ab")
    )
    strategy = make_strategy("random", Setup(space, 1, 0, 1))
    points = [p for _ in range(200) for p in strategy.ask()]
    assert len(set(points)) == 1000
    for values in zip(*points, strict=True):
        quarters = [sum(v * 4 // ((1 << 25) + 2) == q for v in values) for q in range(4)]
        assert all(200 <= count <= 300 for count in quarters), quarters


def test_random_search_is_chance() -> None:
    """It is neither better nor worse than the random search of the planted problems."""
    space = planted_space()
    found = [volume([c for _, c in search(make_strategy("random", Setup(space, 2, 0, s)), 100)]) for s in range(20)]
    chance = [volume(random_points(space, 100, seed)) for seed in range(20)]
    assert 0.2 < sum(a > b for a in found for b in chance) / 400 < 0.8


# magpie


def test_magpie_draws_with_the_mean_of_the_parameter() -> None:
    """Table 1 of Langdon, Petke and Clark: mmap_max has half the mean of the thresholds."""
    medians = {}
    for mean in (65536, 131072):
        spec = ParamSpec("a", "e", low=0, high=1 << 25, scale="uniform", always=True, start=9, mean=mean)
        space = small_space(spec)
        strategy = make_strategy("magpie", Setup(space, 1, 0, 1))
        values = []
        for _ in range(800):
            (point,) = strategy.ask()
            values.append(point[0] - 1)
            strategy.tell([Observation(point, (1.0,))])
        medians[mean] = median(values)
    for mean, found in medians.items():  # the median of an exponential distribution is ln 2 times its mean
        assert 0.6 * mean < found < 0.8 * mean


# nsga2


def test_nsga2_finds_more_than_chance() -> None:
    space = planted_space()
    found = [
        volume([c for _, c in search(make_strategy("nsga2", Setup(space, 2, 300, seed)), 300)]) for seed in range(5)
    ]
    chance = [volume(random_points(space, 300, seed)) for seed in range(5)]
    assert median(found) > 1.1 * median(chance)


def test_nsga2_learns_to_avoid_what_fails() -> None:
    space = planted_space()
    strategy = make_strategy("nsga2", Setup(space, 2, 0, 1))
    shares = []
    for _ in range(12):
        points = strategy.ask()
        bad = [p[3] > 0 for p in points]  # setting c at all crashes the program
        shares.append(sum(bad) / len(bad))
        strategy.tell([Observation(p, None if b else planted_costs(p)) for p, b in zip(points, bad, strict=True)])
    assert shares[0] > 0.3
    assert max(shares[-3:]) < shares[0] / 2


def test_nsga2_begins_with_the_sobol_points() -> None:
    space = planted_space()
    first = make_strategy("nsga2", Setup(space, 2, 0, 9)).ask()
    assert set(first) <= set(points_from_cube(space, sobol_cube(6, 24, 9)))
    assert len(first) > 16
