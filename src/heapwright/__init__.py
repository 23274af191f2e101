"""heapwright finds, proves and ships the best malloc for a program.

The names in `__all__` are its Python API (docs/api.md). They are imported when they are first used, so that the command
starts quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
SCHEMA_VERSION = 1  # of every JSON file that heapwright writes

if TYPE_CHECKING:
    from heapwright.api import (
        API_VERSION,
        AllocatorResult,
        ComparisonResult,
        HeapwrightError,
        Measurement,
        Pick,
        ReplayResult,
        Study,
        compare,
        measure,
        open_study,
        replay,
        tune,
    )

__all__ = [
    "API_VERSION",
    "AllocatorResult",
    "ComparisonResult",
    "HeapwrightError",
    "Measurement",
    "Pick",
    "ReplayResult",
    "Study",
    "compare",
    "measure",
    "open_study",
    "replay",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Return a name of the API, which is imported now."""
    if name in __all__ and name != "measure":  # the package `measure` is callable itself
        from heapwright import api

        return getattr(api, name)
    if name == "measure":
        import importlib

        return importlib.import_module("heapwright.measure")
    raise AttributeError(f"module 'heapwright' has no attribute '{name}'")


def __dir__() -> list[str]:
    """Return the names of the API beside those that are imported."""
    return sorted({*globals(), *__all__})
