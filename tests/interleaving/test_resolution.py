"""Tests the resolution of metrics that hardly vary, and that nothing below it is a gain."""

from __future__ import annotations

import pytest

from heapwright.interleaving.resolution import resolution
from heapwright.interleaving.stats import Ratio, relative_noise, verdict

PEAK = 60 << 20
PAGES = [float(PEAK)] * 6 + [float(PEAK + 4096)] * 2  # most runs are equal, some differ by a page


def test_address_space_has_the_resolution_of_a_page() -> None:
    assert resolution("peak_heap_bytes", [float(PEAK)] * 8) == pytest.approx(4096 / PEAK)
    assert resolution("peak_rss_bytes", [float(PEAK)] * 8) == 0
    assert resolution("massif_peak_bytes", []) == resolution("massif_peak_bytes", [0.0]) == 0


def test_of_nearly_equal_runs_the_range_counts() -> None:
    assert resolution("minor_faults", [1000.0] * 5 + [1003.0]) == pytest.approx(0.003)
    assert resolution("minor_faults", [1000.0] * 5 + [2000.0]) == 0, "an outlier is no resolution"
    assert resolution("cpu_s", [1.0, 1.001, 0.999, 1.002]) == 0, "noise is judged by intervals"


def test_noise_of_nearly_equal_runs_is_not_zero() -> None:
    assert relative_noise(PAGES) > 0
    assert relative_noise([float(PEAK)] * 8) == 0
    assert relative_noise([1.0] * 9 + [1.6]) == 0, "an outlier is not noise"


def test_nothing_below_the_resolution_is_a_gain() -> None:
    """The case of issue 29: -0.02% in every pair."""
    gain = Ratio(0.9998, 0.9997, 0.9999)
    assert verdict(gain, 0.001, 0.0) == "better"
    assert verdict(gain, 0.001, 0.0, resolution=0.0003) == "unproven"
    assert verdict(Ratio(1.0002, 1.0001, 1.0003), 0.001, 0.0, resolution=0.0003) == "unproven"
    assert verdict(Ratio(0.99, 0.98, 0.995), 0.001, 0.0, resolution=0.0003) == "better"
    assert verdict(gain, 0.001, 0.005, resolution=0.0003) == "same"
