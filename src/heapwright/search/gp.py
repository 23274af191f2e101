"""Multi-objective Bayesian optimisation with Gaussian processes (scikit-learn), for few evaluations.

The method follows ParEGO (Knowles 2006), but has one surrogate model for each objective. Each of the five points of a
batch has its own random weights. It maximises the acquisition function, the expected improvement of the augmented
Chebyshev scalarisation with these weights. Before the next point is chosen, the models take their own prediction at
the last one as observed ("kriging believer"), so that the points of a batch differ. A further model predicts the
probability that a point is feasible, and multiplies the improvement.

The features of a setting are: whether it is set, its position in its range, and one indicator for each special or
unordered value. The method is deterministic: candidates and weights come from the seed, and linear algebra uses one
thread.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heapwright.allocators.space import Point
from heapwright.search import pareto
from heapwright.search.moves import axes_of, draw_unseen, mutate, scattered
from heapwright.search.protocol import BATCH, Observation, Setup
from heapwright.search.sobol import points_from_cube, sobol_cube

Array = NDArray[np.float64]

_FIRST = 3  # batches of the initial design (Sobol points)
_SCATTERED, _NEAR, _PARENTS = 400, 40, 8  # candidates: random ones, and mutations of each of 8 front members
_DRAWS = 64  # Monte Carlo draws for the expected improvement
_RHO = 0.05  # weight of the sum in the augmented Chebyshev scalarisation (Knowles 2006)
_MAX_POINTS = 250  # newest points that models are fitted to: the cost of a fit is cubic in them
_MAX_LENGTHS = 48  # with more features than this (several allocators), all share one length scale
_MIN_FEASIBLE = 0.02  # lower bound of the predicted probability of feasibility


class GaussianProcess:
    """Bayesian optimisation: an initial design of Sobol points, then five proposals at a time."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._space = setup.space
        self._axes = axes_of(setup.space)
        self._rng = np.random.default_rng([setup.seed, 5])
        self._costs: dict[Point, tuple[float, ...] | None] = {setup.space.default: (0.0,) * setup.objectives}
        self._costs |= {o.point: o.costs for o in setup.known}
        first = points_from_cube(setup.space, sobol_cube(len(setup.space.sizes), 8 * _FIRST * BATCH, setup.seed))
        self._first = [p for p in dict.fromkeys(first) if p not in self._costs][: _FIRST * BATCH]
        self._kernels: list[Any] = [None] * (setup.objectives + 1)

    def ask(self) -> list[Point]:
        """Return up to five points that are not evaluated yet; empty if all are."""
        if self._first:
            points, self._first = self._first[:BATCH], self._first[BATCH:]
            return points
        feasible = [p for p, c in self._costs.items() if c is not None]
        if len(feasible) < 3:
            return draw_unseen(self._space, self._axes, set(self._costs), BATCH, self._rng)
        candidates = self._candidates(feasible)
        if len(candidates) <= BATCH:
            return candidates
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # scikit-learn warns if a length scale reaches its bound, which does no harm here
            return self._propose(candidates)

    def tell(self, observations: Sequence[Observation]) -> None:
        """Store the observations."""
        self._costs |= {o.point: o.costs for o in observations}

    def _candidates(self, feasible: list[Point]) -> list[Point]:
        """Return unevaluated points: random ones, and those one or two mutations away from the Pareto front."""
        costs = [self._costs[p] or () for p in feasible]
        front = pareto.thin_front(costs, pareto.front(costs), _PARENTS)
        candidates: dict[Point, None] = {}
        for _ in range(_SCATTERED):
            candidates[scattered(self._space, self._axes, self._rng)] = None
        for i in front:
            for n in range(_NEAR):
                point = mutate(self._space, self._axes, feasible[i], self._rng)
                candidates[mutate(self._space, self._axes, point, self._rng) if n % 2 else point] = None
        return [p for p in candidates if p not in self._costs]

    def _features(self, points: Sequence[Point]) -> Array:
        """Return the (n_points, n_features) array of the models' inputs."""
        table = np.array(points, dtype=int)
        columns: list[Array] = []
        for values, axis in zip(table.T, self._axes, strict=True):
            if not axis.levels:
                continue
            columns.append((values > 0).astype(float))
            unordered = axis.specials if axis.ordered else axis.levels
            if axis.levels - unordered > 1:
                columns.append(np.where(values > unordered, (values - unordered) / (axis.levels - unordered), 0.0))
            if axis.levels > 1:
                columns += [(values == k).astype(float) for k in range(1, unordered + 1)]
        return np.stack(columns, axis=1)

    def _fit(self, number: int, x: Array, y: Array) -> Any:
        """Fit the surrogate model of one objective.

        Its hyperparameters start from those of the last fit, and no longer change once there are `_MAX_POINTS` points.

        Args:
            number: index of the objective; n_objectives for the model of feasibility.
            x: (n_points, n_features) array of features.
            y: (n_points,) array of costs (log ratios), or 1.0 for feasible and 0.0 for infeasible.
        """
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        lengths = [1.0] * x.shape[1] if x.shape[1] <= _MAX_LENGTHS else 1.0
        kernel = self._kernels[number] or (
            ConstantKernel(1.0, (0.1, 10.0)) * Matern(lengths, (0.2, 20.0), nu=2.5) + WhiteKernel(0.01, (1e-4, 1.0))
        )
        fixed = self._kernels[number] is not None and len(y) >= _MAX_POINTS
        model = GaussianProcessRegressor(kernel, normalize_y=True, optimizer=None if fixed else "fmin_l_bfgs_b")
        model.fit(x, y)
        self._kernels[number] = model.kernel_
        return model

    def _refit(self, model: Any, x: Array, y: Array) -> Any:
        """Return a model of the same hyperparameters, fitted to (n_points, n_features) `x` and (n_points,) `y`."""
        from sklearn.gaussian_process import GaussianProcessRegressor

        return GaussianProcessRegressor(model.kernel_, normalize_y=True, optimizer=None).fit(x, y)

    def _propose(self, candidates: list[Point]) -> list[Point]:
        """Return the batch of candidates that maximises the acquisition function, one after the other."""
        points = [p for p, c in self._costs.items() if c is not None][-_MAX_POINTS:]
        x, y = self._features(points), np.array([self._costs[p] for p in points], dtype=float)
        objectives = y.shape[1]
        models = [self._fit(k, x, y[:, k]) for k in range(objectives)]
        at = self._features(candidates)
        feasible = self._probability_of_feasibility(at)
        low, span = y.min(axis=0), np.maximum(np.ptp(y, axis=0), 1e-9)
        draws = self._rng.standard_normal((_DRAWS, 1, objectives))
        chosen: list[int] = []
        for _ in range(BATCH):
            weights = self._rng.dirichlet(np.ones(objectives))
            predicted = [m.predict(at, return_std=True) for m in models]
            mean, deviation = (np.stack([p[i] for p in predicted], axis=1) for i in (0, 1))
            known = np.stack([m.predict(x) for m in models], axis=1)  # smoothed by the model, so without noise
            incumbent = _chebyshev((known - low) / span, weights).min()
            sampled = _chebyshev((mean + deviation * draws - low) / span, weights)
            acquisition = np.maximum(incumbent - sampled, 0).mean(axis=0) * feasible
            acquisition[chosen] = -1.0
            # Rounded to six digits, so that another build of the numerical library chooses the same
            # point.
            chosen.append(int(np.round(acquisition / max(acquisition.max(), 1e-12), 6).argmax()))
            x, y = np.vstack([x, at[chosen[-1:]]]), np.vstack([y, mean[chosen[-1:]]])
            models = [self._refit(m, x, y[:, k]) for k, m in enumerate(models)]
        return [candidates[i] for i in chosen]

    def _probability_of_feasibility(self, at: Array) -> Array | float:
        """Return the (n_candidates,) predicted probabilities that candidates are feasible.

        Args:
            at: (n_candidates, n_features) array.
        """
        works = [(p, float(c is not None)) for p, c in self._costs.items()][-_MAX_POINTS:]
        if all(w for _, w in works):
            return 1.0
        model = self._fit(
            self._setup.objectives, self._features([p for p, _ in works]), np.array([w for _, w in works])
        )
        return np.asarray(np.clip(model.predict(at), _MIN_FEASIBLE, 1.0), dtype=float)


def _chebyshev(costs: Array, weights: Array) -> Array:
    """Return the augmented Chebyshev scalarisation of (…, n_objectives) costs with (n_objectives,) weights."""
    weighted = costs * weights
    scalarised: Array = weighted.max(axis=-1) + _RHO * weighted.sum(axis=-1)
    return scalarised
