"""The statistics of a confirmation: ratios with intervals, a rank check, correction for looking often.

Costs are log ratios of a candidate to the default measured beside it in the same block, so slow drift of the
machine cancels; docs/method.md shows what comes of it otherwise (tools/false_claims.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heapwright.study.view import Summary, Verdict

RESAMPLES = 4000
ALPHA = 0.05


@dataclass(frozen=True)
class Ratio:
    """A geometric-mean ratio and its interval."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the interval's width."""
        return (self.high - self.low) / 2


def summarise(values: Sequence[float]) -> Summary:
    """Median, range and median absolute deviation; of a non-empty list."""
    array = np.asarray(values, dtype=float)
    median = float(np.median(array))
    mad = float(np.median(np.abs(array - median)))
    return Summary(len(array), median, float(array.min()), float(array.max()), mad)


def relative_noise(values: Sequence[float]) -> float:
    """The robust relative spread of repeated runs: 1.4826 × MAD of the logarithms; 0 if any value is not positive."""
    array = np.asarray(values, dtype=float)
    if len(array) < 2 or (array <= 0).any():
        return 0.0
    logs = np.log(array)
    return float(1.4826 * np.median(np.abs(logs - np.median(logs))))


def log_ratio(value: float | None, reference: float | None) -> float | None:
    """ln(value / reference); 0 where both are 0, None where it has no meaning."""
    if value is None or reference is None:
        return None
    if value == reference:
        return 0.0
    if value <= 0 or reference <= 0:
        return None
    return math.log(value / reference)


def ratio_interval(groups: Mapping[str, Sequence[float]], seed: int, confidence: float = 1 - ALPHA) -> Ratio:
    """Bootstrap interval of the geometric-mean ratio.

    Args:
        groups: input name → log ratios of its pairs. With several inputs the bootstrap is hierarchical:
            inputs are drawn first, then pairs within each.
        seed: of the resampling, so that a report says the same each time.
        confidence: of the interval.

    The percentile interval of a small sample is too narrow; its quantiles are widened to what Student's t
    would take (Hesterberg 2015, "What Teachers Should Know About the Bootstrap", section 5.3, the expanded
    percentile interval).
    """
    from scipy.stats import norm, t

    arrays = [np.asarray(g, dtype=float) for g in groups.values() if len(g)]
    estimate = float(np.mean([a.mean() for a in arrays]))
    smallest = min(len(a) for a in arrays)
    if smallest < 2:
        return Ratio(math.exp(estimate), 0.0, math.inf)
    rng = np.random.default_rng(seed)
    means = np.stack([_resampled_means(a, rng) for a in arrays])
    if len(arrays) > 1:
        drawn = rng.integers(0, len(arrays), size=(len(arrays), RESAMPLES))
        means = means[drawn, np.arange(RESAMPLES)]
    resampled = means.mean(axis=0)
    tail = (1 - confidence) / 2
    wide = float(norm.cdf(t.ppf(tail, smallest - 1) * math.sqrt(smallest / (smallest - 1))))
    low, high = np.quantile(resampled, [wide, 1 - wide])
    return Ratio(math.exp(estimate), float(np.exp(low)), float(np.exp(high)))


def _resampled_means(values: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    drawn = rng.integers(0, len(values), size=(RESAMPLES, len(values)))
    means: NDArray[np.float64] = values[drawn].mean(axis=1)
    return means


def signed_rank_p(logs: Sequence[float]) -> float:
    """Two-sided Wilcoxon signed-rank p of 'the median ratio is 1'; 1 where nothing differs."""
    from scipy.stats import wilcoxon

    if len(logs) < 2 or not any(logs):
        return 1.0
    return float(wilcoxon(logs, zero_method="pratt").pvalue)


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: p values that may be compared with alpha however many there are."""
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    adjusted = [1.0] * len(ps)
    worst = 0.0
    for rank, i in enumerate(order):
        worst = max(worst, min(1.0, (len(ps) - rank) * ps[i]))
        adjusted[i] = worst
    return adjusted


def verdict(ratio: Ratio, p: float | None, margin: float) -> Verdict:
    """What the data carry.

    'same' when the whole interval lies within the equivalence margin; 'better' or 'worse' when the interval
    leaves 1 out and the adjusted rank test agrees; else 'unproven'. Without a p (a metric that is shown but
    was no objective) never better or worse.
    """
    if 1 - margin <= ratio.low and ratio.high <= 1 + margin:
        return "same"
    if p is not None and p < ALPHA:
        if ratio.high < 1:
            return "better"
        if ratio.low > 1:
            return "worse"
    return "unproven"


def narrow_enough(ratio: Ratio, margin: float) -> bool:
    """Whether more pairs would tell little: half-width within the margin, or a quarter of the effect."""
    return ratio.half_width <= max(margin, abs(ratio.value - 1) / 4)


def harm_proven(logs: Sequence[float], margin: float, confidence: float = 0.9) -> bool:
    """Whether a cost beyond the margin shows: the one-sided lower bound of the mean lies above it."""
    from scipy.stats import t

    array = np.asarray(logs, dtype=float)
    if len(array) < 2:
        return True
    error = float(array.std(ddof=1)) / math.sqrt(len(array))
    return bool(array.mean() - float(t.ppf(confidence, len(array) - 1)) * error > math.log1p(margin))
