"""Computes the statistics of a confirmation: ratios with confidence intervals, a rank test, Holm's correction.

The unit of analysis is the pair: a run of a candidate and the run of the default in the same block and on the same
input. Its paired log ratio is the logarithm of the candidate's value divided by the default's. Both runs are made close
together in time, so slow drift of the machine cancels. docs/method.md shows the false claims that unpaired runs lead to
(tools/false_claims.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heapwright.interleaving.shape import shapes

RESAMPLES = 4000  # of the bootstrap over inputs
ALPHA = 0.05  # error probability: intervals have a confidence of 1 − ALPHA
# By number of values: the factors that make the scaled median absolute deviation unbiased for a
# normal sample (Croux and Rousseeuw 1992, 'Time-efficient algorithms for two highly robust
# estimators of scale').
_FEW_VALUES = {2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}
NEARLY_EQUAL = 0.01  # range of runs, as a share, of a metric that hardly varies
_LARGEST = 700.0  # the exponential of a larger logarithm may overflow


@dataclass(frozen=True)
class Ratio:
    """The geometric mean of the ratios of pairs, and its confidence interval.

    Attributes:
        value: the geometric mean.
        low: lower end of the interval.
        high: upper end of the interval.
    """

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the width of the interval."""
        return (self.high - self.low) / 2


def summarise(values: Sequence[float]) -> Summary:
    """Compute median, range and median absolute deviation of at least one value."""
    # Nearly all callers have a few values. For these numpy's median takes ten times as long.
    middle = median(values)
    mad = median([abs(value - middle) for value in values])
    return Summary(len(values), float(middle), float(min(values)), float(max(values)), float(mad))


def relative_noise(values: Sequence[float]) -> float:
    """Estimate the relative standard deviation of repeated runs robustly.

    It is 1.4826 times the median absolute deviation of the logarithms, corrected for few values. That is 0 if more than
    half of the values are equal; if the others are near them (within 1%), it is the standard deviation instead. 0 if a
    value is not positive or there is only one.
    """
    array = np.asarray(values, dtype=float)
    if len(array) < 2 or (array <= 0).any():
        return 0.0
    logs = np.log(array)
    n = len(logs)
    robust = float(1.4826 * _FEW_VALUES.get(n, n / (n - 0.8)) * np.median(np.abs(logs - np.median(logs))))
    if robust == 0 and 0 < np.ptp(logs) < NEARLY_EQUAL:
        return float(logs.std(ddof=1))
    return robust


def log_ratio(value: float | None, reference: float | None) -> float | None:
    """Return ln(value / reference).

    Returns:
        0 if the two are equal, also if both are 0. None if one is unknown, or if they differ and one is not positive.
    """
    if value is None or reference is None:
        return None
    if value == reference:
        return 0.0
    if value <= 0 or reference <= 0:
        return None
    return math.log(value / reference)


def ratio_interval(groups: Mapping[str, Sequence[float]], seed: int, confidence: float = 1 - ALPHA) -> Ratio:
    """Estimate the geometric-mean ratio of the pairs, with its confidence interval.

    With one input the interval is Student's t interval for the mean log ratio, with the standard error and the degrees
    of freedom of `mean_errors`. With several inputs it is a hierarchical bootstrap: inputs are drawn with replacement,
    and the mean of each drawn input from its t distribution.

    Args:
        groups: input name → paired log ratios, in the order of measurement. At least one input has some.
        seed: of the bootstrap; the same seed gives the same interval.
        confidence: confidence level of the interval, from 0 to 1.

    Returns:
        The ratio. Its interval is (0, infinity) if an input has only one pair.
    """
    from scipy.special import stdtrit

    arrays = [np.asarray(g, dtype=float) for g in groups.values() if len(g)]
    estimate = float(np.mean([a.mean() for a in arrays]))
    if min(len(a) for a in arrays) < 2:
        return Ratio(math.exp(estimate), 0.0, math.inf)
    tail = (1 - confidence) / 2
    errors = [mean_errors(a[None]) for a in arrays]
    if len(arrays) == 1:
        half = float(stdtrit(errors[0].freedom[0], 1 - tail) * errors[0].error[0])
        low, high = estimate - half, estimate + half
    else:
        rng = np.random.default_rng(seed)
        means = np.stack([e.mean + e.error * rng.standard_t(e.freedom, RESAMPLES) for e in errors])
        drawn = rng.integers(0, len(arrays), size=(len(arrays), RESAMPLES))
        low, high = np.quantile(means[drawn, np.arange(RESAMPLES)].mean(axis=0), [tail, 1 - tail])
    return Ratio(math.exp(estimate), math.exp(max(low, -_LARGEST)), math.exp(min(high, _LARGEST)))


