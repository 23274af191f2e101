"""What the methods know of a dimension, and how one setting is changed.

    level   0       1 … specials       specials+1 … levels
            unset   0, never, …        ascending by a constant factor (where `ordered`), or mere alternatives

A geometric step along a setting is a step of whole levels, because levels are exponents.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heapwright.allocators.space import Point, Space
from heapwright.search.sobol import level

_TO_UNSET = 0.25
_TRIES = 400
_CHANGES = 100  # of one point: with several allocators, most settings are another one's and change nothing


@dataclass(frozen=True)
class Axis:
    """One dimension of a space.

    Attributes:
        levels: how many, unset not counted.
        specials: how many of them come first and stand apart.
        ordered: whether the others ascend.
    """

    levels: int
    specials: int = 0
    ordered: bool = False


def axes_of(space: Space) -> tuple[Axis, ...]:
    """The dimensions of a space: gates, then parameters."""
    gates = [Axis(1)] * len(space.gates)
    return (*gates, *(Axis(len(p.levels), p.specials, p.spec.type == "int") for p in space.params))


def changed(axis: Axis, value: int, rng: np.random.Generator) -> int:
    """Another value of one dimension: unset, a special, or a geometric step up or down."""
    if value == 0:
        return level(0.5 + rng.random() / 2, axis.levels, axis.specials)
    if axis.levels == 1 or rng.random() < _TO_UNSET:
        return 0
    if axis.ordered and value > axis.specials:
        step = 1 << int(min(rng.geometric(0.5) - 1, 10))
        aim = value + (step if rng.random() < 0.5 else -step)
        if aim > axis.specials or not axis.specials:
            aim = min(axis.levels, max(axis.specials + 1, aim))
            if aim != value:
                return aim
            return value - 1 if value == axis.levels else value + 1
        return 1 + int(rng.integers(axis.specials))
    other = 1 + int(rng.integers(axis.levels - 1))
    return other + (other >= value)


def change_at(space: Space, point: Point, at: int, value: int) -> Point:
    """The point with one value replaced; gates that would swallow a set value are opened."""
    values = list(point)
    values[at] = value
    found = space.normalise(values)
    if value and not found[at]:
        values[: len(space.gates)] = [1] * len(space.gates)
        found = space.normalise(values)
    return found


def mutate(space: Space, axes: tuple[Axis, ...], point: Point, rng: np.random.Generator) -> Point:
    """The point with one setting changed; the same point where no change was found that has an effect."""
    movable = [i for i, axis in enumerate(axes) if axis.levels and i >= len(space.gates)]
    for _ in range(_CHANGES):
        at = movable[int(rng.integers(len(movable)))]
        found = change_at(space, point, at, changed(axes[at], point[at], rng))
        if found != point:
            return found
    return point


def scattered(space: Space, axes: tuple[Axis, ...], rng: np.random.Generator) -> Point:
    """A point at random, as Sobol points are spread: each setting unset half of the time, gates open."""
    gates = len(space.gates)
    return space.normalise([1 if i < gates else level(float(rng.random()), a.levels, a.specials)
                            for i, a in enumerate(axes)])  # fmt: skip


def unseen(space: Space, axes: tuple[Axis, ...], seen: set[Point], count: int, rng: np.random.Generator) -> list[Point]:
    """Up to `count` points at random that are not in `seen`; none once chance finds no more."""
    found: dict[Point, None] = {}
    for _ in range(_TRIES):
        if len(found) >= count:
            break
        point = scattered(space, axes, rng)
        if point not in seen and point != space.default:
            found[point] = None
    return list(found)
