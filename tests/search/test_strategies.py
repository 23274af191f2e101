"""Tests the promises of the protocol for every search method."""

from __future__ import annotations

import dataclasses
import itertools
import random

import msgspec
import pytest

from heapwright.allocators.joint import join
from heapwright.allocators.registry import bundled_space
from heapwright.allocators.space import Point, Space, build_space
from heapwright.allocators.space_spec import Context, ParamSpec
from heapwright.errors import UsageError
from heapwright.search.auto import choose
from heapwright.search.methods import METHODS, make_strategy
from heapwright.search.protocol import Observation, Setup
from tests import needs

from ..allocators.spaces import number, small_space, toy_space

pytestmark = pytest.mark.longer
SEARCHING = [m for m in METHODS if m not in ("default", "auto")]  # those have tests of their own
RANDOM = [m for m in SEARCHING if m != "grid"]


def _named(name: str) -> Space:
    """Return the toy space as that of another allocator."""
    space = toy_space()
    return dataclasses.replace(space, allocator=msgspec.structs.replace(space.allocator, name=name))


SPACES = {
    "mixed": toy_space(),
    "glibc": build_space(bundled_space("glibc"), Context("2.36", 2, True, False)),
    "one parameter": small_space(number("only", 1, 64)),
    "one switch": small_space(ParamSpec("only", "e", type="bool")),
    "one value": small_space(number("only", 4, 4)),
    "one gated value": small_space(number("only", 4, 4, gate="g"), gates=("g",)),
    "no gates": small_space(number("a"), number("b", specials=[0]), ParamSpec("c", "e", type="bool")),
    "several allocators": join([_named("one"), _named("two"), _named("three")]),
    "specials alone": small_space(ParamSpec("only", "e", low=1, high=1, specials=[0, 1])),
}


def take(
    method: str, space: Space, *, objectives: int = 2, budget: int = 0, seed: int = 1, infeasible: float = 0.0
) -> list[list[Point]]:
    """Return the batches that a strategy proposes, if costs depend on the point alone.

    Without a budget it has 60 evaluations. In the short form a Gaussian process, which takes seconds for these, has 30:
    half of them are its initial design.
    """
    budget = budget or (needs.repeats(60, 30) if method == "gp" else 60)
    strategy = make_strategy(method, Setup(space, objectives, budget, seed))
    batches: list[list[Point]] = []
    while sum(map(len, batches)) < budget and len(batches) < 60:
        points = strategy.ask()
        if not points:
            break
        batches.append(points)
        strategy.tell([Observation(p, cost(p, objectives, infeasible)) for p in points])
    return batches


def cost(point: Point, objectives: int, infeasible: float) -> tuple[float, ...] | None:
    rng = random.Random(str(point))
    return None if rng.random() < infeasible else tuple(rng.gauss(0, 0.1) for _ in range(objectives))


@pytest.fixture(params=SEARCHING)
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.few(18)
def test_points_are_normal_points_of_the_space(method: str, name: str) -> None:
    space = SPACES[name]
    batches = take(method, space)
    assert batches
    for point in itertools.chain(*batches):
        assert len(point) == len(space.sizes)
        assert all(isinstance(v, int) and 0 <= v <= n for v, n in zip(point, space.sizes, strict=True))
        assert space.normalise(point) == point


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.few(18)
def test_some_point_is_not_the_default(method: str, name: str) -> None:
    assert any(p != SPACES[name].default for p in itertools.chain(*take(method, SPACES[name])))


@pytest.mark.parametrize("objectives", [1, 2, 3])
@pytest.mark.few(3)
def test_the_same_seed_and_costs_give_the_same_points(method: str, objectives: int) -> None:
    space = SPACES["mixed"]
    first, again = (take(method, space, objectives=objectives, infeasible=0.2) for _ in range(2))
    assert first == again


@pytest.mark.parametrize("method", RANDOM)
@pytest.mark.few(3)
def test_another_seed_gives_other_points(method: str) -> None:
    assert take(method, SPACES["mixed"], seed=1) != take(method, SPACES["mixed"], seed=2)


