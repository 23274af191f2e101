"""Scalarises several objectives by weighted sums, for single-objective methods.

Costs are log ratios, so a weighted sum is the logarithm of a weighted product of ratios: one per cent of memory
weighs as much as one per cent of time. There is one direction (weight vector) for each pick of a study
(`tuning.pipeline`): equal weights for the balanced pick, and each objective by itself, with a tenth of the others to
break ties. A weighted sum cannot find members of the Pareto front that are not on its convex hull; no pick would be
such a member either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Weights = tuple[float, ...]
_OTHERS = 0.1  # weight of the other objectives


def directions(objectives: int) -> list[Weights]:
    """Return the weight vectors for a number of objectives: equal weights first, then each objective by itself."""
    equal = [(1.0,) * objectives]
    if objectives == 1:
        return equal
    return equal + [tuple(1.0 if i == k else _OTHERS for i in range(objectives)) for k in range(objectives)]


def scalar(costs: Sequence[float] | None, weights: Weights) -> float:
    """Return the weighted sum of costs; infinity for an infeasible point."""
    return math.inf if costs is None else sum(w * c for w, c in zip(weights, costs, strict=True))


def scalar_noise(noise: Sequence[float], weights: Weights) -> float:
    """Return the standard deviation of the weighted sum of costs with independent noise; 0 if `noise` is empty."""
    return math.sqrt(sum((w * s) ** 2 for w, s in zip(weights, noise, strict=True))) if noise else 0.0
