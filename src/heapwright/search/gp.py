"""Gaussian processes (scikit-learn) for few evaluations: model every objective, try what promises most.

ParEGO's idea (Knowles 2006) with one model an objective: each of the five points of a batch has a direction of its
own, drawn at random, and is the one with the largest expected improvement of the augmented Chebyshev cost in that
direction. The model then believes its own prediction there before the next is chosen, so that five differ. What
fails has a model of its own: its chance to work multiplies the improvement.

A setting is described to the models by whether it is set, how far up its range, and which special or alternative
it is. Deterministic: candidates and directions come from the seed, and linear algebra runs in one thread.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heapwright.allocators.space import Point
from heapwright.search import pareto
from heapwright.search.moves import axes_of, mutate, scattered, unseen
from heapwright.search.protocol import BATCH, Observation, Setup
from heapwright.search.sobol import points_from_cube, sobol_cube

Array = NDArray[np.float64]

_FIRST = 3  # batches of Sobol points before there is a model
_SCATTERED, _NEAR, _PARENTS = 400, 40, 8  # candidates: anywhere, and around each of the best
_DRAWS = 64  # of the expected improvement
_RHO = 0.05  # of the augmented Chebyshev cost (Knowles 2006)
_MOST = 250  # points that models are fitted to: the cost grows with the cube
_MOST_LENGTHS = 48  # to be learned, one a feature; of more (several allocators), all share one
_LEAST_CHANCE = 0.02


class GaussianProcess:
    """Sobol points first, then five proposals at a time."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._space = setup.space
        self._axes = axes_of(setup.space)
        self._rng = np.random.default_rng([setup.seed, 5])
        self._told: dict[Point, tuple[float, ...] | None] = {setup.space.default: (0.0,) * setup.objectives}
        self._told |= {t.point: t.costs for t in setup.known}
        first = points_from_cube(setup.space, sobol_cube(len(setup.space.sizes), 8 * _FIRST * BATCH, setup.seed))
        self._first = [p for p in dict.fromkeys(first) if p not in self._told][: _FIRST * BATCH]
        self._kernels: list[Any] = [None] * (setup.objectives + 1)

    def ask(self) -> list[Point]:
        """Up to five points not known yet; empty when every point is."""
        if self._first:
            points, self._first = self._first[:BATCH], self._first[BATCH:]
            return points
        feasible = [p for p, c in self._told.items() if c is not None]
        if len(feasible) < 3:
            return unseen(self._space, self._axes, set(self._told), BATCH, self._rng)
        candidates = self._candidates(feasible)
        if len(candidates) <= BATCH:
            return candidates
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a length at its bound is no trouble here
            return self._propose(candidates)

    def tell(self, told: Sequence[Observation]) -> None:
        """Keeps what was measured."""
        self._told |= {t.point: t.costs for t in told}

    def _candidates(self, feasible: list[Point]) -> list[Point]:
        """Points not known yet: anywhere, and one or two changes away from the best."""
        costs = [self._told[p] or () for p in feasible]
        front = pareto.thin_front(costs, pareto.front(costs), _PARENTS)
        found: dict[Point, None] = {}
        for _ in range(_SCATTERED):
            found[scattered(self._space, self._axes, self._rng)] = None
        for i in front:
            for n in range(_NEAR):
                point = mutate(self._space, self._axes, feasible[i], self._rng)
                found[mutate(self._space, self._axes, point, self._rng) if n % 2 else point] = None
        return [p for p in found if p not in self._told]

    def _features(self, points: Sequence[Point]) -> Array:
        """What the models see of points."""
        table = np.array(points, dtype=int)
        columns: list[Array] = []
        for values, axis in zip(table.T, self._axes, strict=True):
            if not axis.levels:
                continue
            columns.append((values > 0).astype(float))
            apart = axis.specials if axis.ordered else axis.levels
            if axis.levels - apart > 1:
                columns.append(np.where(values > apart, (values - apart) / (axis.levels - apart), 0.0))
            if axis.levels > 1:
                columns += [(values == k).astype(float) for k in range(1, apart + 1)]
        return np.stack(columns, axis=1)

    def _fit(self, number: int, x: Array, y: Array) -> Any:
        """A model of one objective; its lengths begin where they were last and stay once there are many points."""
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        lengths = [1.0] * x.shape[1] if x.shape[1] <= _MOST_LENGTHS else 1.0
        kernel = self._kernels[number] or (
            ConstantKernel(1.0, (0.1, 10.0)) * Matern(lengths, (0.2, 20.0), nu=2.5) + WhiteKernel(0.01, (1e-4, 1.0))
        )
        last = self._kernels[number] is not None and len(y) >= _MOST
        model = GaussianProcessRegressor(kernel, normalize_y=True, optimizer=None if last else "fmin_l_bfgs_b")
        model.fit(x, y)
        self._kernels[number] = model.kernel_
        return model

    def _believing(self, model: Any, x: Array, y: Array) -> Any:
        from sklearn.gaussian_process import GaussianProcessRegressor

        return GaussianProcessRegressor(model.kernel_, normalize_y=True, optimizer=None).fit(x, y)

    def _propose(self, candidates: list[Point]) -> list[Point]:
        points = [p for p, c in self._told.items() if c is not None][-_MOST:]
        x, y = self._features(points), np.array([self._told[p] for p in points], dtype=float)
        objectives = y.shape[1]
        models = [self._fit(k, x, y[:, k]) for k in range(objectives)]
        at = self._features(candidates)
        chance = self._chance(at)
        low, span = y.min(axis=0), np.maximum(np.ptp(y, axis=0), 1e-9)
        draws = self._rng.standard_normal((_DRAWS, 1, objectives))
        chosen: list[int] = []
        for _ in range(BATCH):
            weights = self._rng.dirichlet(np.ones(objectives))
            predicted = [m.predict(at, return_std=True) for m in models]
            mean, deviation = (np.stack([p[i] for p in predicted], axis=1) for i in (0, 1))
            known = np.stack([m.predict(x) for m in models], axis=1)  # what noise has been taken off from
            best = _chebyshev((known - low) / span, weights).min()
            drawn = _chebyshev((mean + deviation * draws - low) / span, weights)
            gain = np.maximum(best - drawn, 0).mean(axis=0) * chance
            gain[chosen] = -1.0
            # Equal to the last digits counts as equal: a library built otherwise must not choose otherwise.
            chosen.append(int(np.round(gain / max(gain.max(), 1e-12), 6).argmax()))
            x, y = np.vstack([x, at[chosen[-1:]]]), np.vstack([y, mean[chosen[-1:]]])
            models = [self._believing(m, x, y[:, k]) for k, m in enumerate(models)]
        return [candidates[i] for i in chosen]

    def _chance(self, at: Array) -> Array | float:
        """How likely each candidate is to work."""
        works = [(p, float(c is not None)) for p, c in self._told.items()][-_MOST:]
        if all(w for _, w in works):
            return 1.0
        model = self._fit(
            self._setup.objectives, self._features([p for p, _ in works]), np.array([w for _, w in works])
        )
        return np.asarray(np.clip(model.predict(at), _LEAST_CHANCE, 1.0), dtype=float)


def _chebyshev(costs: Array, weights: Array) -> Array:
    """The augmented Chebyshev cost over the last axis."""
    weighted = costs * weights
    found: Array = weighted.max(axis=-1) + _RHO * weighted.sum(axis=-1)
    return found
