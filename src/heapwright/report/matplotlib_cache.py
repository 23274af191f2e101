"""Loads matplotlib so that it keeps its files in heapwright's cache, not in folders of the user's own."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

_VARIABLE = "MPLCONFIGDIR"


def load_matplotlib(backend: str) -> ModuleType:
    """Return matplotlib with a back end chosen. Its font cache goes to ~/.cache/heapwright, unless the user set it.

    The variable that tells matplotlib so is unset again: programs that heapwright runs must not see it.

    Args:
        backend: name of the back end, such as 'svg'.
    """
    ours = _VARIABLE not in os.environ
    if ours:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "heapwright" / "matplotlib"
        os.environ[_VARIABLE] = str(cache)
    try:
        import matplotlib as mpl

        mpl.get_configdir()  # matplotlib remembers both folders
        mpl.get_cachedir()
    finally:
        if ours:
            del os.environ[_VARIABLE]
    mpl.use(backend)
    return mpl
