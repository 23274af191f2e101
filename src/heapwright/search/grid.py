"""Searches a full grid over all levels, thinned evenly to fit the budget; meant for one or two parameters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from heapwright.allocators.space import Point
from heapwright.search.protocol import Observation, Setup

_MAX_POINTS = 10_000  # if only time is limited; all levels of all glibc settings would be 10^12 points


def thin(levels: int, keep: int) -> list[int]:
    """Return `keep` evenly spaced levels of 1 … levels, including both ends."""
    if keep >= levels:
        return list(range(1, levels + 1))
    if keep == 1:
        return [(levels + 1) // 2]
    return sorted({1 + round(i * (levels - 1) / (keep - 1)) for i in range(keep)})


class Grid:
    """All combinations of levels, with open gates.

    If they exceed the budget, every dimension keeps at most the same number of levels.
    """

    def __init__(self, setup: Setup) -> None:
        space = setup.space
        sizes = [len(p.levels) for p in space.params]
        limit = setup.budget or _MAX_POINTS
        keep = min(max(sizes, default=0), limit)
        while keep > 1 and math.prod(min(keep, n) for n in sizes) > limit:
            keep -= 1
        axes = [thin(n, min(keep, n)) for n in sizes]
        gates = [(1,)] * len(space.gates)
        self._points = [space.normalise(p) for p in itertools.product(*gates, *axes)] if sizes else []

    def ask(self) -> list[Point]:
        """Return the whole grid, once."""
        points, self._points = self._points, []
        return points

    def tell(self, observations: Sequence[Observation]) -> None:
        """Do nothing: a grid does not learn."""
