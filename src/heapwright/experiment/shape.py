"""Recognises samples that a mean and a standard deviation describe badly: separate groups, outliers, spells.

Each test looks at many samples at once: `rows` is an array (n_samples, n_values), each row a sample in
the order it was measured, on a log scale. All tests together find something in about one normal
sample of fifteen, at any number of values from 8 on; fewer values are never tested. docs/method.md
shows what comes of it (tools/coverage.py).

    groups      the sorted values have gaps much wider than the standard deviation within groups
    outliers    the farthest value is much farther from the median than the median absolute
                deviation explains
    spells      a value resembles the value before it (autocorrelation at lag 1): n such values say
                less than n independent ones
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FEWEST = 8  # values that can be tested
MAX_GROUPS = 4
SAME = 5e-4  # a standard deviation below this (0.05 %) counts as this: smaller differences are no groups
SPELL_Z = 1.645  # one-sided 5 %
MAX_CORRELATION = 0.8
FEWEST_INDEPENDENT = 3.0

Rows = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Shapes:
    """What the tests found in each of n_samples samples.

    Attributes:
        grouped: (n_samples,) values fall into separate groups; a single outlier is a group too.
        uneven: (n_samples,) groups or outliers.
        spells: (n_samples,) neighbouring values resemble each other.
        independent: (n_samples,) how many independent values the sample is worth; n without spells and groups.
    """

    grouped: Mask
    uneven: Mask
    spells: Mask
    independent: Rows

    @property
    def irregular(self) -> Mask:
        """(n_samples,) samples with groups, outliers or spells."""
        return self.uneven | self.spells


def shapes(rows: Rows) -> Shapes:
    """Tests every sample.

    Args:
        rows: (n_samples, n_values) logarithms, each row in the order of measurement.
    """
    samples, n = rows.shape
    if n < FEWEST:
        never = np.zeros(samples, dtype=bool)
        return Shapes(never, never, never, np.full(samples, float(n)))
    score, _ = _gap_scores(rows)
    grouped = score > 2.5 + 30 / n
    off = np.abs(rows - np.median(rows, axis=1, keepdims=True))
    robust = np.maximum(1.4826 * np.median(off, axis=1), SAME)
    uneven = grouped | (off.max(axis=1) > (4 + 10 / n) * robust)
    correlation = _lag_one(rows)
    significant = correlation + 1 / n > SPELL_Z / math.sqrt(n)
    # The estimate of a short series is too low by (1 + 3r)/n (Marriott and Pope 1954; Kendall 1954).
    corrected = np.clip(correlation + (1 + 3 * correlation) / n, 0, MAX_CORRELATION)
    corrected = np.where(grouped | significant, corrected, 0)
    independent = np.maximum(n * (1 - corrected) / (1 + corrected), FEWEST_INDEPENDENT)
    return Shapes(grouped, uneven, significant, independent)


def groups(values: Sequence[float]) -> list[list[int]]:
    """The groups of one sample, each as the indices of its values, from the lowest group to the highest.

    Args:
        values: logarithms.

    Returns:
        A single group where nothing separates the values, or where they are too few to tell.
    """
    row = np.asarray(values, dtype=float)
    order = np.argsort(row, kind="stable")
    n = len(row)
    cuts: list[int] = []
    if n >= FEWEST:
        score, count = _gap_scores(row[None])
        if score[0] > 2.5 + 30 / n:
            gaps = np.diff(row[order])
            cuts = sorted(int(i) + 1 for i in np.argsort(-gaps, kind="stable")[: count[0]])
    return [[int(i) for i in part] for part in np.split(order, cuts)]


def _gap_scores(rows: Rows) -> tuple[Rows, NDArray[np.int64]]:
    """The best separation of each sample: (n_samples,) gap over the standard deviation within groups, and the cuts.

    Each sample is cut at its k widest gaps, for k from 1 to MAX_GROUPS − 1. The score is the k-th gap
    over the pooled standard deviation of the k + 1 groups; the k with the best score counts.
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
        distinct = width[:, k - 1] > width[:, k]  # of equal gaps all are cut, or none
        score = np.where(distinct, width[:, k - 1] / np.maximum(deviation, SAME), 0)
        count = np.where(score > best, k, count)
        best = np.maximum(best, score)
    return best, count


def _lag_one(rows: Rows) -> Rows:
    """(n_samples,) autocorrelations at lag 1; 0 where nothing varies."""
    off = rows - rows.mean(axis=1, keepdims=True)
    squares = (off * off).sum(axis=1)
    products = (off[:, 1:] * off[:, :-1]).sum(axis=1)
    found: Rows = np.divide(products, squares, out=np.zeros_like(products), where=squares > 0)
    return found
