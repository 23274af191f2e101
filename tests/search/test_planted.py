"""Tests that each method beats random search at its stated budget (`METHODS[…].budget`) on problems with known optima.

A method and random search get the same number of evaluations on the same problem, many times with other seeds. What
is compared is the true worth of what would be chosen from the noisy measurements. Everything follows from the seeds,
so no test fails by chance; the rank test shows that the seeds were not lucky.
"""

from __future__ import annotations

import math

import pytest

from heapwright.search.methods import METHODS, make_strategy
from heapwright.search.protocol import Setup
from tests import needs

from .planted import PROBLEMS, Problem, at_random, solve

SEEDS = {"gp": 2, "nsga2": 4, "cmaes": 3, "local": 16, "sobol": 40}


def score(method: str, problem: Problem, seed: int) -> float:
    budget = METHODS[method].budget
    setup = Setup(problem.space, problem.objectives, budget, seed, noise=problem.noise)
    return problem.score(solve(make_strategy(method, setup), problem, budget, seed), seed)


def better(found: list[float], chance: list[float]) -> tuple[float, float, float]:
    """Count the pairs in which one beats the other (ties count half); also return mean and variance of it by chance."""
    wins = sum((a > b) + 0.5 * (a == b) for a in found for b in chance)
    pairs = len(found) * len(chance)
    return wins, pairs / 2, pairs * (len(found) + len(chance) + 1) / 12


@pytest.mark.parametrize("method", [needs.long_unless(method == "local", method, id=method) for method in SEEDS])
def test_a_method_beats_random_search_by_its_budget(method: str) -> None:
    """Mann-Whitney test stratified by problem (van Elteren): one-sided p below 0.001, and no loss on any problem."""
    budget = METHODS[method].budget
    wins = expected = variance = 0.0
    shares = {}
    for name, problem in PROBLEMS.items():
        found = [score(method, problem, seed) for seed in range(SEEDS[method])]
        chance = [problem.score(at_random(problem.space, budget, seed), seed) for seed in range(40)]
        w, e, v = better(found, chance)
        shares[name] = round(w / len(found) / len(chance), 2)
        wins, expected, variance = wins + w, expected + e, variance + v
        assert (w - e) / math.sqrt(v) > -2.33, name
    z = (wins - expected) / math.sqrt(variance)
    assert z > 3.1, shares


def test_the_suite_can_tell() -> None:
    """Random search under another name does not beat random search."""
    wins = expected = variance = 0.0
    for problem in PROBLEMS.values():
        found = [problem.score(at_random(problem.space, 60, 1000 + seed), seed) for seed in range(20)]
        chance = [problem.score(at_random(problem.space, 60, seed), seed) for seed in range(40)]
        w, e, v = better(found, chance)
        wins, expected, variance = wins + w, expected + e, variance + v
    assert abs(wins - expected) / math.sqrt(variance) < 3.1


def test_a_grid_beats_random_search_on_a_plane() -> None:
    """The grid is meant for two settings: thinned to its budget, it still has a point near every spot."""
    plane, budget = PROBLEMS["sweet spot"], METHODS["grid"].budget
    space = plane.space.restrict(["m", "t"])
    problem = Problem(space, lambda p: plane.cost((*p, 0)), plane.noise)
    setup = Setup(space, 1, budget, 1)
    found = [problem.score(solve(make_strategy("grid", setup), problem, budget, seed), seed) for seed in range(16)]
    chance = [problem.score(at_random(space, budget, seed), seed) for seed in range(40)]
    wins, expected, variance = better(found, chance)
    assert (wins - expected) / math.sqrt(variance) > 3.1
