"""Judges the blocks of a canary: an interval for the ratio of treatment and control that may be looked at repeatedly.

1. Samples a second apart are not independent, and neither are blocks. The interval is the wider of two. One comes from
   the correlation r of neighbouring blocks, as for an AR(1) series: the variance of the mean times (1 + r)/(1 - r), and
   as many independent values as that leaves. r is corrected for its bias in short series (Kendall, Biometrika 1954:
   -(1 + 4r)/n), and one standard error is added. The other one comes from the spread of eight long batches of blocks
   (batch means; Law, Simulation Modeling and Analysis, 5th ed., 9.5.3), which other kinds of correlation widen too.
2. Who stops as soon as a result looks good finds one by chance. So there are looks at 15, 30, 60 … blocks only, and the
   looks share the probability of an error: `_SPENT` for the first three, then 0.02/(j (j + 1)) for the j-th look after
   them. All together these are 5 %, however many looks there are (Bonferroni).
3. Instances differ without any treatment. With two or more instances on both sides, the interval is also at least that
   of Welch's test between the instances' means. With one, the difference between the instances is part of the result,
   and the result says so.
4. A difference that drifts has no level. If the batches show a trend larger than the margin (t test of the slope at
   5 %), there is no claim.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from heapwright.canary.blocks import Blocks

_SPENT, _LATER = (0.005, 0.01, 0.015), 0.02  # early looks have too few blocks to know their correlation well
FIRST_LOOK = 15  # blocks
_BATCHES = 8
_MIN_INDEPENDENT = 4  # values; the correlation of fewer is not known
_TREND_ALPHA = 0.05

Verdict = Literal["lower", "higher", "same", "drifting", "open"]


@dataclass(frozen=True)
class Result:
    """The result of a canary for one number, at its last look.

    Attributes:
        verdict: 'lower', 'higher': the treatment's value, beyond chance; 'same': within the margin; 'drifting': the
            difference has a trend; 'open': none of these yet.
        control, treatment: means over the blocks; None before the first block.
        ratio, low, high: treatment over control, and its interval; None before the first look. The interval is None too
            while the blocks are so correlated that there is none.
        blocks: that the interval is from. looks: how many looks there were.
        drift: change of the log ratio from the first to the last batch, if the verdict is 'drifting'.
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


def judge(blocks: Blocks, margin: float) -> Result:
    """Judge the blocks of one number.

    A claim of an earlier look stays only if the later looks do not contradict it: the last look decides.

    Args:
        blocks: all blocks so far.
        margin: the largest difference, as a share, that counts as the same.
    """
    every = blocks.log_ratios
    if not every:
        return Result("open")
    control, treatment = statistics.fmean(blocks.control), statistics.fmean(blocks.treatment)
    looks = int(math.log2(len(every) / FIRST_LOOK)) + 1 if len(every) >= FIRST_LOOK else 0
    if not looks:
        return Result("open", control, treatment, blocks=len(every))
    count = FIRST_LOOK << (looks - 1)
    later = looks - len(_SPENT)
    alpha = _SPENT[looks - 1] if later <= 0 else _LATER / (later * (later + 1))
    middle, half, batches = _interval(every[:count], alpha)
    between = _between(blocks, count, alpha)
    half = max(half, between or 0.0)
    low, high = middle - half, middle + half
    near = math.log1p(margin)
    drift = _trend(batches)
    verdict: Verdict = "open"
    if drift is not None and abs(drift) > near:
        verdict = "drifting"
    elif -near < low and high < near:
        verdict = "same"
    elif high < 0:
        verdict = "lower"
    elif low > 0:
        verdict = "higher"
    wide = math.isinf(half)
    return Result(
        verdict,
        control,
        treatment,
        math.exp(middle),
        None if wide else math.exp(low),
        None if wide else math.exp(high),
        blocks=count,
        looks=looks,
        drift=drift if verdict == "drifting" else None,
        between=between is not None,
    )


def _interval(values: Sequence[float], alpha: float) -> tuple[float, float, list[float]]:
    """The mean of the values, half the width of its interval, and the batch means."""
    from scipy import stats

    def width(variance: float, independent: float) -> float:
        """Half the width for a variance of single values and how many of them are independent."""
        quantile = float(stats.t.ppf(1 - alpha / 2, independent - 1))
        return quantile * math.sqrt(variance / independent)

    count, middle = len(values), statistics.fmean(values)
    cuts = [round(i * count / _BATCHES) for i in range(_BATCHES + 1)]
    batches = [statistics.fmean(values[a:b]) for a, b in itertools.pairwise(cuts)]
    squares = sum((v - middle) ** 2 for v in values)
    if squares == 0:
        return middle, 0.0, batches
    r = sum((a - middle) * (b - middle) for a, b in itertools.pairwise(values)) / squares
    r += (1 + 4 * r) / count + math.sqrt(max(0.0, 1 - r * r) / count)
    r = min(1.0, max(0.0, r))
    independent = count * (1 - r) / (1 + r)
    if independent < _MIN_INDEPENDENT:
        return middle, math.inf, batches
    of_blocks = width(squares / (count - 1), independent)
    return middle, max(of_blocks, width(statistics.variance(batches), _BATCHES)), batches


def _between(blocks: Blocks, count: int, alpha: float) -> float | None:
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


def _trend(batches: Sequence[float]) -> float | None:
    """The change from the first batch to the last, if the slope is not chance; else None."""
    from scipy import stats

    if max(batches) == min(batches):
        return None
    found = stats.linregress(range(len(batches)), batches)
    return float(found.slope) * (len(batches) - 1) if found.pvalue < _TREND_ALPHA else None
