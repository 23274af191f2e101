"""Judges a landscape: the ratio of every point to the default, whether points differ, the best point, the shape.

Noise is the difference between runs of one point at different times (`tuning.landscape` repeats some points). Fresh
runs answer three questions:

- Do points differ? The points with the lowest and the highest ratio of the sweep run again, beside each other, in eight
  blocks or more. Points differ if Wilcoxon's signed-rank test shows it (p below 1%) and the median difference exceeds
  the margin. In a flat landscape the two are equal and their order in a block is random, so each difference is as
  likely positive as negative, for any kind of noise. An F test over all points would mistake one slow run for a point.
- Is the lowest point better than the default? The tests of a confirmation decide (p again below 1%), in the same
  blocks.
- Is the landscape smooth or rugged? This is asked only if points differ.

A metric of address space changes by whole pages. So σ is at least that of a rounding to pages, and no gain below a page
is a gain (`interleaving.resolution`).

Smoothness, over all pairs of neighbours i, j along an axis, of the log ratios c with mean m and variance v:

    autocorrelation    mean of (c_i − m)(c_j − m), divided by v        1: smooth; 0: rugged, or noise
    step               mean of |c_i − c_j|
    noise step         what `step` would be if the landscape were flat: 2σ/√π, σ the standard error of one point

The autocorrelation is Weinberger's (1990) for neighbours at distance 1. Noise lowers it by the factor
(v − σ²) / v; the verdict allows for that. A landscape is rugged only if repeats show it: neighbours differ by more than
two runs of one point do (Mann and Whitney's test).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from statistics import median

import msgspec

from heapwright.errors import HeapwrightError
from heapwright.interleaving.candidates import Candidate, gather
from heapwright.interleaving.phases import Phase
from heapwright.interleaving.records import StoredRun
from heapwright.interleaving.resolution import resolution
from heapwright.interleaving.stats import (
    ALPHA,
    ratio_interval,
    relative_noise,
    signed_rank_p,
    summarise,
    verdict,
)
from heapwright.metrics import METRICS
from heapwright.study.landscape_axes import SweptAxis, axis_of
from heapwright.study.landscape_result import FreshComparison, LandscapePoint, LandscapeResult, Smoothness
from heapwright.study.options import Options
from heapwright.study.store import Store

FLAT = "flat within the noise"


# The largest significant p of a signed-rank test: all of eight pairs must agree. A landscape makes
# two claims, and must be wrong in fewer than one sweep of twenty.
_SHOWN = 0.01


def extreme_configurations(ratios: Mapping[int, float]) -> list[int]:
    """The configurations with the lowest and the highest ratio, the first of equals; one if they are the same.

    Args:
        ratios: by configuration, in the order of the axes.
    """
    return list(dict.fromkeys((min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__))))


def landscape_result_of(store: Store, metric: str = "") -> LandscapeResult:
    """Read a landscape from its study.

    Args:
        store: the study.
        metric: the metric; empty for the one that the sweep was begun for.

    Raises:
        HeapwrightError: the study is not a landscape, or the metric was not measured.
    """
    options = store.meta.study_options
    if not options.axes:
        raise HeapwrightError(f"{store.path} is not a landscape", "'heapwright landscape' makes one")
    from heapwright.allocators.space_spec import SpaceFile

    metric = metric or options.objectives[0]
    specs = msgspec.convert(store.meta.spaces[options.allocator], SpaceFile).param
    by_key = {spec.key: spec for spec in specs}
    if any(text.split(":")[0] not in by_key for text in options.axes):
        raise HeapwrightError(f"the study {store.path} is damaged: an axis is no setting of {options.allocator}")
    axes = tuple(axis_of(by_key[text.split(":")[0]], text) for text in options.axes)
    runs = store.runs(Phase.LANDSCAPE)
    configs = {id_: store.config_by_id(id_) for id_ in {1, *(r.config for r in runs)}}
    if runs and all(r.metrics.get(metric) is None for r in runs if not r.failure):
        raise HeapwrightError(f"{METRICS[metric].label} ({metric}) was not measured", "see 'heapwright doctor'")
    candidates = gather(runs, configs, 1)
    points = _points(axes, runs, candidates, metric)
    calibrated = [v for r in store.runs(Phase.CALIBRATE) if r.block and (v := r.metrics.get(metric)) is not None]
    default = [v for r in runs if r.config == 1 and (v := r.metrics.get(metric)) is not None] or calibrated
    floor = resolution(metric, default) / math.sqrt(12)  # standard deviation of a rounding to whole steps
    error = max(_standard_error(candidates, metric, calibrated), floor)
    repeats = _repeat_distances(candidates, metric)
    measured = [p for p in points if p.ratio is not None]
    gain, contrast = _compare_extremes(store, measured, metric, options)
    differs = contrast is not None and contrast.p < _SHOWN and contrast.median > 1 + options.margin
    return LandscapeResult(
        metric,
        options.allocator,
        axes,
        points,
        summarise(default).median if default else None,
        error,
        error * math.sqrt(2 * math.log(max(len(measured), 2))),
        smoothness(_logs(points), [len(a.values) for a in axes], error, repeats, None if contrast is None else differs),
        len(repeats),
        gain,
        contrast,
        differs,
    )


def _compare_extremes(
    store: Store, measured: Sequence[LandscapePoint], metric: str, options: Options
) -> tuple[FreshComparison | None, FreshComparison | None]:
    """The lowest point against the default, and the highest against the lowest, in fresh runs; None where not made."""
    start = store.phase_start(Phase.ends(metric))
    if start is None or not measured:
        return None, None
    low, *rest = extreme_configurations({p.config: p.ratio or 0.0 for p in measured})
    if start.configs != [1, low, *rest]:
        return None, None  # more replicates have shown other points to be lowest or highest since
    runs = [r for r in store.runs(Phase.ends(metric)) if r.block >= start.first]
    configs = {id_: store.config_by_id(id_) for id_ in start.configs}
    min_change = resolution(metric, [v for r in runs if r.config == 1 and (v := r.metrics.get(metric)) is not None])
    gain = _fresh(gather(runs, configs, 1).get(low), metric, options, min_change)
    contrast = _fresh(gather(runs, configs, low).get(rest[0]), metric, options, min_change) if rest else None
    return gain, contrast


def _fresh(candidate: Candidate | None, metric: str, options: Options, min_change: float) -> FreshComparison | None:
    logs = candidate.logs.get(metric, {}) if candidate and not candidate.failure else {}
    if min(map(len, logs.values()), default=0) < 2:
        return None
    every = [x for group in logs.values() for x in group]
    ratio, p = ratio_interval(logs, options.seed), signed_rank_p(every)
    return FreshComparison(
        ratio, math.exp(median(every)), p, len(every), verdict(ratio, p * ALPHA / _SHOWN, options.margin, min_change)
    )


def _points(
    axes: tuple[SweptAxis, ...], runs: list[StoredRun], candidates: dict[int, Candidate], metric: str
) -> list[LandscapePoint]:
    by_values = {tuple(c.config.settings.get(a.key, "") for a in axes): c for c in candidates.values()}
    values: dict[int, list[float]] = {}
    for run in runs:
        if (value := run.metrics.get(metric)) is not None:
            values.setdefault(run.config, []).append(value)
    points = []
    for at in product(*(a.values for a in axes)):
        found = by_values.get(at)
        if found is None:
            points.append(LandscapePoint(at, 0, None, None, 0, ""))
            continue
        cost = None if found.failure else found.cost(metric)
        known = values.get(found.config.id)
        middle = summarise(known).median if known and not found.failure else None
        ratio = None if cost is None else math.exp(cost)
        points.append(LandscapePoint(at, found.config.id, ratio, middle, found.runs, found.failure))
    return points


def _standard_error(candidates: dict[int, Candidate], metric: str, calibrated: list[float]) -> float:
    """The standard error of a point's mean log ratio: pooled over repeated points, or else from the default's runs."""
    squares, freedom = 0.0, 0
    for candidate in candidates.values():
        for group in candidate.logs.get(metric, {}).values():
            mean = sum(group) / len(group)
            squares += sum((x - mean) ** 2 for x in group)
            freedom += len(group) - 1
    one = math.sqrt(squares / freedom) if freedom >= 3 else math.sqrt(2) * relative_noise(calibrated)
    return one / math.sqrt(_runs_each(candidates, metric))


def _runs_each(candidates: dict[int, Candidate], metric: str) -> float:
    """The mean number of runs of a point; at least 1."""
    counts = [sum(map(len, groups.values())) for c in candidates.values() if (groups := c.logs.get(metric))]
    return max(1.0, sum(counts) / len(counts)) if counts else 1.0


def _repeat_distances(candidates: dict[int, Candidate], metric: str) -> list[float]:
    """How far measurements of one point lie apart, for each repeated point: the mean over its pairs of runs.

    Scaled to the noise of a mean of as many runs as a point has, so that differences between points compare.
    """
    found, scale = [], math.sqrt(_runs_each(candidates, metric))
    for candidate in candidates.values():
        groups = [g for g in candidate.logs.get(metric, {}).values() if len(g) > 1]
        steps = [abs(a - b) for group in groups for a, b in itertools.combinations(group, 2)]
        if steps:
            found.append(sum(steps) / len(steps) / scale)
    return found


def _logs(points: list[LandscapePoint]) -> list[float | None]:
    return [None if p.ratio is None else math.log(p.ratio) for p in points]


def neighbours(shape: list[int]) -> Iterator[tuple[int, int]]:
    """Pairs of indices that are one step apart along an axis, in a grid of this shape."""
    for index, at in enumerate(product(*map(range, shape))):
        stride = 1
        for axis in reversed(range(len(shape))):
            if at[axis] + 1 < shape[axis]:
                yield index, index + stride
            stride *= shape[axis]


def smoothness(
    logs: Sequence[float | None],
    shape: list[int],
    error: float,
    repeats: Sequence[float],
    differs: bool | None,
) -> Smoothness:
    """How smooth log ratios on a grid are; points without one are left out.

    Args:
        logs: of the points, in the order of the axes.
        shape: how many points along each axis.
        error: standard error of one point.
        repeats: how far measurements of one point lie apart, for each repeated point.
        differs: whether fresh runs show that points differ; None where there are none.
    """
    found = [c for c in logs if c is not None]
    pairs = [(a, b) for i, j in neighbours(shape) if (a := logs[i]) is not None and (b := logs[j]) is not None]
    noise_step = 2 * error / math.sqrt(math.pi)
    if len(found) < 3 or not pairs:
        return Smoothness(None, None, noise_step, "too few points")
    mean = sum(found) / len(found)
    variance = sum((c - mean) ** 2 for c in found) / len(found)
    steps = [abs(a - b) for a, b in pairs]
    step = sum(steps) / len(steps)
    if variance <= 1e-18:
        return Smoothness(None, step, noise_step, "flat")
    correlation = sum((a - mean) * (b - mean) for a, b in pairs) / len(pairs) / variance
    if differs is None:
        said = "not judged: the ends were not measured again"
    elif not differs:
        said = FLAT
    else:
        said = _verdict(correlation, variance, error, steps, repeats)
    return Smoothness(correlation, step, noise_step, said)


def _verdict(
    correlation: float, variance: float, error: float, steps: Sequence[float], repeats: Sequence[float]
) -> str:
    """Smooth, fairly smooth or rugged, of a landscape whose points differ; or why that is unknown."""
    from scipy.stats import mannwhitneyu

    real = variance - error**2
    corrected = correlation * variance / real if real > 0 else 0.0
    if corrected >= 0.5:
        if correlation > 1.645 / math.sqrt(len(steps)):  # more than chance makes of so many neighbours: one-sided 5%
            return "smooth" if corrected >= 0.8 else "fairly smooth"
        why = "the noise hides how" if real < variance / 2 else "too few points to tell how"
    elif len(repeats) < 2:
        why = "too few points ran twice to tell how"
    elif float(mannwhitneyu(steps, repeats, alternative="greater").pvalue) < ALPHA:
        return "rugged"
    else:
        beyond = sum(steps) / len(steps) > 2 * sum(repeats) / len(repeats)
        why = "but few neighbours do" if beyond else "the noise hides how"
    return f"uneven: points differ, {why}"
