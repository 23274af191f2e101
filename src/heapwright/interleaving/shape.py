"""Detects samples that a mean and a standard deviation describe badly: separate groups, outliers, autocorrelation.

Each test takes many samples at once: `rows` is an (n_samples, n_values) array of logarithms, and each row is one sample
in the order of measurement. All tests together find something in about one normal sample of fifteen, for any number of
values from 8 on. Samples with fewer values are not tested. docs/method.md shows the effect on the coverage of
confidence intervals (tools/coverage.py).

    groups      the sorted values have a gap much wider than the standard deviation within groups
    outliers    the value farthest from the median is much farther than the median absolute deviation explains
    spells      high and low values come in spells: the autocorrelation at lag 1 is positive, so n values carry less
                information than n independent ones
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MIN_VALUES = 8  # a sample with fewer values is not tested
MAX_GROUPS = 4
SAME = 5e-4  # the least standard deviation assumed (0.05%): smaller differences make no groups
SPELL_Z = 1.645  # normal quantile of a one-sided test at 5%
MAX_CORRELATION = 0.8  # a larger estimate is lowered to this
MIN_INDEPENDENT = 3.0  # smallest effective sample size

Rows = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Shapes:
    """The results of the tests, each an array (n_samples,).

    Attributes:
        grouped: whether the values fall into separate groups; a single outlier is a group too.
        uneven: whether there are groups or outliers.
        spells: whether the autocorrelation at lag 1 is significant.
        independent: effective sample size: the number of independent values with the same information. It is n_values
            for samples without groups and spells.
    """

    grouped: Mask
    uneven: Mask
    spells: Mask
    independent: Rows

    @property
    def irregular(self) -> Mask:
        """Whether there are groups, outliers or spells: an array (n_samples,)."""
        return self.uneven | self.spells


def shapes(rows: Rows) -> Shapes:
    """Test every sample.

    Args:
        rows: (n_samples, n_values) array of logarithms, each row in the order of measurement.
    """
    samples, n = rows.shape
    if n < MIN_VALUES:
        never = np.zeros(samples, dtype=bool)
        return Shapes(never, never, never, np.full(samples, float(n)))
    score, _ = _gap_scores(rows)
    grouped = score > 2.5 + 30 / n
    off = np.abs(rows - np.median(rows, axis=1, keepdims=True))
    robust = np.maximum(1.4826 * np.median(off, axis=1), SAME)
    uneven = grouped | (off.max(axis=1) > (4 + 10 / n) * robust)
    correlation = _lag_one(rows)
    significant = correlation + 1 / n > SPELL_Z / math.sqrt(n)
    # The estimate r from a short series is biased by −(1 + 3r)/n (Marriott and Pope 1954; Kendall
    # 1954).
    corrected = np.clip(correlation + (1 + 3 * correlation) / n, 0, MAX_CORRELATION)
    corrected = np.where(grouped | significant, corrected, 0)
    independent = np.maximum(n * (1 - corrected) / (1 + corrected), MIN_INDEPENDENT)
    return Shapes(grouped, uneven, significant, independent)


def groups(values: Sequence[float]) -> list[list[int]]:
    """Divide one sample into its groups.

    Args:
        values: logarithms.

    Returns:
        The indices of the values in each group, from the lowest group to the highest. It is a single group if the
        values are not separated, or are fewer than MIN_VALUES.
    """
    row = np.asarray(values, dtype=float)
    order = np.argsort(row, kind="stable")
    n = len(row)
    cuts: list[int] = []
    if n >= MIN_VALUES:
        score, count = _gap_scores(row[None])
        if score[0] > 2.5 + 30 / n:
            gaps = np.diff(row[order])
            cuts = sorted(int(i) + 1 for i in np.argsort(-gaps, kind="stable")[: count[0]])
    return [[int(i) for i in part] for part in np.split(order, cuts)]


def _gap_scores(rows: Rows) -> tuple[Rows, NDArray[np.int64]]:
    """Score how well each sample separates into groups.

    Each sample is cut at its k widest gaps, for k from 1 to MAX_GROUPS − 1. The score is the k-th widest gap divided by
    the pooled standard deviation within the k + 1 groups. The k with the highest score counts.

    Returns:
        Two arrays (n_samples,): the highest score and its k.
    """
    samples, n = rows.shape
    ordered = np.sort(rows, axis=1)
    gaps = np.diff(ordered, axis=1)
    ordered = ordered - ordered[:, :1]
    widest = np.argsort(-gaps, axis=1, kind="stable")
    width = np.take_along_axis(gaps, widest[:, :MAX_GROUPS], axis=1)
    sums = np.concatenate([np.zeros((samples, 1)), np.cumsum(ordered, axis=1)], axis=1)
    squares = (ordered**2).sum(axis=1)
    best, count = np.zeros(samples), np.zeros(samples, dtype=np.int64)
    ends = np.zeros((samples, 1), dtype=np.int64), np.full((samples, 1), n)
    for k in range(1, MAX_GROUPS):
        edges = np.sort(np.concatenate([ends[0], widest[:, :k] + 1, ends[1]], axis=1), axis=1)
        totals = np.diff(np.take_along_axis(sums, edges, axis=1), axis=1)
        within = squares - (totals**2 / np.diff(edges, axis=1)).sum(axis=1)
        deviation = np.sqrt(np.maximum(within, 0) / (n - k - 1))
        distinct = width[:, k - 1] > width[:, k]  # cut at all of several equal gaps, or at none
        score = np.where(distinct, width[:, k - 1] / np.maximum(deviation, SAME), 0)
        count = np.where(score > best, k, count)
        best = np.maximum(best, score)
    return best, count


def _lag_one(rows: Rows) -> Rows:
    """Estimate the autocorrelation at lag 1 of each sample: an array (n_samples,); 0 for a constant sample."""
    off = rows - rows.mean(axis=1, keepdims=True)
    squares = (off * off).sum(axis=1)
    products = (off[:, 1:] * off[:, :-1]).sum(axis=1)
    found: Rows = np.divide(products, squares, out=np.zeros_like(products), where=squares > 0)
    return found