@dataclass(frozen=True)
class MeanErrors:
    """Means of samples with their standard errors, each an array (n_samples,).

    Attributes:
        mean: mean of each sample.
        error: standard error of the mean.
        freedom: degrees of freedom of the standard error, for Student's t.
    """

    mean: NDArray[np.float64]
    error: NDArray[np.float64]
    freedom: NDArray[np.float64]


def mean_errors(rows: NDArray[np.float64]) -> MeanErrors:
    """Estimate the mean of each sample, with a standard error that holds for irregular samples too.

    For a regular sample this is the usual standard error, with n − 1 degrees of freedom. Two kinds of irregular samples
    (`interleaving.shape`) get a larger one:

    - Spells (autocorrelation): the effective sample size takes the place of n, also in the degrees of freedom.
    - Groups or outliers: a sample shows the share of a rare group badly. As Agresti and Coull (1998) do for a
      proportion, two values are added to the sample: one on either side of the mean, as far from it as the farthest
      value. The larger of this error and the usual one counts.

    Args:
        rows: (n_samples, n_values) array of log ratios, each row in the order of measurement; n_values is at least 2.
    """
    n = rows.shape[1]
    found = shapes(rows)
    mean = rows.mean(axis=1)
    off = rows - mean[:, None]
    squares = (off * off).sum(axis=1)
    effective_n = found.independent
    usual = squares / (n - 1) / effective_n
    farthest = (off * off).max(axis=1)
    guarded = (squares * effective_n / n + 2 * farthest) / ((effective_n + 1) * (effective_n + 2))
    variance = np.where(found.uneven, np.maximum(usual, guarded), usual)
    return MeanErrors(mean, np.sqrt(variance), effective_n - 1)


def mean_ranks(values: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """The rank of each value, from 1. Equal values share their mean rank."""
    ordered = np.sort(values)
    return (ordered.searchsorted(values, "left") + ordered.searchsorted(values, "right") + 1) / 2


class SignedRank(NamedTuple):
    """The result of Wilcoxon's signed-rank test.

    Attributes:
        p: two-sided p value.
        above: whether the positive values have the larger rank sum.
    """

    p: float
    above: bool


def signed_rank(logs: Sequence[float]) -> SignedRank:
    """Do Wilcoxon's exact signed-rank test that the median ratio is 1.

    It counts the signs that the log ratios could have, with their sizes as they are, so that it is exact with ties and
    zeros too. scipy's `wilcoxon` approximates with ties, or takes seconds to try each combination of signs.

    Args:
        logs: paired log ratios, or differences. Zeros are treated as Pratt proposes.

    Returns:
        p is 1 if all values are 0 or there are fewer than two. The direction is that of the rank sum, which decides p:
        most of the values may have the other sign.
    """
    if len(logs) < 2 or not any(logs):
        return SignedRank(1.0, False)
    values = np.asarray(logs, dtype=np.float64)
    ranks = (2 * mean_ranks(np.abs(values))).astype(int)  # twice a mean rank is an integer
    chances = np.zeros(ranks.sum() + 1)  # of each sum of positive ranks
    chances[0] = 1
    end = 1
    for rank in np.sort(ranks[values != 0]):
        chances[:end] /= 2
        chances[rank : end + rank] += chances[:end]
        end += rank
    positive, negative = ranks[values > 0].sum(), ranks[values < 0].sum()
    p = min(1.0, 2 * min(chances[: positive + 1].sum(), chances[positive:].sum()))
    return SignedRank(float(p), bool(positive > negative))


def signed_rank_p(logs: Sequence[float]) -> float:
    """The two-sided p value of `signed_rank` alone."""
    return signed_rank(logs).p


def pairs_needed(inputs: int, tests: int) -> int:
    """The number of pairs of each input with which a proof is possible.

    With n pairs, the smallest p value of a signed-rank test is 2 / 2^n. It must survive Holm's correction.

    Args:
        inputs: number of inputs.
        tests: number of tests that Holm's correction counts.
    """
    return next(n for n in range(1, 64) if tests * 2.0 ** (1 - n * inputs) < ALPHA)


def holm(ps: Sequence[float]) -> list[float]:
    """Adjust p values for multiple comparisons by Holm's step-down method.

    Returns:
        The adjusted p values, in the order of `ps`. Each may be compared with ALPHA: the family-wise error rate stays
        below ALPHA.
    """
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    adjusted = [1.0] * len(ps)
    largest = 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[i]))
        adjusted[i] = largest
    return adjusted


