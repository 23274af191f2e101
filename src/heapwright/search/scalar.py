"""Several objectives as one, for methods that know only one.

Costs are log ratios, so a weighted sum is the logarithm of a weighted product of ratios: one per cent of memory
weighs as much as one per cent of time. There is one direction for each pick of a study (`tuning.pipeline`): each
objective by itself, with a tenth of the others to break ties, and all alike for the balanced pick. What such a sum
cannot find are members of the front in a hollow between two others; no pick would be one of them either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Weights = tuple[float, ...]
_OTHERS = 0.1


def directions(objectives: int) -> list[Weights]:
    """All alike first (the only one for a single objective), then each objective by itself."""
    alike = [(1.0,) * objectives]
    if objectives == 1:
        return alike
    return alike + [tuple(1.0 if i == k else _OTHERS for i in range(objectives)) for k in range(objectives)]


def scalar(costs: Sequence[float] | None, weights: Weights) -> float:
    """The weighted sum; infinite for what is infeasible."""
    return math.inf if costs is None else sum(w * c for w, c in zip(weights, costs, strict=True))


def scalar_noise(noise: Sequence[float], weights: Weights) -> float:
    """The standard deviation of the weighted sum."""
    return math.sqrt(sum((w * s) ** 2 for w, s in zip(weights, noise, strict=True))) if noise else 0.0
