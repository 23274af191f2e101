"""Lists the search methods, and makes their strategies: ours, and those of other installed packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec

from heapwright.errors import HeapwrightError, install_extra
from heapwright.search.plugin_strategy import PluginStrategy, load_method
from heapwright.search.protocol import Setup, Strategy


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
    "default": Method("no search: only measures the default", 0, "default", "NoSearch"),
}


def check_method(method: str) -> None:
    """Check that there is a method of this name, here or in an installed package, with the packages that it needs.

    Raises:
        UsageError: there is none.
        HeapwrightError: a package that it needs is missing, or the package that offers it is not usable.
    """
    if method not in METHODS:
        load_method(method, METHODS)
        return
    for module, package in METHODS[method].needs.items():
        if find_spec(module) is None:
            raise HeapwrightError(
                f"the search method '{method}' needs {package}",
                f"{install_extra('tune')}; or choose '--method sobol', which needs nothing more",
            )


def make_strategy(method: str, setup: Setup) -> Strategy:
    """Return a new strategy of the method with this name: ours, or of an installed package (`plugins`).

    Raises:
        UsageError: there is no such method.
        HeapwrightError: the package's method cannot be imported or fails.
    """
    check_method(method)
    if method in METHODS:
        return METHODS[method].make(setup)
    return PluginStrategy(method, setup, METHODS)