def verdict(ratio: Ratio, p: float | None, margin: float, resolution: float = 0.0) -> Verdict:
    """Decide whether a candidate is better, worse or the same as the default.

    Args:
        ratio: candidate to default, with its confidence interval; smaller is better.
        p: adjusted p value of the signed-rank test; None for a metric that is no objective.
        margin: equivalence margin of the ratio (0.005 is half a per cent).
        resolution: smallest relative difference that runs can show (`interleaving.resolution`).

    Returns:
        'same' if the whole interval lies within the margin around 1. 'better' or 'worse' if the interval excludes 1,
        `p` is below ALPHA, and the difference exceeds the resolution. Otherwise 'unproven'.
    """
    if 1 - margin <= ratio.low and ratio.high <= 1 + margin:
        return "same"
    if p is not None and p < ALPHA and abs(ratio.value - 1) > resolution:
        if ratio.high < 1:
            return "better"
        if ratio.low > 1:
            return "worse"
    return "unproven"


def narrow_enough(ratio: Ratio, margin: float) -> bool:
    """Whether more pairs would add little: the half width is within the margin, or a quarter of the effect size."""
    return ratio.half_width <= max(margin, abs(ratio.value - 1) / 4)


def harm_proven(groups: Sequence[Sequence[float]], margin: float, confidence: float = 0.9) -> bool:
    """Whether a cost beyond the margin is proven: the one-sided lower bound of the mean log ratio exceeds the margin.

    Args:
        groups: paired log ratios of each input. With fewer than two in all the result is True.
        margin: equivalence margin of the ratio (0.005 is half a per cent).
        confidence: confidence level of the one-sided bound (`_mean_and_half`), from 0 to 1.
    """
    found = _mean_and_half(groups, confidence)
    return found is None or bool(found[0] - found[1] > math.log1p(margin))


def mean_is_below(groups: Sequence[Sequence[float]], bound: float, confidence: float) -> bool:
    """Whether the one-sided upper bound of the mean of some log ratios is below a bound.

    Args:
        groups: paired log ratios of each input. With fewer than two in all the result is False.
        bound: a log ratio.
        confidence: confidence level of the one-sided bound (`_mean_and_half`), from 0 to 1.
    """
    found = _mean_and_half(groups, confidence)
    return found is not None and bool(found[0] + found[1] < bound)


def _mean_and_half(groups: Sequence[Sequence[float]], confidence: float) -> tuple[float, float] | None:
    """The mean over these inputs, and the half width of its one-sided bound by Student's t; None without a spread.

    The spread is that within the inputs, pooled: differences between inputs are no noise of this mean. With single
    values of inputs it is the spread of all values.
    """
    from scipy.special import stdtrit

    arrays = [np.asarray(group, dtype=float) for group in groups if len(group)]
    if any(len(array) < 2 for array in arrays):
        arrays = [np.concatenate(arrays)]
    freedom = sum(len(array) - 1 for array in arrays)
    if freedom < 1:
        return None
    variance = sum(float(((array - array.mean()) ** 2).sum()) for array in arrays) / freedom
    error = math.sqrt(variance * sum(1 / len(array) for array in arrays)) / len(arrays)
    return float(np.mean([array.mean() for array in arrays])), float(stdtrit(freedom, confidence)) * error


Verdict = Literal["better", "worse", "same", "unproven"]


@dataclass(frozen=True)
class Summary:
    """Summary of n runs of one configuration in one metric, in the metric's unit.

    Attributes:
        n: number of runs.
        median: median of the runs.
        min: smallest value.
        max: largest value.
        mad: median absolute deviation from the median.
    """

    n: int
    median: float
    min: float
    max: float
    mad: float
