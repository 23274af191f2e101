"""Local search: change one setting of the best, keep what is better. Magpie's idea (Blot and Petke 2022), mended.

What the papers' runs with Magpie lacked, and what stands for it here:
- linear steps over ranges 2^25 wide        steps in the exponent (`moves`)
- any noisy win accepted                    a win must exceed the noise of a comparison; within it, fewer settings win
- stuck in the first hollow                 after enough tries in vain: kicked away from the best, or begun elsewhere
- one objective                             one climber for each direction (`scalar`), all learning from every run

`Magpie` is the papers' own: one climber from the default, first improvement, values by `g[0,33554432,1/131072]`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heapwright.allocators.space import Param, Point
from heapwright.search.moves import axes_of, change_at, mutate, scattered, unseen
from heapwright.search.protocol import BATCH, Observation, Setup
from heapwright.search.scalar import Weights, directions, scalar, scalar_noise

_KICK = 3  # settings changed at once when a climber is stuck
_TRIES = 60  # changes drawn for one neighbour that is not known yet


@dataclass
class _Climber:
    """One search in one direction.

    Attributes:
        here, cost: where it stands; the default, at cost 0, in the beginning.
        best, best_cost: the best it ever stood on.
        vain: neighbours tried since it last moved.
        leap: where it begins anew, once that is measured.
    """

    weights: Weights
    margin: float
    here: Point
    cost: float
    best: Point
    best_cost: float
    vain: int = 0
    stuck: int = 0
    leap: Point | None = None


class Local:
    """One climber for each direction, in turns."""

    def __init__(self, setup: Setup) -> None:
        self._space = setup.space
        self._axes = axes_of(setup.space)
        self._rng = np.random.default_rng([setup.seed, 2])
        default = setup.space.default
        self._seen: dict[Point, tuple[float, ...] | None] = {default: (0.0,) * setup.objectives}
        # A comparison is of two runs' costs: its noise is √2 times that of one.
        self._climbers = [
            _Climber(w, math.sqrt(2) * scalar_noise(setup.noise, w), default, 0.0, default, 0.0)
            for w in directions(setup.objectives)
        ]
        self._patience = max(2 * BATCH, 2 * sum(a.levels > 0 for a in self._axes))
        self._turn = 0
        self._learn(setup.known)

    def ask(self) -> list[Point]:
        """Neighbours of where the next climber stands, none of them known; empty when everything is."""
        climber = self._climbers[self._turn % len(self._climbers)]
        asked: dict[Point, None] = {}
        if climber.vain >= self._patience and climber.leap is None:
            climber.leap = self._elsewhere(climber)
        if climber.leap is not None and climber.leap not in self._seen:
            asked[climber.leap] = None
        start = climber.leap or climber.here
        for _ in range(BATCH * _TRIES):
            if len(asked) >= BATCH:
                break
            point = mutate(self._space, self._axes, start, self._rng)
            if point not in self._seen:
                asked[point] = None
        if len(asked) < BATCH:
            seen = self._seen.keys() | asked.keys()
            asked |= dict.fromkeys(unseen(self._space, self._axes, seen, BATCH - len(asked), self._rng))
        return list(asked)

    def tell(self, told: Sequence[Observation]) -> None:
        """Every climber moves to the best of what was told, if it is better; the one whose turn it was may leap."""
        climber = self._climbers[self._turn % len(self._climbers)]
        self._turn += 1
        self._learn(told)
        climber.vain += len(told)
        if climber.leap is not None:
            climber.here, climber.cost = climber.leap, scalar(self._seen.get(climber.leap), climber.weights)
            climber.vain, climber.leap = 0, None
            self._move(climber, told)

    def _learn(self, told: Sequence[Observation]) -> None:
        self._seen |= {t.point: t.costs for t in told}
        for climber in self._climbers:
            self._move(climber, told)

    def _move(self, climber: _Climber, told: Sequence[Observation]) -> None:
        for t in told:
            cost = scalar(t.costs, climber.weights)
            if self._wins(t.point, cost, climber.here, climber.cost, climber.margin):
                climber.here, climber.cost, climber.vain = t.point, cost, 0
            if self._wins(t.point, cost, climber.best, climber.best_cost, climber.margin):
                climber.best, climber.best_cost, climber.stuck = t.point, cost, 0

    def _wins(self, point: Point, cost: float, here: Point, best: float, margin: float) -> bool:
        """Better by more than the noise; or within it, with fewer settings. Infeasible is never better."""
        if cost == math.inf:
            return False
        if cost < best - margin:
            return True
        return bool(margin) and cost <= best and sum(map(bool, point)) < sum(map(bool, here))

    def _elsewhere(self, climber: _Climber) -> Point:
        """The best with a few settings changed; every third time in vain, any point."""
        climber.stuck += 1
        if climber.stuck % 3 == 0:
            return scattered(self._space, self._axes, self._rng)
        point = climber.best
        for _ in range(_KICK):
            point = mutate(self._space, self._axes, point, self._rng)
        return point


_MEAN, _MOST = 131072.0, 33554432.0  # g[0,33554432,1/131072]: an exponential of this mean, cut off there


class Magpie:
    """The papers' runs: from the default, one edit at a time, the first that measures better is kept.

    An edit puts a setting back to unset or gives it a new value, which for a number is drawn from a truncated
    exponential and taken to the nearest level. For several objectives their sum (Magpie itself has but one).
    """

    def __init__(self, setup: Setup) -> None:
        self._space = setup.space
        self._axes = axes_of(setup.space)
        self._rng = np.random.default_rng([setup.seed, 3])
        self._best, self._cost = setup.space.default, 0.0
        self._seen = {setup.space.default}
        self._weights = (1.0,) * setup.objectives
        self.tell(setup.known)

    def ask(self) -> list[Point]:
        """One edit of the best that was not tried yet."""
        gates = len(self._space.gates)
        for _ in range(_TRIES):
            at = gates + int(self._rng.integers(len(self._space.params)))
            value = self._value(self._space.params[at - gates])
            if self._best[at] and self._rng.random() < 0.5:
                value = 0
            point = change_at(self._space, self._best, at, value)
            if point not in self._seen:
                return [point]
        return unseen(self._space, self._axes, self._seen, 1, self._rng)

    def _value(self, param: Param) -> int:
        """A level as Magpie would draw it."""
        if param.spec.type != "int" or len(param.levels) == param.specials:
            return 1 + int(self._rng.integers(len(param.levels)))
        while (drawn := float(self._rng.exponential(_MEAN))) > _MOST:
            pass
        at = bisect_left(param.levels, drawn, lo=param.specials, hi=len(param.levels) - 1, key=float)
        below = max(param.specials, at - 1)
        nearer = below if drawn - float(param.levels[below]) < float(param.levels[at]) - drawn else at
        return 1 + nearer

    def tell(self, told: Sequence[Observation]) -> None:
        """Anything that measured better is the best now."""
        for t in told:
            self._seen.add(t.point)
            cost = scalar(t.costs, self._weights)
            if cost < self._cost:
                self._best, self._cost = t.point, cost
