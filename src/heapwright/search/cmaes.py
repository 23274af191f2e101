"""Searches with CMA-ES (Hansen) from the `cma` library, with one evolution for each scalarisation.

The evolutions take turns, a generation each. Each dimension is a coordinate in [0, 1], decoded as Sobol points are:
the lower half is 'unset', then come special values, then the levels in order. A stagnating evolution restarts
elsewhere with twice the population (IPOP). CMA-ES uses only ranks, so an infeasible point ranks last and needs no
invented cost.
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

_SIGMA = 0.3  # initial step size
_MAX_GROWTH = 8  # largest factor of the population over restarts
_WORST = 1e6  # cost of an infeasible point: above every log ratio


def coordinate(value: int, axis: Axis) -> float:
    """Return the centre of the interval that `sobol.level` decodes as this value."""
    if value == 0:
        return axis.unset / 2
    ordinary = axis.levels - axis.specials
    share = SPECIAL_SHARE if axis.specials and ordinary else float(not ordinary)
    if value <= axis.specials:
        position = share * (value - 0.5) / axis.specials
    else:
        position = share + (1 - share) * (value - axis.specials - 0.5) / ordinary
    return axis.unset + (1 - axis.unset) * position


class CmaEs:
    """CMA-ES with one independent evolution for each scalarisation, which take turns."""

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
        """Return the initial mean: the best known point, or else the border between unset and set (the middle)."""
        best = min(known, key=lambda o: scalar(o.costs, weights), default=None)
        if best is None or best.costs is None:
            return np.full(len(self._axes), UNSET_SHARE)
        return np.array([coordinate(v, a) for v, a in zip(best.point, self._axes, strict=True)])

    def _begin(self, number: int, mean: NDArray[np.float64]) -> Any:
        """Start evolution `number` at `mean`, an (n_dimensions,) array in [0, 1]."""
        import cma

        dimensions = max(2, len(self._axes))  # CMA-ES needs two dimensions
        population = (4 + math.floor(3 * math.log(dimensions))) * self._growth[number]
        options = {
            "bounds": [0, 1],
            "popsize": population,
            "randn": lambda *shape: self._rng.standard_normal(shape),  # instead of numpy's global generator
            "seed": math.nan,  # does not seed the global generator
            "verbose": -9,
            "tolflatfitness": 3,
        }
        start = np.resize(np.clip(mean, 0.05, 0.95), dimensions)
        return cma.CMAEvolutionStrategy(start, _SIGMA, options)

    def ask(self) -> list[Point]:
        """Return one generation of the next evolution."""
        number = self._turn % len(self._weights)
        if self._evolutions[number].stop():
            self._growth[number] = min(2 * self._growth[number], _MAX_GROWTH)
            self._evolutions[number] = self._begin(number, self._rng.random(len(self._axes)))
        self._asked = self._evolutions[number].ask()
        return [self._decode(x) for x in self._asked]

    def _decode(self, x: NDArray[np.float64]) -> Point:
        below_one = 1 - 1e-9
        return self._space.normalise(
            [
                level(min(float(u), below_one), a.levels, a.specials, a.unset)
                for u, a in zip(x, self._axes, strict=False)
            ]
        )

    def tell(self, observations: Sequence[Observation]) -> None:
        """Update the evolution with the ranks of its generation."""
        number = self._turn % len(self._weights)
        self._turn += 1
        if len(observations) == len(self._asked):
            costs = [min(scalar(o.costs, self._weights[number]), _WORST) for o in observations]
            self._evolutions[number].tell(self._asked, costs)
