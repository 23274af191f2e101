"""Loads search methods of other packages, and turns their faults into messages that name the method and the line.

The protocol is `search.protocol.Strategy`; docs/search.md shows a whole method.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from heapwright.allocators.space import Point, Space
from heapwright.errors import HeapwrightError, UsageError, unknown
from heapwright.plugins import METHODS_GROUP, load_plugin, plugin_names
from heapwright.search.protocol import Observation, Setup, Strategy


def load_method(name: str, ours: Iterable[str]) -> Callable[[Setup], Strategy]:
    """Return the constructor of a method that an installed package offers.

    Args:
        name: of the method.
        ours: the names of heapwright's own methods, for the message about an unknown one.

    Raises:
        UsageError: there is no method of this name.
        HeapwrightError: it cannot be imported, or its class has no `ask` or no `tell`.
    """
    names = plugin_names(METHODS_GROUP)
    if name not in names:
        error = unknown("method", name, [*ours, *names])
        raise UsageError(error.message, f"{error.hint}; the package of a method of your own must be installed here")
    constructor: Callable[[Setup], Strategy] = load_plugin(METHODS_GROUP, name)
    if isinstance(constructor, type):
        for function in ("ask", "tell"):
            if not callable(getattr(constructor, function, None)):
                raise HeapwrightError(f"the search method '{name}' ({constructor.__name__}) has no method '{function}'")
    return constructor


class PluginStrategy:
    """A strategy of another package.

    Args:
        name: of the method.
        setup: its parameters.
        ours: see `load_method`.

    Raises:
        HeapwrightError: it fails; so do `ask` and `tell`.
    """

    def __init__(self, name: str, setup: Setup, ours: Iterable[str] = ()) -> None:
        self._name, self._space = name, setup.space
        self._strategy: Strategy = self._call(load_method(name, ours), setup)

    def ask(self) -> list[Point]:
        """Return the next batch of points, checked. See `Strategy.ask`."""
        points = self._call(self._strategy.ask)
        try:
            return [self._checked(point) for point in points]
        except TypeError:
            raise HeapwrightError(
                f"the search method '{self._name}' fails: ask returns {points!r}, which is not a list of points"
            ) from None

    def tell(self, observations: Sequence[Observation]) -> None:
        """Learn the results of the last batch. See `Strategy.tell`."""
        self._call(self._strategy.tell, observations)

    def _call(self, function: Callable[..., Any], *args: object) -> Any:
        try:
            return function(*args)
        except HeapwrightError:
            raise
        except Exception as error:  # any error of foreign code
            last = traceback.extract_tb(error.__traceback__)[-1]
            raise HeapwrightError(
                f"the search method '{self._name}' fails: {type(error).__name__}: {error}"
                f" ({last.filename}, line {last.lineno}, in {last.name})"
            ) from None

    def _checked(self, point: Any) -> Point:
        try:
            levels = tuple(int(level) for level in point)
            levels = levels if all(a == b for a, b in zip(levels, point, strict=True)) else ()  # no fractions
        except (TypeError, ValueError, OverflowError):
            levels = ()
        if not is_point_of(levels, self._space):
            raise HeapwrightError(
                f"the search method '{self._name}' proposes {point!r}, which is not a point of the space: it needs"
                f" {len(self._space.sizes)} levels of at least 0 and at most {self._space.sizes}"
            )
        return levels


def is_point_of(levels: Sequence[int], space: Space) -> bool:
    """Whether the levels are a point of the space: as many as it has coordinates, each from 0 to its size."""
    sizes = space.sizes
    return len(levels) == len(sizes) and all(0 <= v <= size for v, size in zip(levels, sizes, strict=True))
