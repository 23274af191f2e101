"""Searches at random: the baseline against which every other method is judged.

A point has the distribution of Sobol points (`sobol`): each setting is unset half of the time, half of the rest are its
special values, and gates are open. In a space whose parameters are always set, each is drawn uniformly over its levels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from heapwright.allocators.space import Point
from heapwright.search.moves import axes_of, draw_unseen
from heapwright.search.protocol import BATCH, Observation, Setup


class Random:
    """Independent random points without repetition."""

    def __init__(self, setup: Setup) -> None:
        self._space = setup.space
        self._axes = axes_of(setup.space)
        self._rng = np.random.default_rng([setup.seed, 6])
        self._seen = {o.point for o in setup.known}

    def ask(self) -> list[Point]:
        """Return points not drawn before; empty if many draws find none."""
        points = draw_unseen(self._space, self._axes, self._seen, BATCH, self._rng)
        self._seen.update(points)
        return points

    def tell(self, observations: Sequence[Observation]) -> None:
        """Do nothing: random search does not learn."""
