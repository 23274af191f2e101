"""A landscape as its plot, table and JSON show it: plain data, and the sentence that states its claim."""

from __future__ import annotations

import math
from dataclasses import dataclass

from heapwright.interleaving.stats import (
    Ratio,
    Verdict,
)
from heapwright.metrics import METRICS
from heapwright.study.landscape_axes import SweptAxis
from heapwright.terminal_text import counted


@dataclass(frozen=True)
class LandscapePoint:
    """One point.

    Attributes:
        values: along the axes.
        config: number of its configuration in the study.
        ratio: geometric mean to the default of the same blocks; None if it failed or was not measured yet.
        median: of the metric; None likewise.
        runs: number of its runs in the sweep.
        failure: why it does not count, or empty.
    """

    values: tuple[str, ...]
    config: int
    ratio: float | None
    median: float | None
    runs: int
    failure: str


@dataclass(frozen=True)
class FreshComparison:
    """Comparison of two configurations by new, paired runs.

    Attributes:
        ratio: geometric mean, with its 95% interval.
        median: of the pairs' ratios.
        p: of the two-sided signed-rank test.
        pairs: number of pairs.
        verdict: as of a confirmation, at 1%: 'better' is less.
    """

    ratio: Ratio
    median: float
    p: float
    pairs: int
    verdict: Verdict


@dataclass(frozen=True)
class Smoothness:
    """How smooth a landscape is (measures: `study.landscape_judge`). None: too few points, or no variance.

    Attributes:
        autocorrelation: of neighbours' log ratios, −1 to 1.
        step: mean absolute difference of neighbours' log ratios.
        noise_step: the value of `step` that noise alone would give in a flat landscape.
        verdict: in words.
    """

    autocorrelation: float | None
    step: float | None
    noise_step: float
    verdict: str


@dataclass(frozen=True)
class LandscapeResult:
    """A landscape as its plot, table and JSON show it.

    Attributes:
        points: in the order of the axes, the last varying fastest.
        error: standard error of a point's log ratio.
        chance_gain: the gain that the lowest of so many points would show by chance if none differed from the default.
        repeated: how many points ran more than once.
        gain: the lowest point against the default, in fresh runs; None where there are none yet.
        contrast: the highest point against the lowest, in fresh runs; None likewise, and for a single point.
        differs: whether fresh runs show that points differ.
    """

    metric: str
    allocator: str
    axes: tuple[SweptAxis, ...]
    points: list[LandscapePoint]
    default_median: float | None
    error: float
    chance_gain: float
    smoothness: Smoothness
    repeated: int = 0
    gain: FreshComparison | None = None
    contrast: FreshComparison | None = None
    differs: bool = False

    @property
    def best(self) -> LandscapePoint | None:
        """The point with the least ratio in the sweep; the first of equals. Only `gains` says that it is better."""
        measured = [p for p in self.points if p.ratio is not None]
        return min(measured, key=lambda p: p.ratio or math.inf, default=None)

    @property
    def gains(self) -> bool:
        """Whether fresh runs show that the best point is better than the default."""
        return self.gain is not None and self.gain.verdict == "better"


def landscape_claim(landscape: LandscapeResult) -> str:
    """A landscape in one sentence."""
    best, label = landscape.best, METRICS[landscape.metric].label
    where = f"{label} over {' and '.join(a.key for a in landscape.axes)}"
    if best is None or best.ratio is None:
        return f"A landscape of {where}: nothing was measured yet."
    if landscape.gain is None:
        return f"A landscape of {where}: the lowest point was not measured again yet."
    if not landscape.gains:
        return f"A landscape of {where}: no point is shown to be better than the default."
    at = ", ".join(f"{a.key}={v}" for a, v in zip(landscape.axes, best.values, strict=True))
    ratio, pairs = landscape.gain.ratio, landscape.gain.pairs
    gain, low, high = (100 * (1 - r) for r in (ratio.value, ratio.high, ratio.low))
    return (
        f"A landscape of {where}: best at {at}, {gain:.1f}% below the default [{low:.1f}, {high:.1f}]"
        f" in {counted(pairs, 'fresh pair')}."
    )
