"""Tests the purpose of each method: grid covers the space, sobol spreads evenly, nsga2 learns."""

from __future__ import annotations

import itertools
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heapwright.allocators.space_spec import ParamSpec
from heapwright.search.grid import thin
from heapwright.search.protocol import Setup, make_strategy
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
def test_thin_is_even(levels: int, keep: int) -> None:
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


# nsga2


def test_nsga2_finds_more_than_chance() -> None:
    space = planted_space()
    found = [
        volume([c for _, c in search(make_strategy("nsga2", Setup(space, 2, 300, seed)), 300)]) for seed in range(5)
    ]
    chance = [volume(random_points(space, 300, seed)) for seed in range(5)]
    assert median(found) > 1.1 * median(chance)


def test_nsga2_learns_to_avoid_what_fails() -> None:
    from heapwright.search.protocol import Observation

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
