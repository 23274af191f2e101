"""Describes in sentences how the runs behind a confirmed ratio are irregular.

A reader who sees '−12.2%' beside medians that differ by 29% must learn the reason: the runs fall into groups, some
are outliers, or high and low runs come in spells. `irregularities` is empty for regular runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from heapwright.interleaving.shape import groups, shapes
from heapwright.interleaving.stats import Ratio, ratio_interval
from heapwright.units import percent

_FEW = 0.1  # a group with a smaller share of the runs counts as outliers


def groups_of(values: Sequence[float], show: Callable[[float], str] = "{:.4g}".format) -> str | None:
    """Describe the groups that positive values fall into.

    Args:
        values: values of repeated runs of one configuration, in any unit.
        show: formats a value.

    Returns:
        Text such as 'two groups: 23 of 40 around 1.20 s, 17 of 40 around 1.92 s'. None if there is one group, or fewer
        than eight values, or a value that is not positive.
    """
    if not values or min(values) <= 0:
        return None
    n = len(values)
    found = [[values[i] for i in group] for group in groups([math.log(v) for v in values])]
    if len(found) == 1:
        return None
    parts = [f"{len(group)} of {n} around {show(float(np.median(group)))}" for group in found]
    large = sum(len(group) >= max(2, _FEW * n) for group in found)
    kind = {0: "separate groups", 1: "a main group and outliers"}.get(large, f"{_count(len(found))} groups")
    return f"{kind}: {', '.join(parts)}"


def irregularities(
    default: Mapping[str, Sequence[float]],
    pick: Mapping[str, Sequence[float]],
    logs: Mapping[str, Sequence[float]],
    ratio: Ratio,
    margin: float,
    show: Callable[[float], str],
) -> str:
    """Describe the irregularities of the runs behind a confirmed ratio; empty if they are regular.

    Args:
        default: input name → values of the default's runs in the confirmation, in the order of measurement.
        pick: input name → values of the pick's runs, likewise.
        logs: input name → paired log ratios, in the order of measurement.
        ratio: the ratio estimated from `logs`.
        margin: equivalence margin of a ratio (0.005 is half a per cent).
        show: formats a value.
    """
    sentences = _opposite_inputs(logs, ratio, margin)
    found = {name: shapes(np.asarray(group, dtype=float)[None]) for name, group in logs.items() if len(group)}
    irregular = [name for name, shape in found.items() if shape.irregular[0] and _matters(logs[name], margin)]
    grouped = False
    for name in irregular:
        on = f" on input '{name}'" if len(logs) > 1 else ""
        texts = [
            f"runs of the {who}{on} fall into {text}"
            for who, values in (("default", default), ("pick", pick))
            if found[name].uneven[0] and (text := groups_of(values.get(name, []), show))
        ]
        if not texts and (text := groups_of([math.exp(x) for x in logs[name]], percent)):
            texts = [f"the changes from pair to pair{on} fall into {text}"]
        grouped = grouped or bool(texts)
        sentences += texts
        n, effective_n = len(logs[name]), float(found[name].independent[0])
        if effective_n <= n / 2:
            sentences.append(
                f"high and low pairs{on} come in spells, so {n} pairs carry as much information as {effective_n:.0f}"
                " independent ones: the interval is wider for this reason, and a study at another time may have other"
                " shares of high and low pairs"
            )
    gap = median_gap(default, pick, ratio, margin)
    if gap is not None:
        why = "the median shows only the largest group of runs" if grouped else "the values are skewed"
        if len(logs) > 1:
            why = "the medians are over the runs of all inputs together"
        sentences.append(
            f"the medians of all runs differ by {percent(gap)}, the mean over pairs by {percent(ratio.value)}: {why},"
            " the mean weighs every pair"
        )
    return "; ".join(sentences)


def _opposite_inputs(logs: Mapping[str, Sequence[float]], ratio: Ratio, margin: float) -> list[str]:
    """Return a sentence if an input changes in the other direction than the mean over inputs. See `irregularities`."""
    changes = {name: ratio_interval({name: group}, 0) for name, group in logs.items() if len(group) > 1}
    opposite = any(c.low > 1 + margin if ratio.value < 1 else c.high < 1 - margin for c in changes.values())
    if len(changes) < 2 or not opposite:
        return []
    low, high = (choose(changes, key=lambda name: changes[name].value) for choose in (min, max))
    return [
        f"inputs differ: from {percent(changes[low].value)} on '{low}' to {percent(changes[high].value)} on '{high}'"
    ]


def median_gap(
    default: Mapping[str, Sequence[float]], pick: Mapping[str, Sequence[float]], ratio: Ratio, margin: float
) -> float | None:
    """Return the ratio of the medians of all runs if it differs from the confirmed ratio by more than noise explains.

    Args:
        default: input name → values of the default's runs.
        pick: input name → values of the pick's runs.
        ratio: the confirmed ratio.
        margin: equivalence margin of a ratio (0.005 is half a per cent).

    Returns:
        The pick's median divided by the default's. None if it agrees with `ratio` within the interval's half width plus
        the margin, or if a median is not positive or the interval is unbounded.
    """
    medians = [float(np.median([v for group in side.values() for v in group])) for side in (pick, default)]
    if min(medians) <= 0 or not (ratio.low > 0 and ratio.high < math.inf):
        return None
    half = math.log(ratio.high / ratio.low) / 2
    gap = medians[0] / medians[1]
    return gap if abs(math.log(gap / ratio.value)) > half + math.log1p(margin) else None


def _matters(logs: Sequence[float], margin: float) -> bool:
    """Whether the log ratios of the pairs differ from each other by more than the margin."""
    return max(logs) - min(logs) > margin


def _count(groups: int) -> str:
    return {2: "two", 3: "three"}.get(groups, str(groups))
