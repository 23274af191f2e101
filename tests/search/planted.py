"""A problem with a known answer: two objectives over a space as mixed as glibc's."""

from __future__ import annotations

import numpy as np

from heapwright.allocators.space import Point, Space
from heapwright.search.protocol import Strategy, Told

from ..allocators.spaces import number, small_space


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
    """Memory and time: the best is far from the default, needs two settings together, and no one point has both."""
    gate, a, b, c, d, e = point
    memory = 0.05 * abs(c - 3) / 10 - (0.10 if gate and a == 12 else 0.05 * (a > 8))
    time = 0.05 * abs(d - 9) / 10 - (0.08 if b == 5 else 0.03 * (b > 0)) + 0.02 * (c < 5)
    if e == 1:
        memory, time = memory - 0.05, time + 0.03
    return memory, time


def search(strategy: Strategy, evaluations: int) -> list[tuple[Point, tuple[float, float]]]:
    """Asks and tells until so many points were told."""
    seen: list[tuple[Point, tuple[float, float]]] = []
    while len(seen) < evaluations:
        points = strategy.ask()
        if not points:
            break
        told = [(p, planted_costs(p)) for p in points]
        strategy.tell([Told(p, c) for p, c in told])
        seen += told
    return seen[:evaluations]


def volume(costs: list[tuple[float, float]]) -> float:
    """The area that these costs dominate, of what is better than (0.1, 0.1)."""
    area, ceiling = 0.0, 0.1
    for x, y in sorted(set(costs)):
        if x < 0.1 and y < ceiling:
            area += (0.1 - x) * (ceiling - y)
            ceiling = y
    return area


def random_points(space: Space, count: int, seed: int) -> list[tuple[float, float]]:
    """The costs of points drawn at random, each setting unset half of the time."""
    rng = np.random.default_rng(seed)
    drawn = [
        space.normalise([0 if rng.random() < 0.5 else int(rng.integers(1, n + 1)) for n in space.sizes])
        for _ in range(count)
    ]
    return [planted_costs(p) for p in drawn]
