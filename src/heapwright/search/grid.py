"""A full grid over every level, thinned evenly until it fits the budget. Meant for one or two parameters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from heapwright.allocators.space import Point
from heapwright.search.protocol import Observation, Setup

_MOST = 10_000  # points where only time is limited: every level of every glibc setting would be 10^12


def thin(levels: int, keep: int) -> list[int]:
    """`keep` of the levels 1 … levels, evenly spread, ends included."""
    if keep >= levels:
        return list(range(1, levels + 1))
    if keep == 1:
        return [(levels + 1) // 2]
    return sorted({1 + round(i * (levels - 1) / (keep - 1)) for i in range(keep)})


class Grid:
    """Every combination of the levels of every parameter (gates open), coarsened alike in all dimensions."""

    def __init__(self, setup: Setup) -> None:
        space = setup.space
        sizes = [len(p.levels) for p in space.params]
        keep = max(sizes, default=0)
        most = setup.budget or _MOST
        while keep > 1 and math.prod(min(keep, n) for n in sizes) > most:
            keep -= 1
        axes = [thin(n, min(keep, n)) for n in sizes]
        gates = [(1,)] * len(space.gates)
        self._points = [space.normalise(p) for p in itertools.product(*gates, *axes)] if sizes else []

    def ask(self) -> list[Point]:
        """The whole grid, once."""
        points, self._points = self._points, []
        return points

    def tell(self, told: Sequence[Observation]) -> None:
        """Nothing to learn."""
