"""Tells the smallest difference that runs can show in a metric that hardly varies.

Address space is granted in pages, so a difference below a page says nothing. If more than half of the default's runs
are equal, the robust estimate of noise is 0 although runs differ. Then the range of the default's runs is taken, if it
is below 1%: a larger range is that of outliers or groups, which `interleaving.shape` finds.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from heapwright.interleaving.stats import NEARLY_EQUAL

# Metrics of address space. Its unit is the page, and padding of the environment moves it by one.
ADDRESS_SPACE = frozenset({"peak_heap_bytes", "mean_heap_bytes", "peak_vm_bytes", "massif_peak_bytes"})
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resolution(metric: str, values: Sequence[float]) -> float:
    """Return the relative difference that runs must exceed to show anything; 0 if there is no such limit.

    Args:
        metric: its key.
        values: of the default's runs, in the metric's unit.
    """
    array = np.asarray(values, dtype=float)
    if not len(array) or (array <= 0).any():
        return 0.0
    median = float(np.median(array))
    page = _PAGE_BYTES / median if metric in ADDRESS_SPACE else 0.0
    spread = float(np.ptp(array)) / median
    hardly = float(np.median(np.abs(array - median))) == 0 and spread < NEARLY_EQUAL
    return max(page, spread if hardly else 0.0)
