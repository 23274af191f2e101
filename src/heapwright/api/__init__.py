"""The Python API: measure, compare, tune and replay as functions with typed results, and studies as objects.

`import heapwright` offers everything in `__all__` here, and imports this module when a name is first used. A function
runs the verb of the same name in a process of its own and reads its JSON file, so its results are those of the command.
`API_VERSION` grows with each change that is not compatible. docs/api.md has examples.
"""

from __future__ import annotations

from heapwright.api.results import AllocatorResult, ComparisonResult, Measurement, Pick, ReplayResult
from heapwright.api.study import Study, open_study
from heapwright.api.verbs import compare, measure, replay, tune
from heapwright.errors import HeapwrightError

API_VERSION = 1

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
