"""The one protocol every search strategy speaks: ask for points, tell what they cost.

A strategy sees points (small integers, see `allocators.space`) and costs (log ratios to the default, lower is
better; None for what crashed, timed out or changed the output). It never runs anything and keeps no files:
asked and told the same in the same order with the same seed, it answers the same. That is what lets a killed
study resume by replaying its store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from heapwright.allocators.space import Point, Space
from heapwright.errors import unknown


@dataclass(frozen=True)
class Told:
    """A point and its cost per objective; None where it is infeasible."""

    point: Point
    costs: tuple[float, ...] | None


class Strategy(Protocol):
    """Ask/tell. `ask` returns the next batch, empty when there is nothing left to try."""

    def ask(self) -> list[Point]:
        """The next points to evaluate, in order. Points seen before are allowed: the study has a cache."""
        ...

    def tell(self, told: Sequence[Told]) -> None:
        """What the last batch cost, in the order asked."""
        ...


@dataclass(frozen=True)
class Setup:
    """What a strategy is made from.

    Attributes:
        space: where to search.
        objectives: how many costs a point has.
        budget: about how many evaluations there will be; 0 when only time is limited.
        seed: of every random choice.
    """

    space: Space
    objectives: int
    budget: int
    seed: int


def _sobol(setup: Setup) -> Strategy:
    from heapwright.search.sobol import Sobol

    return Sobol(setup)


def _nsga2(setup: Setup) -> Strategy:
    from heapwright.search.nsga2 import Nsga2

    return Nsga2(setup)


def _grid(setup: Setup) -> Strategy:
    from heapwright.search.grid import Grid

    return Grid(setup)


METHODS: dict[str, Callable[[Setup], Strategy]] = {"nsga2": _nsga2, "sobol": _sobol, "grid": _grid}


def make_strategy(method: str, setup: Setup) -> Strategy:
    """The strategy of this name.

    Raises:
        UsageError: no such method.
    """
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    return METHODS[method](setup)
