"""Sobol points: even cover of the space, good for small budgets and as a first generation.

Each dimension of the unit cube becomes a level: half of it is 'unset' (so a point changes a few settings, not
all), and where a parameter has special values (0, never) they get half of the rest, because what they switch
off is often the largest single effect a setting has.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from heapwright.allocators.space import Point, Space
from heapwright.search.protocol import Observation, Setup

UNSET_SHARE = 0.5
SPECIAL_SHARE = 0.5
BATCH = 16


def level(u: float, levels: int, specials: int) -> int:
    """The level (0 = unset) of a coordinate in [0, 1)."""
    if levels == 0 or u < UNSET_SHARE:
        return 0
    rest = (u - UNSET_SHARE) / (1 - UNSET_SHARE)
    if specials and levels > specials:
        if rest < SPECIAL_SHARE:
            return 1 + min(specials - 1, int(rest / SPECIAL_SHARE * specials))
        rest = (rest - SPECIAL_SHARE) / (1 - SPECIAL_SHARE)
        return 1 + specials + min(levels - specials - 1, int(rest * (levels - specials)))
    return 1 + min(levels - 1, int(rest * levels))


def sobol_cube(dimensions: int, count: int, seed: int) -> NDArray[np.float64]:
    """The first `count` points of a scrambled Sobol sequence in the unit cube."""
    from scipy.stats import qmc

    with warnings.catch_warnings():  # scipy warns when a draw is not a power of two long
        warnings.simplefilter("ignore")
        cube: NDArray[np.float64] = qmc.Sobol(max(1, dimensions), rng=np.random.default_rng(seed)).random(count)
    return cube


def points_from_cube(space: Space, cube: NDArray[np.float64]) -> list[Point]:
    """Rows of the unit cube as points."""
    specials = [0] * len(space.gates) + [p.specials for p in space.params]
    return [
        space.normalise([level(float(u), n, s) for u, n, s in zip(row, space.sizes, specials, strict=True)])
        for row in cube
    ]


class Sobol:
    """A scrambled Sobol sequence, mapped to levels."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._drawn = 0

    def ask(self) -> list[Point]:
        """The next sixteen points."""
        space = self._setup.space
        cube = sobol_cube(len(space.sizes), self._drawn + BATCH, self._setup.seed)[self._drawn :]
        self._drawn += BATCH
        return points_from_cube(space, cube)

    def tell(self, told: Sequence[Observation]) -> None:
        """Nothing to learn."""
