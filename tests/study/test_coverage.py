"""Tests the coverage of intervals that docs/method.md promises, on studies with known effects (tools/coverage.py)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from heapwright.interleaving.stats import ratio_interval
from heapwright.study.options import CONFIRM_LOOK, Options
from heapwright.tuning.confirm import settled
from tests.tools.loading import load_tool

STUDIES = 1500


tool = load_tool("coverage")
RECORDED = dict(tool.recorded())
AT_RANDOM = [name for name in RECORDED if name.endswith("at random")]


def simulated(model: Any) -> tuple[Any, Any]:
    """Which of many confirmations contain the truth, and which carry a note."""
    sample = model(np.random.default_rng(11), STUDIES)
    found = tool.confirmation(sample.pick - sample.default)
    return found.covered(sample.truth), found.noted


@pytest.mark.parametrize("name", tool.COVERED)
@pytest.mark.few(9)
def test_intervals_contain_the_truth(name: str) -> None:
    covered, _ = simulated(tool.COVERED[name])
    assert covered.mean() >= 0.93


@pytest.mark.parametrize("name", AT_RANDOM)
def test_intervals_of_recorded_pairs_contain_the_truth(name: str) -> None:
    covered, _ = simulated(RECORDED[name])
    assert covered.mean() >= 0.93


@pytest.mark.parametrize("name", tool.NOTED)
def test_intervals_with_long_spells_contain_the_truth_or_carry_the_note(name: str) -> None:
    covered, noted = simulated(tool.NOTED[name])
    assert (covered | noted).mean() >= 0.93
    assert noted.mean() >= 0.7


@pytest.mark.long
def test_the_earlier_bootstrap_interval_misses_the_truth() -> None:
    """The check can fail: a percentile bootstrap misses the truth in modes that last, and with outliers."""
    for name in ("each slow for 3 of its runs, half of the time", "5% outliers, × 5"):
        sample = tool.COVERED[name](np.random.default_rng(11), STUDIES)
        found = tool.confirmation(sample.pick - sample.default, tool.bootstrap, first=10)
        assert found.covered(sample.truth).mean() < 0.93


def test_regular_noise_pays_little() -> None:
    """At most a twentieth of the width, and seldom a note."""
    rows = np.random.default_rng(5).normal(0, 0.02, (4000, 40))
    for n in (10, 20, 40):
        plain = tool.t.ppf(0.975, n - 1) * rows[:, :n].std(axis=1, ddof=1) / math.sqrt(n)
        found = tool.interval(rows[:, :n])
        assert found.width <= 1.05 * float(np.median(2 * plain)) * 50
        assert found.noted.mean() <= 0.05


def test_the_simulation_does_what_the_confirmation_does() -> None:
    """The tool works on many studies at once; one at a time, the confirmation's own functions say the same."""
    sample = tool.modes(0.3, 0.1)(np.random.default_rng(2), 40)
    rows = sample.pick - sample.default
    found = tool.confirmation(rows)
    for at, row in enumerate(rows):
        options = Options()
        n = options.pairs_min
        while n < options.pairs_max and not settled({"": list(row[:n])}, options):
            n += CONFIRM_LOOK
        ratio = ratio_interval({"": list(row[:n])}, options.seed)
        assert n == found.pairs[at]
        assert math.log(ratio.low) == pytest.approx(found.low[at])
        assert math.log(ratio.high) == pytest.approx(found.high[at])