@pytest.mark.few(1)
def test_the_machines_own_random_numbers_play_no_part(method: str) -> None:
    import numpy as np

    def once(noise: int) -> list[list[Point]]:
        random.seed(noise)
        np.random.seed(noise)
        return take(method, SPACES["mixed"], budget=needs.repeats(120, 30))

    assert once(1) == once(2)


@pytest.mark.few(1)
def test_failed_points_do_not_stop_a_method(method: str) -> None:
    budget = needs.repeats(100, 40)
    batches = take(method, SPACES["mixed"], infeasible=0.5, budget=budget)
    assert sum(map(len, batches)) >= budget // 2


def test_everything_may_fail(method: str) -> None:
    assert take(method, SPACES["mixed"], infeasible=1.0)


@pytest.mark.parametrize("name", ["one switch", "one value", "one gated value", "specials alone"])
@pytest.mark.few(4)
def test_a_tiny_space_is_covered_and_then_done(method: str, name: str) -> None:
    """The strategy proposes every setting; after that it repeats earlier points or proposes none, without an error."""
    space = SPACES[name]
    strategy = make_strategy(method, Setup(space, 2, 40, 1))
    seen: set[Point] = set()
    for _ in range(30):
        points = strategy.ask()
        seen.update(points)
        strategy.tell([Observation(p, cost(p, 2, 0)) for p in points])
    everything = {space.normalise((1,) * len(space.gates) + (k,)) for k in range(1, space.sizes[-1] + 1)}
    assert everything <= seen


@pytest.mark.parametrize("method", ["grid", "nsga2"])
@pytest.mark.few(1)
def test_after_the_last_point_there_is_nothing(method: str) -> None:
    strategy = make_strategy(method, Setup(SPACES["one switch"], 1, 40, 1))
    answers = []
    for _ in range(30):
        points = strategy.ask()
        answers.append(len(points))
        strategy.tell([Observation(p, cost(p, 1, 0)) for p in points])
    assert answers[-1] == 0
    assert 0 not in answers[: answers.index(0)]
    assert set(answers[answers.index(0) :]) == {0}


def test_a_parameter_that_is_always_set_is_never_unset(method: str) -> None:
    space = small_space(
        *(msgspec.structs.replace(number(key, 1, 1 << 20), always=True, start=8) for key in "ab"), number("c", 1, 64)
    )
    points = list(itertools.chain(*take(method, space)))
    assert points
    assert all(a and b for a, b, _ in points)
    if method != "grid":  # a grid sets everything
        assert any(not c for *_, c in points)


def test_equal_costs_everywhere_are_no_trouble(method: str) -> None:
    strategy = make_strategy(method, Setup(SPACES["mixed"], 2, 96, 1))
    for i in range(4):
        points = strategy.ask()
        assert points or i > 0
        strategy.tell([Observation(p, (0.0, 0.0)) for p in points])


@pytest.mark.parametrize(("budget", "method"), [(40, "gp"), (300, "nsga2")])
def test_auto_is_what_it_chose(budget: int, method: str) -> None:
    setup = Setup(SPACES["mixed"], 2, budget, 1)
    assert choose(setup)[0] == method
    assert make_strategy("auto", setup).ask() == make_strategy(method, setup).ask()
    assert choose(Setup(SPACES["mixed"], 2, 1, 1))[1].startswith("a budget of 1 evaluation is small for ")
    timed = choose(Setup(SPACES["mixed"], 2, 22, 1), estimated=True)
    assert timed[0] == "gp"
    assert timed[1].startswith("time for about 22 runs of the default is little for "), "the search may make more"


def test_the_default_method_asks_for_nothing() -> None:
    strategy = make_strategy("default", Setup(SPACES["mixed"], 2, 40, 1))
    assert strategy.ask() == []


def test_an_unknown_method_says_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown method 'sobel'") as caught:
        make_strategy("sobel", Setup(SPACES["mixed"], 2, 96, 1))
    assert caught.value.hint.startswith("did you mean 'sobol'?")
