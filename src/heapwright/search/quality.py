"""How good a front is, in the figures that papers report: hypervolume, size, spans, slope.

Hypervolume is of the ratios to the default (not of their logarithms), against a declared reference: `REFERENCE` in
every objective, whatever the study. The default by itself has 0.1 per objective, so 0.01 for two; a point that halves
both has 0.36. The default takes part: a front never has less than it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heapwright.search import pareto

REFERENCE = 1.1
SLOPE_FROM = 0.01  # a front that spans less than 1 % in an objective has no slope: it would be a ratio of two noises


@dataclass(frozen=True)
class FrontQuality:
    """The front of the search in figures. From the runs of the search, so a little better than the truth.

    Attributes:
        size: how many members.
        reference: of the hypervolume: this ratio to the default in every objective.
        hypervolume: of the front and the default, in ratios; more is better.
        default_hypervolume: of the default alone.
        spans: objective → how far the front reaches in it, as a difference of ratios.
        slope: change of the second objective for one of the first, from end to end; None without a trade-off, and
            where the front spans less than 1 % in an objective.
    """

    size: int
    reference: float
    hypervolume: float
    default_hypervolume: float
    spans: dict[str, float]
    slope: float | None


def front_quality(ratios: Sequence[Sequence[float]], objectives: Sequence[str]) -> FrontQuality:
    """The figures of these points' front.

    Args:
        ratios: of each feasible point, to the default, in the order of `objectives`.
    """
    import numpy as np
    from pymoo.indicators.hv import HV

    width = len(objectives)
    members = sorted(tuple(ratios[i]) for i in pareto.front(ratios))
    default = (1.0,) * width
    volume = HV(ref_point=np.full(width, REFERENCE))
    spans = {key: max(c) - min(c) for key, c in zip(objectives, zip(*members, strict=True), strict=True)}
    slope = None
    if width == 2 and len(members) > 1 and min(spans.values()) >= SLOPE_FROM:
        first, last = members[0], members[-1]
        slope = (last[1] - first[1]) / (last[0] - first[0])
    return FrontQuality(
        size=len(members),
        reference=REFERENCE,
        hypervolume=float(volume(np.array([default, *members]))),
        default_hypervolume=(REFERENCE - 1) ** width,
        spans=spans,
        slope=slope,
    )


def hypervolume_so_far(ratios: Sequence[Sequence[float]]) -> list[float]:
    """The hypervolume after each of these points, the default taking part from the beginning."""
    import numpy as np
    from pymoo.indicators.hv import HV

    if not ratios:
        return []
    volume = HV(ref_point=np.full(len(ratios[0]), REFERENCE))
    members: list[Sequence[float]] = [(1.0,) * len(ratios[0])]
    found, last = [], float(volume(np.array(members)))
    for point in ratios:
        if not any(pareto.dominates(m, point) or tuple(m) == tuple(point) for m in members):
            members = [*(m for m in members if not pareto.dominates(point, m)), point]
            last = float(volume(np.array(members)))
        found.append(last)
    return found
