"""Judges the blocks of a canary: an interval for the ratio of treatment and control that may be looked at repeatedly.

1. Both sides of a block see the same moments, so a load that they share cancels in the ratio. The remaining
   noise comes from the instances and is correlated. `level.py` fits a level, a drift and the correlation, and gives an
   interval that allows for an unknown correlation.
2. The difference may drift. A claim needs three bounds on one side of 1: of the mean (two-sided), of the fitted line
   at its start (one-sided), and, at `_END`, of the line at its end. Two equal instances that drift apart are equal at
   the start, so the second bound errs at most as often as its probability under a steady drift with short noise. The
   third one keeps a difference from being claimed that goes away, as of an instance that still fills up. The interval
   covers all three.
3. Stopping as soon as a result looks good finds differences by chance. So there are looks at 15, 30, 60 … blocks
   only. They share the probability of an error: `_SPENT` for the first three, then `_LATER`/(j (j + 1)) for the j-th
   look after them. All together these are 5% of the bound of the mean and 5% of that at the start, however many
   looks there are (Bonferroni). The bound at the end has `_END` at each look.
4. Instances differ without any treatment. With two or more instances on both sides, the interval is also at least that
   of Welch's test between the instances' means. With one, or with one number for a whole group, nothing in the data
   tells this difference from the treatment's; the bound of the mean allows for one of the standard deviation
   `INSTANCE_SD`, and the result says so.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from heapwright.canary.blocks import RatioSeries
from heapwright.canary.level import MAX_POINTS, fit_level

FIRST_LOOK = 15  # blocks
INSTANCE_SD = 0.006  # of the log ratio of two equal instances that hold their level; seen on pairs of equal services
_TREND_ALPHA = 0.05
_END = 0.1


class _Spent(NamedTuple):
    """The probability of an error that a look spends: two-sided of the mean, one-sided of the level at the start."""

    mean: float
    start: float


# Most is spent at sixty blocks, an hour by default. The looks before it are for large differences.
_SPENT = (_Spent(0.002, 0.002), _Spent(0.004, 0.003), _Spent(0.034, 0.03))
_LATER = _Spent(0.01, 0.015)  # all later looks together
# The probability of an error from the differences between instances. These hardly change from look
# to look, so all looks share one test of them; the interval is at least as wide as the others.
_BETWEEN = 0.04

Verdict = Literal["lower", "higher", "same", "drifting", "open"]


@dataclass(frozen=True)
class CanaryResult:
    """The result of a canary for one number, at its last look.

    Attributes:
        verdict: 'lower', 'higher': the treatment's value, beyond chance; 'same': within the margin; 'drifting': the
            difference has a trend; 'open': none of these yet.
        control, treatment: means over the blocks; None before the first block.
        ratio, low, high: treatment over control, and its interval; None before the first look.
        blocks: that the interval is from. looks: how many looks there were.
        drift: change of the log ratio from the first to the last block, if the verdict is 'drifting'.
        between: whether the differences between instances are in the interval.
    """

    verdict: Verdict
    control: float | None = None
    treatment: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    blocks: int = 0
    looks: int = 0
    drift: float | None = None
    between: bool = False


def judge_number(blocks: RatioSeries, margin: float) -> CanaryResult:
    """Judge the blocks of one number.

    A claim of an earlier look stays only if the later looks do not contradict it: the last look decides.

    Args:
        blocks: all blocks so far.
        margin: the largest difference, as a share, that counts as the same.
    """
    every = blocks.log_ratios
    if not every:
        if not blocks.without_ratio:
            return CanaryResult("open")
        control, treatment = (total / blocks.without_ratio for total in blocks.sum_without_ratio)
        return CanaryResult("open", control, treatment)  # 0 in one group or both, as page faults may be
    control, treatment = statistics.fmean(blocks.control), statistics.fmean(blocks.treatment)
    looks = int(math.log2(len(every) / FIRST_LOOK)) + 1 if len(every) >= FIRST_LOOK else 0
    if not looks:
        return CanaryResult("open", control, treatment, blocks=len(every))
    count = FIRST_LOOK << (looks - 1)
    spent = _spent_at(looks)
    between = _between(blocks, count, _BETWEEN)
    allowed = INSTANCE_SD if between is None else 0.0
    middle, low, high, drift = _bounds(every[:count], spent, allowed)
    if between is not None:
        low, high = min(low, middle - between), max(high, middle + between)
    near = math.log1p(margin)
    verdict: Verdict = "open"
    if -near < low and high < near:
        verdict = "same"
    elif high < 0:
        verdict = "lower"
    elif low > 0:
        verdict = "higher"
    elif drift is not None and abs(drift) > near:
        verdict = "drifting"
    return CanaryResult(
        verdict,
        control,
        treatment,
        math.exp(middle),
        math.exp(low),
        math.exp(high),
        blocks=count,
        looks=looks,
        drift=drift if verdict == "drifting" else None,
        between=between is not None,
    )


def _bounds(values: Sequence[float], spent: _Spent, allowed: float) -> tuple[float, float, float, float | None]:
    """The middle, the interval, and the drift if it is not chance.

    Args:
        values: log ratios of the blocks.
        spent: the probabilities of an error of this look.
        allowed: standard deviation of a difference between instances that the values do not show.
    """
    import numpy as np
    from scipy import special

    if max(values) - min(values) < 1e-12:  # `fit_level` needs noise; without it, its quantiles are these
        freedom = min(len(values), MAX_POINTS) - 2
        half = allowed * float(special.stdtrit(freedom, 1 - spent.mean / 2))
        return values[0], values[0] - half, values[0] + half, None
    fit = fit_level(np.array(values))
    ends = [(spent.start, -0.5), (_END, 0.5)]
    low = min(fit.quantile(spent.mean / 2, 1, 0, allowed), *(fit.quantile(p, 1, at) for p, at in ends))
    high = max(fit.quantile(1 - spent.mean / 2, 1, 0, allowed), *(fit.quantile(1 - p, 1, at) for p, at in ends))
    drifts = [fit.quantile(p, 0, 1) for p in (_TREND_ALPHA / 2, 1 - _TREND_ALPHA / 2)]
    drift = float(fit.weights @ fit.drift) if drifts[0] > 0 or drifts[1] < 0 else None
    return fit.middle(), low, high, drift


def _spent_at(look: int) -> _Spent:
    """The probabilities of an error of the look-th look, from 1."""
    later = look - len(_SPENT)
    if later <= 0:
        return _SPENT[look - 1]
    return _Spent(_LATER.mean / (later * (later + 1)), _LATER.start / (later * (later + 1)))


def _between(blocks: RatioSeries, count: int, alpha: float) -> float | None:
    """Half the width of the interval from the differences between instances; None with fewer than two on a side."""
    from scipy import stats

    parts = []
    for side in blocks.instances:
        columns = [[row[i] for row in side[:count]] for i in range(len(side[0]))] if side else []
        means = [
            statistics.fmean(math.log(v) for v in column if v)
            for column in columns
            if sum(1 for v in column if v) >= count / 2
        ]
        if len(means) < 2:
            return None
        parts.append((statistics.variance(means) / len(means), len(means) - 1))
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return 0.0
    free = variance**2 / sum(part**2 / degrees for part, degrees in parts)  # Welch 1947
    return float(stats.t.ppf(1 - alpha / 2, free)) * math.sqrt(variance)
