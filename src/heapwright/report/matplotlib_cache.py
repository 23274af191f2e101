"""Loads matplotlib so that it keeps its files in heapwright's cache, not in folders of the user's own."""

from __future__ import annotations

import os
from types import ModuleType

from heapwright.files import user_cache

_VARIABLE = "MPLCONFIGDIR"


def load_matplotlib(backend: str) -> ModuleType:
    """Return matplotlib with a back end chosen. Its font cache goes to ~/.cache/heapwright, unless the user set it.

    It takes all text as it is: a name may have two $, which is not a formula.

    The variable that tells matplotlib so is unset again: programs that heapwright runs must not see it.

    Args:
        backend: name of the back end, such as 'svg'.
    """
    cache = user_cache()
    ours = _VARIABLE not in os.environ
    if ours and cache is not None:
        os.environ[_VARIABLE] = str(cache / "matplotlib")
    try:
        import matplotlib as mpl

        mpl.get_configdir()  # matplotlib remembers both folders
        mpl.get_cachedir()
    finally:
        if ours:
            os.environ.pop(_VARIABLE, None)
    mpl.use(backend)
    mpl.rcParams["text.parse_math"] = False
    return mpl
