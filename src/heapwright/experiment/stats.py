"""The statistics of a confirmation: ratios with intervals, a rank check, correction for looking often.

Costs are log ratios of a candidate to the default measured beside it in the same block, so slow drift of the
machine cancels; docs/method.md shows what comes of it otherwise (tools/false_claims.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from heapwright.experiment.shape import shapes

if TYPE_CHECKING:
    pass

RESAMPLES = 4000
ALPHA = 0.05
_LARGEST = 700.0  # a logarithm whose exponential is still a number


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
    """The geometric-mean ratio and its interval: Student's t for the mean log ratio (see `mean_errors`).

    Args:
        groups: input name → log ratios of its pairs, in the order of measurement. With several inputs
            the interval is a hierarchical bootstrap: inputs are drawn with replacement, then each drawn
            input's mean from its t distribution.
        seed: of the drawing, so that a report says the same each time.
        confidence: of the interval.
    """
    from scipy.stats import t

    arrays = [np.asarray(g, dtype=float) for g in groups.values() if len(g)]
    estimate = float(np.mean([a.mean() for a in arrays]))
    if min(len(a) for a in arrays) < 2:
        return Ratio(math.exp(estimate), 0.0, math.inf)
    tail = (1 - confidence) / 2
    errors = [mean_errors(a[None]) for a in arrays]
    if len(arrays) == 1:
        half = float(t.ppf(1 - tail, errors[0].freedom[0]) * errors[0].error[0])
        low, high = estimate - half, estimate + half
    else:
        rng = np.random.default_rng(seed)
        means = np.stack([e.mean + e.error * rng.standard_t(e.freedom, RESAMPLES) for e in errors])
        drawn = rng.integers(0, len(arrays), size=(len(arrays), RESAMPLES))
        low, high = np.quantile(means[drawn, np.arange(RESAMPLES)].mean(axis=0), [tail, 1 - tail])
    return Ratio(math.exp(estimate), math.exp(max(low, -_LARGEST)), math.exp(min(high, _LARGEST)))


@dataclass(frozen=True)
class MeanErrors:
    """Of each of n_samples samples: its mean, the standard error of the mean and that error's degrees of freedom."""

    mean: NDArray[np.float64]
    error: NDArray[np.float64]
    freedom: NDArray[np.float64]


def mean_errors(rows: NDArray[np.float64]) -> MeanErrors:
    """Means of samples with honest standard errors.

    For a regular sample the error is the usual one, with n − 1 degrees of freedom. Two things widen it
    (`experiment.shape`):

    - Spells: n values that resemble their neighbours count as the fewer independent ones they are worth.
    - Groups or outliers: few values of a rare group say little about its share. As Agresti and Coull
      (1998) do for a proportion, the error is that of a sample with two more values, one on either side
      of the mean, as far away as the farthest value.

    Args:
        rows: (n_samples, n_values) log ratios, each row in the order of measurement.
    """
    n = rows.shape[1]
    found = shapes(rows)
    mean = rows.mean(axis=1)
    off = rows - mean[:, None]
    squares = (off * off).sum(axis=1)
    worth = found.independent
    plain = squares / (n - 1) / worth
    farthest = (off * off).max(axis=1)
    guarded = (squares * worth / n + 2 * farthest) / ((worth + 1) * (worth + 2))
    variance = np.where(found.uneven, np.maximum(plain, guarded), plain)
    return MeanErrors(mean, np.sqrt(variance), worth - 1)


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


Verdict = Literal["better", "worse", "same", "unproven"]


@dataclass(frozen=True)
class Summary:
    """What n runs of one configuration measured for one metric."""

    n: int
    median: float
    min: float
    max: float
    mad: float
