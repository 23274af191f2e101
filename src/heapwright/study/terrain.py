"""What a landscape looks like: every place's ratio to the default, the best place, and how smooth it is.

Smoothness, over all pairs of neighbours i, j along an axis, of the log ratios c with mean m and variance v:

    autocorrelation    mean of (c_i − m)(c_j − m), divided by v        1: smooth; 0: rugged, or noise
    step               mean of |c_i − c_j|
    noise step         what `step` would be if the landscape were flat: 2σ/√π, σ the standard error of one place

The autocorrelation is Weinberger's (1990) for neighbours at distance 1. σ comes from the places' own replicates where
there are several, else from the spread of the default's runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import msgspec

from heapwright.errors import HeapwrightError
from heapwright.metrics import METRICS
from heapwright.study.axes import Axis, axis_of
from heapwright.study.blocks import gather
from heapwright.study.options import Options
from heapwright.study.stats import relative_noise, summarise
from heapwright.study.store import Store, StoredRun
from heapwright.study.view import Config


@dataclass(frozen=True)
class Place:
    """One place.

    Attributes:
        values: along the axes.
        ratio: geometric mean to the default of the same blocks; None where it failed or was not measured yet.
        median: of the metric; None likewise.
        failure: why it does not count, or empty.
    """

    values: tuple[str, ...]
    config: int
    ratio: float | None
    median: float | None
    runs: int
    failure: str


@dataclass(frozen=True)
class Smoothness:
    """See above; None where there are too few places, or no variance."""

    autocorrelation: float | None
    step: float | None
    noise_step: float
    verdict: str


@dataclass(frozen=True)
class Terrain:
    """A landscape as its plot, table and JSON show it.

    Attributes:
        places: in the order of the axes, the last varying fastest.
        error: standard error of a place's log ratio.
        luck: the gain that the luckiest of so many places would show if none differed from the default.
    """

    metric: str
    allocator: str
    axes: tuple[Axis, ...]
    places: list[Place]
    default_median: float | None
    error: float
    luck: float
    smoothness: Smoothness

    @property
    def best(self) -> Place | None:
        """The place with the least ratio; the first of equals."""
        measured = [p for p in self.places if p.ratio is not None]
        return min(measured, key=lambda p: p.ratio or math.inf, default=None)

    @property
    def gains(self) -> bool:
        """Whether the best is better than luck explains."""
        best = self.best
        return best is not None and best.ratio is not None and math.log(best.ratio) < -max(self.luck, 1e-9)


def terrain_claim(terrain: Terrain) -> str:
    """A landscape in one sentence."""
    best, label = terrain.best, METRICS[terrain.metric].label
    where = f"{label} over {' and '.join(a.key for a in terrain.axes)}"
    if best is None or best.ratio is None:
        return f"A landscape of {where}: nothing was measured yet."
    if not terrain.gains:
        return f"A landscape of {where}: no place is better than luck explains."
    at = ", ".join(f"{a.key}={v}" for a, v in zip(terrain.axes, best.values, strict=True))
    gain = 100 * (1 - best.ratio)
    return f"A landscape of {where}: lowest at {at}, {gain:.1f}% below the default; seen in the sweep, not confirmed."


def terrain_of(store: Store, metric: str = "") -> Terrain:
    """Reads a landscape from its study; of the metric it was begun for, if none is named.

    Raises:
        HeapwrightError: a study of something else, or a metric that was not measured.
    """
    options = msgspec.convert(store.get("options") or {}, Options, strict=False)
    if not options.axes:
        raise HeapwrightError(f"{store.path} is no landscape", "'heapwright landscape' makes one")
    from heapwright.allocators.space import SpaceFile

    metric = metric or options.objectives[0]
    specs = msgspec.convert(store.get("spaces")[options.allocator], SpaceFile).param
    axes = tuple(next(axis_of(s, text) for s in specs if s.key == text.split(":")[0]) for text in options.axes)
    runs = store.runs("landscape")
    configs = {id_: store.config_by_id(id_) for id_ in {1, *(r.config for r in runs)}}
    if runs and all(r.metrics.get(metric) is None for r in runs if not r.failure):
        raise HeapwrightError(f"{METRICS[metric].label} ({metric}) was not measured", "see 'heapwright doctor'")
    places = _places(axes, runs, configs, metric)
    calibrated = [v for r in store.runs("calibrate") if r.block and (v := r.metrics.get(metric)) is not None]
    default = [v for r in runs if r.config == 1 and (v := r.metrics.get(metric)) is not None] or calibrated
    error = _error(runs, configs, metric, calibrated)
    measured = sum(p.ratio is not None for p in places)
    return Terrain(
        metric,
        options.allocator,
        axes,
        places,
        summarise(default).median if default else None,
        error,
        error * math.sqrt(2 * math.log(max(measured, 2))),
        smoothness(_logs(places), [len(a.values) for a in axes], error),
    )


def _places(axes: tuple[Axis, ...], runs: list[StoredRun], configs: dict[int, Config], metric: str) -> list[Place]:
    candidates = gather(runs, configs, 1)
    by_values = {tuple(c.config.settings.get(a.key, "") for a in axes): c for c in candidates.values()}
    values: dict[int, list[float]] = {}
    for run in runs:
        if (value := run.metrics.get(metric)) is not None:
            values.setdefault(run.config, []).append(value)
    places = []
    for at in product(*(a.values for a in axes)):
        found = by_values.get(at)
        if found is None:
            places.append(Place(at, 0, None, None, 0, ""))
            continue
        cost = None if found.failure else found.cost(metric)
        known = values.get(found.config.id)
        median = summarise(known).median if known and not found.failure else None
        ratio = None if cost is None else math.exp(cost)
        places.append(Place(at, found.config.id, ratio, median, found.runs, found.failure))
    return places


def _error(runs: list[StoredRun], configs: dict[int, Config], metric: str, calibrated: list[float]) -> float:
    """The standard error of a place's mean log ratio: pooled over places, or else from the default's runs."""
    squares, freedom, counts = 0.0, 0, []
    for candidate in gather(runs, configs, 1).values():
        groups = candidate.logs.get(metric, {}).values()
        counts += [sum(map(len, groups))] if groups else []
        for group in groups:
            mean = sum(group) / len(group)
            squares += sum((x - mean) ** 2 for x in group)
            freedom += len(group) - 1
    each = max(1.0, sum(counts) / len(counts)) if counts else 1.0
    one = math.sqrt(squares / freedom) if freedom >= 3 else math.sqrt(2) * relative_noise(calibrated)
    return one / math.sqrt(each)


def _logs(places: list[Place]) -> list[float | None]:
    return [None if p.ratio is None else math.log(p.ratio) for p in places]


def neighbours(shape: list[int]) -> Iterator[tuple[int, int]]:
    """Pairs of indices that are one step apart along an axis, in a grid of this shape."""
    for index, at in enumerate(product(*map(range, shape))):
        stride = 1
        for axis in reversed(range(len(shape))):
            if at[axis] + 1 < shape[axis]:
                yield index, index + stride
            stride *= shape[axis]


def smoothness(logs: list[float | None], shape: list[int], error: float) -> Smoothness:
    """How smooth log ratios on a grid are; places without one are left out."""
    found = [c for c in logs if c is not None]
    pairs = [(a, b) for i, j in neighbours(shape) if (a := logs[i]) is not None and (b := logs[j]) is not None]
    noise_step = 2 * error / math.sqrt(math.pi)
    if len(found) < 3 or not pairs:
        return Smoothness(None, None, noise_step, "too few places")
    mean = sum(found) / len(found)
    variance = sum((c - mean) ** 2 for c in found) / len(found)
    step = sum(abs(a - b) for a, b in pairs) / len(pairs)
    if variance <= 1e-18:
        return Smoothness(None, step, noise_step, "flat")
    correlation = sum((a - mean) * (b - mean) for a, b in pairs) / len(pairs) / variance
    if math.sqrt(variance) < 1.5 * error:
        verdict = "flat as far as the noise lets see"
    else:
        verdict = "smooth" if correlation >= 0.8 else "fairly smooth" if correlation >= 0.5 else "rugged"
    return Smoothness(correlation, step, noise_step, verdict)
