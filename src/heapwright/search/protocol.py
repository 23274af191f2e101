"""Defines the ask/tell protocol of all search strategies; `search.methods` lists them.

A strategy proposes points (tuples of small integers, see `allocators.space`) and learns their costs: log ratios to the
default, minimised. A configuration that crashed, timed out or changed the output is infeasible and has no costs. A
strategy never runs anything and keeps no files. It is deterministic: the same seed and the same sequence of calls give
the same points. Therefore a killed study can resume by replaying its store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from heapwright.allocators.space import Point, Space

# Points that a method without generations proposes at once: as many as share a block with one run
# of the default.
BATCH = 5


@dataclass(frozen=True)
class Observation:
    """An evaluated point.

    Attributes:
        point: the configuration, as levels.
        costs: (n_objectives,) log ratios to the default; None if the point is infeasible.
    """

    point: Point
    costs: tuple[float, ...] | None


class Strategy(Protocol):
    """A search strategy with an ask/tell interface."""

    def ask(self) -> list[Point]:
        """Return the next batch of points, in order of evaluation; empty if the search is exhausted.

        A strategy may propose a point again: the study caches evaluations.
        """
        ...

    def tell(self, observations: Sequence[Observation]) -> None:
        """Learn the results of the last batch, in the order in which `ask` returned its points."""
        ...


@dataclass(frozen=True)
class Setup:
    """The parameters of a strategy.

    Attributes:
        space: the search space.
        objectives: number of objectives.
        budget: expected number of evaluations; 0 if unknown.
        seed: of the random generator.
        known: observations of an earlier study (a warm start). A strategy starts from them without proposing them.
        noise: (n_objectives,) standard deviations of one measured cost (log ratio); empty if unknown.
    """

    space: Space
    objectives: int
    budget: int
    seed: int
    known: tuple[Observation, ...] = ()
    noise: tuple[float, ...] = ()
