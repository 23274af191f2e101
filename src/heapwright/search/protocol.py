"""Defines the ask/tell protocol of all search strategies, and lists the methods.

A strategy proposes points (tuples of small integers, see `allocators.space`) and learns their costs: log ratios to the
default, minimised. A configuration that crashed, timed out or changed the output is infeasible and has no costs. A
strategy never runs anything and keeps no files. It is deterministic: the same seed and the same sequence of calls give
the same points. Therefore a killed study can resume by replaying its store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol

from heapwright.allocators.space import Point, Space
from heapwright.errors import HeapwrightError, unknown
from heapwright.plugins import METHODS_GROUP, load_plugin, plugin_names

# Points that a method without generations proposes at once: as many as share a block with one run of the default.
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


@dataclass(frozen=True)
class Method:
    """A search method.

    Attributes:
        about: one phrase for users.
        budget: number of evaluations from which on it beats random search, as tests/search/test_planted.py shows;
            0 if that is not claimed.
        module, name: its class, which is imported only when used, because some methods need large libraries.
        needs: module → package of the extra `tune` that it needs.
    """

    about: str
    budget: int
    module: str
    name: str
    needs: Mapping[str, str] = field(default_factory=dict)

    def make(self, setup: Setup) -> Strategy:
        """Return a new strategy."""
        constructor: Callable[[Setup], Strategy] = getattr(import_module(f"heapwright.search.{self.module}"), self.name)
        return constructor(setup)


_GP, _NSGA2, _CMAES = {"sklearn": "scikit-learn"}, {"pymoo": "pymoo"}, {"cma": "cma"}

METHODS: dict[str, Method] = {
    "auto": Method(
        "chooses a method by budget, parameters and objectives, and says which",
        60,
        "auto",
        "auto",
        _GP | _NSGA2 | _CMAES,
    ),
    "gp": Method(
        "Bayesian optimisation with Gaussian processes; for few evaluations", 60, "gp", "GaussianProcess", _GP
    ),
    "nsga2": Method("a genetic algorithm for several objectives, as in GreenMalloc", 300, "nsga2", "Nsga2", _NSGA2),
    "cmaes": Method("CMA-ES, one search for each kind of pick; for many evaluations", 500, "cmaes", "CmaEs", _CMAES),
    "local": Method("changes one setting of the incumbent at a time", 100, "local", "Local"),
    "magpie": Method("local search as in the papers that used Magpie, with its weaknesses", 0, "local", "Magpie"),
    "sobol": Method("a quasi-random sequence that covers the space evenly; does not learn", 60, "sobol", "Sobol"),
    "random": Method("draws settings at random; every method is judged against it", 0, "random_search", "Random"),
    "grid": Method("every level of one or two parameters", 60, "grid", "Grid"),
    "default": Method("no search: only measures the default", 0, "default", "Default"),
}


def check_method(method: str) -> None:
    """Check that there is a method of this name, here or in an installed package, with the packages that it needs.

    Raises:
        UsageError: there is none.
        HeapwrightError: a package that it needs is missing.
    """
    if method not in METHODS and method not in plugin_names(METHODS_GROUP):
        raise unknown("method", method, [*METHODS, *plugin_names(METHODS_GROUP)])
    for module, package in METHODS[method].needs.items() if method in METHODS else ():
        if find_spec(module) is None:
            raise HeapwrightError(
                f"the search method '{method}' needs {package}",
                "pip install 'heapwright[tune]', or choose '--method sobol', which needs nothing more",
            )


def make_strategy(method: str, setup: Setup) -> Strategy:
    """Return a new strategy of the method with this name: ours, or of an installed package (`plugins`).

    Raises:
        UsageError: there is no such method.
        HeapwrightError: the package's method cannot be imported.
    """
    check_method(method)
    if method in METHODS:
        return METHODS[method].make(setup)
    constructor: Callable[[Setup], Strategy] = load_plugin(METHODS_GROUP, method)
    return constructor(setup)
