"""Says in plain sentences what is unusual about the runs behind a confirmed ratio.

A reader who sees '−12.2 %' beside medians that differ by 29 % must learn why: the runs fall into groups,
a few are far off, or high and low runs come in spells. `note` is empty for regular runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from heapwright.experiment.shape import groups, shapes
from heapwright.experiment.stats import Ratio

_FEW = 0.1  # a group with a smaller share of the runs is called outliers


def groups_of(values: Sequence[float], show: Callable[[float], str] = "{:.4g}".format) -> str | None:
    """The groups that positive values fall into, in words.

    Args:
        values: of repeated runs of one configuration, any unit.
        show: writes a value for people.

    Returns:
        'two groups: 23 of 40 around 1.20 s, 17 of 40 around 1.92 s'; None where there is one group, or
        fewer than eight values.
    """
    if not values or min(values) <= 0:
        return None
    n = len(values)
    found = [[values[i] for i in group] for group in groups([math.log(v) for v in values])]
    if len(found) == 1:
        return None
    parts = [f"{len(group)} of {n} around {show(float(np.median(group)))}" for group in found]
    crowds = sum(len(group) >= max(2, _FEW * n) for group in found)
    what = {0: "separate groups", 1: "a main group and outliers"}.get(crowds, f"{_count(len(found))} groups")
    return f"{what}: {', '.join(parts)}"


def note(
    default: Mapping[str, Sequence[float]],
    pick: Mapping[str, Sequence[float]],
    logs: Mapping[str, Sequence[float]],
    ratio: Ratio,
    margin: float,
    show: Callable[[float], str],
) -> str:
    """What a reader of a confirmed ratio should know about its runs; empty where there is nothing to say.

    Args:
        default, pick: input name → values of the confirmation's runs, in the order of measurement.
        logs: input name → log ratios of the pairs, in the order of measurement.
        ratio: what was made of them.
        margin: equivalence margin of a ratio.
        show: writes a value for people.
    """
    sentences = []
    found = {name: shapes(np.asarray(group, dtype=float)[None]) for name, group in logs.items() if len(group)}
    odd = [name for name, shape in found.items() if shape.irregular[0] and _matters(logs[name], margin)]
    grouped = False
    for name in odd:
        on = f" on input '{name}'" if len(logs) > 1 else ""
        texts = [
            f"runs of the {who}{on} fall into {text}"
            for who, values in (("default", default), ("pick", pick))
            if found[name].uneven[0] and (text := groups_of(values.get(name, []), show))
        ]
        if not texts and (text := groups_of([math.exp(x) for x in logs[name]], _percent)):
            texts = [f"the changes from pair to pair{on} fall into {text}"]
        grouped = grouped or bool(texts)
        sentences += texts
        n, worth = len(logs[name]), float(found[name].independent[0])
        if worth <= n / 2:
            sentences.append(
                f"high and low pairs{on} come in spells, so {n} pairs tell as much as {worth:.0f} independent ones:"
                " the interval is wider for it, and a study at another time may meet another share of each"
            )
    gap = median_gap(default, pick, ratio, margin)
    if gap is not None:
        why = "the median shows only the largest group of runs" if grouped else "the values are skewed"
        if len(logs) > 1:
            why = "the medians are over the runs of all inputs together"
        sentences.append(
            f"the medians of all runs differ by {_percent(gap)}, the mean over pairs by {_percent(ratio.value)}: {why},"
            " the mean weighs every pair"
        )
    return "; ".join(sentences)


def median_gap(
    default: Mapping[str, Sequence[float]], pick: Mapping[str, Sequence[float]], ratio: Ratio, margin: float
) -> float | None:
    """The ratio of the medians of all runs, where it differs from the confirmed ratio by more than noise explains.

    Returns:
        None where the two agree within the interval's half width plus the margin, or a median is 0.
    """
    medians = [float(np.median([v for group in side.values() for v in group])) for side in (pick, default)]
    if min(medians) <= 0 or not (ratio.low > 0 and ratio.high < math.inf):
        return None
    half = math.log(ratio.high / ratio.low) / 2
    gap = medians[0] / medians[1]
    return gap if abs(math.log(gap / ratio.value)) > half + math.log1p(margin) else None


def _matters(logs: Sequence[float], margin: float) -> bool:
    """Whether the pairs differ by more than the margin at all."""
    return max(logs) - min(logs) > margin


def _count(groups: int) -> str:
    return {2: "two", 3: "three"}.get(groups, str(groups))


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}%".replace("-", "−")
