"""Searches locally: changes one setting of the incumbent and keeps improvements, as Magpie does (Blot and Petke 2022).

The weaknesses of the papers' runs with Magpie, and what this module does instead:

- linear steps over ranges 2^25 wide        steps in the exponent (`moves`)
- any noisy win accepted                    a win must exceed the noise of a comparison; within it, fewer settings win
- stuck in the first local optimum          after enough failed tries: kicked away from the best, or restarted elsewhere
- one objective                             one climber for each scalarisation; all learn from every run

`Magpie` is the method of the papers: one climber from the default, first improvement, values drawn from
`g[0,33554432,1/131072]`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heapwright.allocators.space import Param, Point
from heapwright.search.moves import axes_of, change_at, draw_unseen, mutate, scattered
from heapwright.search.protocol import BATCH, Observation, Setup
from heapwright.search.scalar import Weights, directions, scalar, scalar_noise

_KICK = 3  # settings changed at once to leave a local optimum
_TRIES = 60  # mutations drawn to find one unevaluated neighbour


@dataclass
class _Climber:
    """A local search for one scalarisation.

    Attributes:
        weights: (n_objectives,) weights.
        margin: noise of a comparison of two costs; an improvement must exceed it.
        incumbent, cost: the incumbent and its scalar cost; at first the default with cost 0.
        best, best_cost: the best incumbent so far.
        failures: neighbours evaluated since the incumbent last changed. A change in a batch that this climber proposed
            does not forget the batch: all of it counts.
        stuck: how often the climber left a local optimum since `best` last changed.
        restart: the next incumbent, which is being measured.
    """

    weights: Weights
    margin: float
    incumbent: Point
    cost: float
    best: Point
    best_cost: float
    failures: int = 0
    stuck: int = 0
    restart: Point | None = None


class Local:
    """Local search with one climber for each scalarisation, which take turns."""

    def __init__(self, setup: Setup) -> None:
        self._space = setup.space
        self._axes = axes_of(setup.space)
        self._rng = np.random.default_rng([setup.seed, 2])
        default = setup.space.default
        self._seen: dict[Point, tuple[float, ...] | None] = {default: (0.0,) * setup.objectives}
        # A comparison subtracts two noisy costs, so its noise is √2 times that of one.
        self._climbers = [
            _Climber(w, math.sqrt(2) * scalar_noise(setup.noise, w), default, 0.0, default, 0.0)
            for w in directions(setup.objectives)
        ]
        self._patience = max(2 * BATCH, 2 * sum(a.levels > 0 for a in self._axes))
        self._turn = 0
        self._learn(setup.known)

    def ask(self) -> list[Point]:
        """Return unevaluated neighbours of the next climber's incumbent; empty if all points are evaluated."""
        climber = self._climbers[self._turn % len(self._climbers)]
        asked: dict[Point, None] = {}
        if climber.failures >= self._patience and climber.restart is None:
            climber.restart = self._restart_point(climber)
        if climber.restart is not None and climber.restart not in self._seen:
            asked[climber.restart] = None
        start = climber.restart or climber.incumbent
        for _ in range(BATCH * _TRIES):
            if len(asked) >= BATCH:
                break
            point = mutate(self._space, self._axes, start, self._rng)
            if point not in self._seen:
                asked[point] = None
        if len(asked) < BATCH:
            seen = self._seen.keys() | asked.keys()
            asked |= dict.fromkeys(draw_unseen(self._space, self._axes, seen, BATCH - len(asked), self._rng))
        return list(asked)

    def tell(self, observations: Sequence[Observation]) -> None:
        """Move every climber to better points; the climber whose turn it was may restart."""
        climber = self._climbers[self._turn % len(self._climbers)]
        self._turn += 1
        self._learn(observations)
        climber.failures += len(observations)
        if climber.restart is not None:
            climber.incumbent, climber.cost = climber.restart, scalar(self._seen.get(climber.restart), climber.weights)
            climber.failures, climber.restart = 0, None
            self._move(climber, observations)

    def _learn(self, observations: Sequence[Observation]) -> None:
        self._seen |= {o.point: o.costs for o in observations}
        for climber in self._climbers:
            self._move(climber, observations)

    def _move(self, climber: _Climber, observations: Sequence[Observation]) -> None:
        for observation in observations:
            point, cost = observation.point, scalar(observation.costs, climber.weights)
            if self._wins(point, cost, climber.incumbent, climber.cost, climber.margin):
                climber.incumbent, climber.cost, climber.failures = point, cost, 0
            if self._wins(point, cost, climber.best, climber.best_cost, climber.margin):
                climber.best, climber.best_cost, climber.stuck = point, cost, 0

    def _wins(self, point: Point, cost: float, incumbent: Point, incumbent_cost: float, margin: float) -> bool:
        """Return whether a point beats an incumbent: by more than the noise, or within it with fewer settings.

        An infeasible point never wins.

        Args:
            point, cost: the candidate and its scalar cost.
            incumbent, incumbent_cost: the incumbent and its scalar cost.
            margin: noise of the comparison; 0 if unknown.
        """
        if cost == math.inf:
            return False
        if cost < incumbent_cost - margin:
            return True
        return bool(margin) and cost <= incumbent_cost and sum(map(bool, point)) < sum(map(bool, incumbent))

    def _restart_point(self, climber: _Climber) -> Point:
        """Return the best point with a few settings changed; at every third failure a random point."""
        climber.stuck += 1
        if climber.stuck % 3 == 0:
            return scattered(self._space, self._axes, self._rng)
        point = climber.best
        for _ in range(_KICK):
            point = mutate(self._space, self._axes, point, self._rng)
        return point


_MEAN, _MAX = 131072.0, 33554432.0  # g[0,33554432,1/131072]: exponential with this mean, truncated at this maximum


class Magpie:
    """Magpie as the papers ran it: one edit at a time from the default, keeping the first that measures better.

    An edit unsets a setting or gives it a new value. A number is drawn from a truncated exponential distribution, whose
    mean the parameter may give, and rounded to the nearest level. Several objectives are summed (Magpie itself has only
    one).
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
        """Return one unevaluated edit of the incumbent."""
        gates = len(self._space.gates)
        for _ in range(_TRIES):
            at = gates + int(self._rng.integers(len(self._space.params)))
            value = self._value(self._space.params[at - gates])
            if self._best[at] and self._rng.random() < 0.5:
                value = 0
            point = change_at(self._space, self._best, at, value)
            if point not in self._seen:
                return [point]
        return draw_unseen(self._space, self._axes, self._seen, 1, self._rng)

    def _value(self, param: Param) -> int:
        """Draw a level as Magpie does."""
        if param.spec.type != "int" or len(param.levels) == param.specials:
            return 1 + int(self._rng.integers(len(param.levels)))
        while (drawn := float(self._rng.exponential(param.spec.mean or _MEAN))) > _MAX:
            pass
        at = bisect_left(param.levels, drawn, lo=param.specials, hi=len(param.levels) - 1, key=float)
        below = max(param.specials, at - 1)
        nearer = below if drawn - float(param.levels[below]) < float(param.levels[at]) - drawn else at
        return 1 + nearer

    def tell(self, observations: Sequence[Observation]) -> None:
        """Make the best observation the incumbent if it measured better."""
        for observation in observations:
            self._seen.add(observation.point)
            cost = scalar(observation.costs, self._weights)
            if cost < self._cost:
                self._best, self._cost = observation.point, cost
