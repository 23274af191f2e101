"""Finds search methods and objectives that other installed packages offer by entry points.

A package names them in its pyproject.toml:

    [project.entry-points."heapwright.methods"]
    annealing = "mypackage.annealing:Annealing"

    [project.entry-points."heapwright.objectives"]
    score = "mypackage.score:score"

They are looked up only if heapwright itself has no such name, so that a start without them costs nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heapwright.errors import HeapwrightError

METHODS_GROUP = "heapwright.methods"
OBJECTIVES_GROUP = "heapwright.objectives"


def plugin_names(group: str) -> list[str]:
    """Return the names that installed packages offer in a group."""
    from importlib.metadata import entry_points

    return sorted({point.name for point in entry_points(group=group)})


def plugin_source(group: str, name: str) -> Path | None:
    """Return the file of the module that offers this name; None if there is none, or its package has no such file."""
    from importlib.metadata import entry_points
    from importlib.util import find_spec

    for point in entry_points(group=group, name=name):
        try:
            spec = find_spec(point.module)
        except (ImportError, ValueError):  # loading it reports the error
            continue
        if spec is not None and spec.origin and Path(spec.origin).is_file():
            return Path(spec.origin)
    return None


def load_plugin(group: str, name: str) -> Any:
    """Return the object that an installed package offers under this name; None if there is none.

    Raises:
        HeapwrightError: the package cannot be imported, or two packages offer the name.
    """
    from importlib.metadata import entry_points

    points = {point.value: point for point in entry_points(group=group, name=name)}
    if not points:
        return None
    if len(points) > 1:
        raise HeapwrightError(
            f"several packages offer '{name}' in {group}: {', '.join(sorted(points))}", "uninstall all but one of them"
        )
    ((value, point),) = points.items()
    try:
        return point.load()
    except Exception as error:  # any error of foreign code
        raise HeapwrightError(f"'{name}' of {group} ({value}) cannot be imported: {error}") from None
