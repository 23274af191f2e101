"""Runs the native meter and reads its output. A call of the package calls `heapwright.api.measure`.

The API has a function with this package's name, `heapwright.measure`. Whichever of the two a program imports first, the
name stands for both: a package whose modules can be imported, and which can be called.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        """Run a command under the meter (`heapwright.api.measure`)."""
        return importlib.import_module("heapwright.api").measure(*args, **options)


sys.modules[__name__].__class__ = _Callable
