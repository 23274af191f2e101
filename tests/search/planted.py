"""Defines optimisation problems with known optima, over mixed spaces like glibc's, for tests of search methods."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from heapwright.allocators.space import Point, Space
from heapwright.allocators.space_spec import ParamSpec
from heapwright.search import pareto
from heapwright.search.protocol import Observation, Strategy

from ..allocators.spaces import number, small_space

Costs = tuple[float, ...]


def planted_space() -> Space:
    """Six settings, two of them behind a gate; 2.4 million points."""
    return small_space(
        number("a", 1, 1 << 20, gate="static"),
        number("b", 1, 1 << 16, gate="static", specials=[0]),
        number("c", 1, 1 << 10),
        number("d", 1, 1 << 10),
        number("e", 1, 1 << 8, specials=[0]),
        gates=("static",),
    )


def planted_costs(point: Point) -> tuple[float, float]:
    """Memory and time: the optima are far from the default, need two settings together, and differ per objective."""
    gate, a, b, c, d, e = point
    memory = 0.05 * abs(c - 3) / 10 - (0.10 if gate and a == 12 else 0.05 * (a > 8))
    time = 0.05 * abs(d - 9) / 10 - (0.08 if b == 5 else 0.03 * (b > 0)) + 0.02 * (c < 5)
    if e == 1:
        memory, time = memory - 0.05, time + 0.03
    return memory, time


def sweet_spot_space() -> Space:
    """The space of the papers: three thresholds in half powers of two."""
    return small_space(*(number(key, 1, 1 << 25, step=0.5, gate="static") for key in "mtp"), gates=("static",))


def sweet_spot(point: Point) -> Costs:
    """gem5's landscape (Langdon et al.): one threshold matters, best at 256 … 512 and far worse just below."""
    gate, m, t, _p = point
    if not gate:
        return (0.0,)
    shape = 0.3 if 0 < m < 14 else -0.12 + 0.012 * abs(m - 17) if m else 0.0
    return (min(shape, 0.3) + 0.002 * abs(t - 35) / 10,)


def hollows_space() -> Space:
    """Eight settings, one of them a choice of names."""
    numbers = [number(key, 1, 1 << 12, specials=[0] if key in "bd" else []) for key in "abcdefg"]
    return small_space(*numbers, ParamSpec("h", "e", type="enum", values=["x", "y", "z"]))


def hollows(point: Point) -> Costs:
    """Two valleys: the shallow one is wide, and the deep one needs three settings near their optimum."""
    a, b, c, d, e, f, _g, h = point
    far = [abs(v - at) / 12 if v else 0.6 for v, at in ((a, 4), (c, 9), (e, 6))]
    deep = -0.25 * float(np.exp(-6 * sum(x * x for x in far)))
    shallow = -0.08 * float(np.exp(-2 * ((f - 10) / 12) ** 2)) if f else 0.0
    return (deep + shallow - 0.03 * (h == 2) - 0.04 * (b == 1) + 0.03 * (d == 1),)


def cliffs(point: Point) -> Costs | None:
    """`hollows` and a second objective; a third of all points crash."""
    if point[1] > 9 or point[6] in (5, 6, 7):
        return None
    return (*hollows(point), 0.02 * abs(point[2] - 3) / 12 - 0.06 * (point[3] == 1) + 0.01 * bool(point[0]))


@dataclass(frozen=True)
class Problem:
    """A landscape.

    Attributes:
        cost: of a point, without noise; None where it fails.
        noise: standard deviation of the observed costs, per objective.
    """

    space: Space
    cost: Callable[[Point], Costs | None]
    noise: Costs

    @property
    def objectives(self) -> int:
        """Return the number of objectives."""
        return len(self.noise)

    def measured(self, point: Point, seed: int) -> Costs | None:
        """The costs that a run observes; the same point has the same costs again, like the study's cache."""
        true = self.cost(point)
        if true is None or point == self.space.default:
            return true
        rng = random.Random(f"{seed}/{point}")
        return tuple(c + rng.gauss(0, s) for c, s in zip(true, self.noise, strict=True))

    def score(self, points: list[Point], seed: int) -> float:
        """The true value of the choice among these points: the hypervolume of the front chosen by observed costs."""
        measured = {p: c for p in {*points, self.space.default} if (c := self.measured(p, seed)) is not None}
        names, costs = list(measured), list(measured.values())
        chosen = [self.cost(names[i]) or () for i in pareto.front(costs)]
        if self.objectives == 1:
            return -min(c[0] for c in chosen)
        return volume([(c[0], c[1]) for c in chosen])


PROBLEMS = {
    "mixed": Problem(planted_space(), planted_costs, (0.0, 0.0)),
    "noisy": Problem(planted_space(), planted_costs, (0.003, 0.01)),
    "sweet spot": Problem(sweet_spot_space(), sweet_spot, (0.002,)),
    "hollows": Problem(hollows_space(), hollows, (0.01,)),
    "cliffs": Problem(hollows_space(), cliffs, (0.003, 0.01)),
}


def solve(strategy: Strategy, problem: Problem, evaluations: int, seed: int) -> list[Point]:
    """Run a strategy as a study does, until so many different points are evaluated; the default is known."""
    seen: dict[Point, None] = {}
    for _ in range(20 * evaluations):
        points = strategy.ask()
        if not points:
            break
        strategy.tell([Observation(p, problem.measured(p, seed)) for p in points])
        seen |= dict.fromkeys(p for p in points if p != problem.space.default)
        if len(seen) >= evaluations:
            break
    return list(seen)[:evaluations]


def at_random(space: Space, count: int, seed: int) -> list[Point]:
    """Draw distinct random points: each setting is unset half of the time, else at a random level."""
    rng = np.random.default_rng(seed)
    found: dict[Point, None] = {}
    while len(found) < count:
        values = [0 if rng.random() < 0.5 else int(rng.integers(1, n + 1)) for n in space.sizes]
        found[space.normalise(values)] = None
    return list(found)


def search(strategy: Strategy, evaluations: int) -> list[tuple[Point, tuple[float, float]]]:
    """Run a strategy on `planted_costs` until so many points are evaluated."""
    seen: list[tuple[Point, tuple[float, float]]] = []
    while len(seen) < evaluations:
        points = strategy.ask()
        if not points:
            break
        told = [(p, planted_costs(p)) for p in points]
        strategy.tell([Observation(p, c) for p, c in told])
        seen += told
    return seen[:evaluations]


def volume(costs: list[tuple[float, float]]) -> float:
    """The area below (0.1, 0.1) that these costs dominate."""
    area, ceiling = 0.0, 0.1
    for x, y in sorted(set(costs)):
        if x < 0.1 and y < ceiling:
            area += (0.1 - x) * (ceiling - y)
            ceiling = y
    return area


def random_points(space: Space, count: int, seed: int) -> list[tuple[float, float]]:
    """Return the costs of random points, with each setting unset half of the time."""
    rng = np.random.default_rng(seed)
    drawn = [
        space.normalise([0 if rng.random() < 0.5 else int(rng.integers(1, n + 1)) for n in space.sizes])
        for _ in range(count)
    ]
    return [planted_costs(p) for p in drawn]
