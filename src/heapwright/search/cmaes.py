"""CMA-ES (Hansen) by the `cma` library: one evolution for each direction (`scalar`), in turns.

Each dimension is a coordinate in [0, 1], read as Sobol points are: its lower half is 'unset', then specials, then
the levels in order. A population that stagnates is begun anew, twice as large, elsewhere (IPOP). CMA-ES looks at
ranks alone, so what is infeasible is told as worse than everything and no cost is made up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heapwright.allocators.space import Point
from heapwright.search.moves import Axis, axes_of
from heapwright.search.protocol import Observation, Setup
from heapwright.search.scalar import Weights, directions, scalar
from heapwright.search.sobol import SPECIAL_SHARE, UNSET_SHARE, level

_SIGMA = 0.3
_MOST_GROWTH = 8  # of a population, over restarts
_WORST = 1e6  # ranks behind every log ratio


def coordinate(value: int, axis: Axis) -> float:
    """The middle of what `sobol.level` reads as this value."""
    if value == 0:
        return UNSET_SHARE / 2
    ordinary = axis.levels - axis.specials
    share = SPECIAL_SHARE if axis.specials and ordinary else float(not ordinary)
    if value <= axis.specials:
        rest = share * (value - 0.5) / axis.specials
    else:
        rest = share + (1 - share) * (value - axis.specials - 0.5) / ordinary
    return UNSET_SHARE + (1 - UNSET_SHARE) * rest


class CmaEs:
    """Independent evolutions, one for each direction, asked in turns a generation at a time."""

    def __init__(self, setup: Setup) -> None:
        self._space = setup.space
        self._axes = axes_of(setup.space)
        self._rng = np.random.default_rng([setup.seed, 4])
        self._weights = directions(setup.objectives)
        self._growth = [1] * len(self._weights)
        self._evolutions = [self._begin(i, self._start(w, setup.known)) for i, w in enumerate(self._weights)]
        self._turn = 0
        self._asked: list[NDArray[np.float64]] = []

    def _start(self, weights: Weights, known: Sequence[Observation]) -> NDArray[np.float64]:
        """The border between unset and set; or the best of what is known, where something is."""
        best = min(known, key=lambda t: scalar(t.costs, weights), default=None)
        if best is None or best.costs is None:
            return np.full(len(self._axes), UNSET_SHARE)
        return np.array([coordinate(v, a) for v, a in zip(best.point, self._axes, strict=True)])

    def _begin(self, number: int, mean: NDArray[np.float64]) -> Any:
        import cma

        dimensions = max(2, len(self._axes))  # it does not work in one
        population = (4 + math.floor(3 * math.log(dimensions))) * self._growth[number]
        options = {
            "bounds": [0, 1],
            "popsize": population,
            "randn": lambda *shape: self._rng.standard_normal(shape),  # and never numpy's global generator
            "seed": math.nan,  # leaves that one alone
            "verbose": -9,
            "tolflatfitness": 3,
        }
        start = np.resize(np.clip(mean, 0.05, 0.95), dimensions)
        return cma.CMAEvolutionStrategy(start, _SIGMA, options)

    def ask(self) -> list[Point]:
        """A generation of the next evolution."""
        number = self._turn % len(self._weights)
        if self._evolutions[number].stop():
            self._growth[number] = min(2 * self._growth[number], _MOST_GROWTH)
            self._evolutions[number] = self._begin(number, self._rng.random(len(self._axes)))
        self._asked = self._evolutions[number].ask()
        return [self._decode(x) for x in self._asked]

    def _decode(self, x: NDArray[np.float64]) -> Point:
        below_one = 1 - 1e-9
        return self._space.normalise(
            [level(min(float(u), below_one), a.levels, a.specials) for u, a in zip(x, self._axes, strict=False)]
        )

    def tell(self, told: Sequence[Observation]) -> None:
        """The generation's ranks."""
        number = self._turn % len(self._weights)
        self._turn += 1
        if len(told) == len(self._asked):
            costs = [min(scalar(t.costs, self._weights[number]), _WORST) for t in told]
            self._evolutions[number].tell(self._asked, costs)
