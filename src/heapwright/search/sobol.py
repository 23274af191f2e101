"""Searches with a Sobol sequence, which covers the space evenly; also the initial design of other methods.

Each coordinate of the unit cube becomes a level. Half of its range is 'unset', so that a point changes some of the
settings and not all. If a parameter has special values (0, never), half of the other half is theirs: a special value
often switches something off, which can be the largest effect that a setting has. A parameter that is always set has
no 'unset' part.
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


def level(u: float, levels: int, specials: int, unset: float = UNSET_SHARE) -> int:
    """Return the level of a coordinate; 0 is unset.

    Args:
        u: coordinate in [0, 1).
        levels: number of levels without unset.
        specials: number of special values among them, which come first.
        unset: share of the coordinate's range that is unset; 0 for a parameter that is always set.
    """
    if levels == 0 or u < unset:
        return 0
    rest = (u - unset) / (1 - unset)
    if specials and levels > specials:
        if rest < SPECIAL_SHARE:
            return 1 + min(specials - 1, int(rest / SPECIAL_SHARE * specials))
        rest = (rest - SPECIAL_SHARE) / (1 - SPECIAL_SHARE)
        return 1 + specials + min(levels - specials - 1, int(rest * (levels - specials)))
    return 1 + min(levels - 1, int(rest * levels))


def sobol_cube(dimensions: int, count: int, seed: int) -> NDArray[np.float64]:
    """Return the first points of a scrambled Sobol sequence in the unit cube.

    Args:
        dimensions: of the cube; at least one is drawn.
        count: number of points.
        seed: of the scrambling.

    Returns:
        (count, dimensions) array in [0, 1).
    """
    from scipy.stats import qmc

    with warnings.catch_warnings():  # scipy warns if the count is not a power of two
        warnings.simplefilter("ignore")
        cube: NDArray[np.float64] = qmc.Sobol(max(1, dimensions), rng=np.random.default_rng(seed)).random(count)
    return cube


def points_from_cube(space: Space, cube: NDArray[np.float64]) -> list[Point]:
    """Decode an (n_points, n_dimensions) array of coordinates in [0, 1) as points."""
    specials = [0] * len(space.gates) + [p.specials for p in space.params]
    shares = [0.0 if start else UNSET_SHARE for start in space.starts]
    dimensions = list(zip(space.sizes, specials, shares, strict=True))
    return [
        space.normalise([level(float(u), n, s, share) for u, (n, s, share) in zip(row, dimensions, strict=True)])
        for row in cube
    ]


class Sobol:
    """A scrambled Sobol sequence, decoded as levels."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._drawn = 0

    def ask(self) -> list[Point]:
        """Return the next sixteen points."""
        space = self._setup.space
        cube = sobol_cube(len(space.sizes), self._drawn + BATCH, self._setup.seed)[self._drawn :]
        self._drawn += BATCH
        return points_from_cube(space, cube)

    def tell(self, observations: Sequence[Observation]) -> None:
        """Do nothing: the sequence does not learn."""
