"""Computes quality indicators of a Pareto front: hypervolume, size, spans and slope.

The hypervolume is that of the ratios to the default (not of their logarithms). Its reference point is `REFERENCE` in
every objective, in every study. The default is always included, so a front never has less than the default alone: 0.1
for one objective, 0.01 for two. A point that halves two objectives has 0.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heapwright.search import pareto

REFERENCE = 1.1
SLOPE_FROM = 0.01  # smallest span (1%) in every objective for a slope; below it the slope would be noise


@dataclass(frozen=True)
class FrontQuality:
    """Quality indicators of a Pareto front of a study.

    Attributes:
        size: number of members.
        reference: coordinate of the hypervolume's reference point in every objective, as a ratio to the default.
        hypervolume: of the front and the default; larger is better.
        default_hypervolume: of the default alone.
        spans: objective → difference of the largest and the smallest ratio on the front.
        slope: change of the second objective per change of the first, between the ends of the front; None without a
            trade-off, or if the front spans less than 1% in an objective.
        repeated: whether the ratios come from runs made after the configurations were chosen. If not, they are single
            runs of the search. Luck selects the best of these, so they are optimistic.
    """

    size: int
    reference: float
    hypervolume: float
    default_hypervolume: float
    spans: dict[str, float]
    slope: float | None
    repeated: bool = False


def front_quality(ratios: Sequence[Sequence[float]], objectives: Sequence[str], repeated: bool = False) -> FrontQuality:
    """Return the quality indicators of the Pareto front of some points.

    Args:
        ratios: (n_points, n_objectives) ratios of feasible points to the default.
        objectives: metric keys, in the order of the columns.
        repeated: whether they come from runs made after the configurations were chosen.
    """
    import numpy as np
    from moocore import hypervolume

    width = len(objectives)
    members = sorted(tuple(ratios[i]) for i in pareto.front(ratios))
    default = (1.0,) * width
    reference = np.full(width, REFERENCE)
    spans = {key: max(c) - min(c) for key, c in zip(objectives, zip(*members, strict=True), strict=True)}
    slope = None
    if width == 2 and len(members) > 1 and min(spans.values()) >= SLOPE_FROM:
        first, last = members[0], members[-1]
        slope = (last[1] - first[1]) / (last[0] - first[0])
    return FrontQuality(
        size=len(members),
        reference=REFERENCE,
        hypervolume=float(hypervolume(np.array([default, *members]), ref=reference)),
        default_hypervolume=(REFERENCE - 1) ** width,
        spans=spans,
        slope=slope,
        repeated=repeated,
    )


def hypervolume_so_far(ratios: Sequence[Sequence[float]]) -> list[float]:
    """Return the hypervolume after each of (n_points, n_objectives) ratios, including the default from the start."""
    import numpy as np
    from moocore import hypervolume

    if not ratios:
        return []
    reference = np.full(len(ratios[0]), REFERENCE)
    members: list[Sequence[float]] = [(1.0,) * len(ratios[0])]
    volumes, last = [], float(hypervolume(np.array(members), ref=reference))
    for point in ratios:
        if not any(pareto.dominates(m, point) or tuple(m) == tuple(point) for m in members):
            members = [*(m for m in members if not pareto.dominates(point, m)), point]
            last = float(hypervolume(np.array(members), ref=reference))
        volumes.append(last)
    return volumes
