"""Describes the dimensions of a search space and changes points: mutation and random sampling.

    level   0       1 … specials       specials+1 … levels
            unset   0, never, …        ascending by a constant factor (if `ordered`), else unordered alternatives

Levels are exponents, so a step of whole levels is a geometric step of the value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heapwright.allocators.space import Point, Space
from heapwright.search.sobol import UNSET_SHARE, level

_TO_UNSET = 0.25  # probability that a change unsets a setting
_TRIES = 400  # random points drawn by `draw_unseen`
# Changes tried on one point: with several allocators, most settings belong to another one and have
# no effect.
_CHANGES = 100


@dataclass(frozen=True)
class Axis:
    """One dimension of a space.

    Attributes:
        levels: number of levels, without unset.
        specials: number of special values among them, which come first.
        ordered: whether the other levels ascend.
        unset: share of its range that is unset; 0 for a parameter that is always set.
    """

    levels: int
    specials: int = 0
    ordered: bool = False
    unset: float = UNSET_SHARE


def axes_of(space: Space) -> tuple[Axis, ...]:
    """Return the dimensions of a space: gates, then parameters."""
    gates = [Axis(1)] * len(space.gates)
    shares = [0.0 if p.spec.always else UNSET_SHARE for p in space.params]
    return (
        *gates,
        *(Axis(len(p.levels), p.specials, p.spec.type == "int", u) for p, u in zip(space.params, shares, strict=True)),
    )


def change_level(axis: Axis, value: int, rng: np.random.Generator) -> int:
    """Draw another value of a dimension: unset, a special value, or a geometric step up or down.

    Args:
        axis: the dimension.
        value: its present level; 0 is unset.
        rng: the random generator.
    """
    if value == 0:
        return level(rng.random(), axis.levels, axis.specials, unset=0.0)
    if axis.levels == 1 or rng.random() < _TO_UNSET:
        return 0
    if axis.ordered and value > axis.specials:
        step = 1 << int(min(rng.geometric(0.5) - 1, 10))
        target = value + (step if rng.random() < 0.5 else -step)
        if target > axis.specials or not axis.specials:
            target = min(axis.levels, max(axis.specials + 1, target))
            if target != value:
                return target
            return value - 1 if value == axis.levels else value + 1
        return 1 + int(rng.integers(axis.specials))
    other = 1 + int(rng.integers(axis.levels - 1))
    return other + (other >= value)


def change_at(space: Space, point: Point, at: int, value: int) -> Point:
    """Return the point with one coordinate replaced; opens the gates if they would disable the new value.

    Args:
        space: the search space.
        point: the point to change; it stays as it is.
        at: index of the coordinate.
        value: its new level; 0 is unset.
    """
    values = list(point)
    values[at] = value
    changed_point = space.normalise(values)
    if value and not changed_point[at]:
        values[: len(space.gates)] = [1] * len(space.gates)
        changed_point = space.normalise(values)
    return changed_point


def mutate(space: Space, axes: tuple[Axis, ...], point: Point, rng: np.random.Generator) -> Point:
    """Return the point with one random setting changed; the same point if no change with an effect was found.

    Args:
        space: the search space.
        axes: its dimensions (`axes_of`).
        point: the point to mutate.
        rng: the random generator.
    """
    movable = [i for i, axis in enumerate(axes) if axis.levels and i >= len(space.gates)]
    for _ in range(_CHANGES):
        at = movable[int(rng.integers(len(movable)))]
        neighbour = change_at(space, point, at, change_level(axes[at], point[at], rng))
        if neighbour != point:
            return neighbour
    return point


def scattered(space: Space, axes: tuple[Axis, ...], rng: np.random.Generator) -> Point:
    """Draw a random point with the distribution of Sobol points: gates open, each setting unset half of the time.

    Args:
        space: the search space.
        axes: its dimensions (`axes_of`).
        rng: the random generator.
    """
    gates = len(space.gates)
    return space.normalise(
        [1 if i < gates else level(float(rng.random()), a.levels, a.specials, a.unset) for i, a in enumerate(axes)]
    )


def draw_unseen(
    space: Space, axes: tuple[Axis, ...], seen: set[Point], count: int, rng: np.random.Generator
) -> list[Point]:
    """Draw up to `count` distinct random points that are not in `seen`; fewer if 400 draws find no more.

    Args:
        space: the search space.
        axes: its dimensions (`axes_of`).
        seen: points to avoid.
        count: how many points to draw.
        rng: the random generator.
    """
    found: dict[Point, None] = {}
    for _ in range(_TRIES):
        if len(found) >= count:
            break
        point = scattered(space, axes, rng)
        if point not in seen and point != space.default:
            found[point] = None
    return list(found)
