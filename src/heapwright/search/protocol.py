"""The one protocol every search strategy speaks: ask for points, tell what they cost.

A strategy sees points (small integers, see `allocators.space`) and costs (log ratios to the default, lower is
better; None for what crashed, timed out or changed the output). It never runs anything and keeps no files:
asked and told the same in the same order with the same seed, it answers the same. That is what lets a killed
study resume by replaying its store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

from heapwright.allocators.space import Point, Space
from heapwright.errors import unknown

BATCH = 5  # points that methods without generations ask for at once: as many as share a block with one default


@dataclass(frozen=True)
class Observation:
    """A point and its cost per objective; None where it is infeasible."""

    point: Point
    costs: tuple[float, ...] | None


class Strategy(Protocol):
    """Ask/tell. `ask` returns the next batch, empty when there is nothing left to try."""

    def ask(self) -> list[Point]:
        """The next points to evaluate, in order. Points seen before are allowed: the study has a cache."""
        ...

    def tell(self, told: Sequence[Observation]) -> None:
        """What the last batch cost, in the order asked."""
        ...


@dataclass(frozen=True)
class Setup:
    """What a strategy is made from.

    Attributes:
        space: where to search.
        objectives: how many costs a point has.
        budget: about how many evaluations there will be; 0 when that is not known.
        seed: of every random choice.
        known: points measured already (a warm start's); a strategy need not ask for them, but begins from them.
        noise: standard deviation of one cost per objective; empty when there is none, or none is known.
    """

    space: Space
    objectives: int
    budget: int
    seed: int
    known: tuple[Observation, ...] = ()
    noise: tuple[float, ...] = ()


@dataclass(frozen=True)
class Method:
    """A search method.

    Attributes:
        about: what it does, in a few words, for people.
        budget: from about how many evaluations on it beats random search; tests/search/test_planted.py shows it.
            0: never claimed.
        module, name: where its class is; imported when it is made, because some bring large libraries.
    """

    about: str
    budget: int
    module: str
    name: str

    def make(self, setup: Setup) -> Strategy:
        """A fresh strategy."""
        made: Callable[[Setup], Strategy] = getattr(import_module(f"heapwright.search.{self.module}"), self.name)
        return made(setup)


METHODS: dict[str, Method] = {
    "auto": Method("chooses by budget, parameters and objectives, and says so", 60, "auto", "auto"),
    "gp": Method("a Gaussian process proposes; for few evaluations", 60, "gp", "GaussianProcess"),
    "nsga2": Method("a genetic algorithm for several objectives, as in GreenMalloc", 300, "nsga2", "Nsga2"),
    "cmaes": Method("CMA-ES, one search for each kind of pick; for many evaluations", 500, "cmaes", "CmaEs"),
    "local": Method("changes one setting of the best at a time", 100, "local", "Local"),
    "magpie": Method("local search as the papers ran it with Magpie, faults and all", 0, "local", "Magpie"),
    "sobol": Method("covers the space evenly, learns nothing", 60, "sobol", "Sobol"),
    "grid": Method("every level of one or two parameters", 60, "grid", "Grid"),
    "default": Method("searches nothing: the default is measured and that is all", 0, "default", "Default"),
}


def make_strategy(method: str, setup: Setup) -> Strategy:
    """The strategy of this name.

    Raises:
        UsageError: no such method.
    """
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    return METHODS[method].make(setup)
