"""Tests that a setting without effect gives a flat landscape on any machine, and that planted effects are found.

Whole sweeps in memory (tests/study/flat.py); tools/flat_landscapes.py makes the table in docs/landscape.md.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests import needs

from .fakes import Settings
from .flat import COURSES, is_flat, sweep

SWEEPS = 20
SHORT = ("drift and jumps", "5% outliers, × 1.5 to 5")  # courses


@pytest.mark.parametrize("name", [needs.long_unless(name in SHORT, name) for name in COURSES])
def test_a_setting_without_effect_is_flat(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [sweep(COURSES[name], seed, patch=monkeypatch) for seed in range(SWEEPS)]
    assert sum(map(is_flat, found)) >= 0.95 * SWEEPS
    assert all(t.repeated == 8 for t in found)


def test_seventy_places_that_do_nothing_are_flat(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one run and with three runs of each point."""
    axes = ("size:1:1073741824:0.43",)
    for replicates in (1, 3):
        found = [
            sweep(COURSES["5% outliers, × 1.5 to 5"], seed, axes=axes, replicates=replicates, patch=monkeypatch)
            for seed in range(6)
        ]
        assert all(map(is_flat, found))


def cliff(settings: Settings, _input: str) -> Mapping[str, float]:
    """From 1000 on it costs 20% more."""
    return {"cpu_s": 1.0 if float(settings.get("size", 1 << 20)) < 1000 else 1.2}


def comb(settings: Settings, _input: str) -> Mapping[str, float]:
    """Every other point costs 20% more."""
    size = int(settings.get("size", 1 << 20))
    return {"cpu_s": 1.0 if size.bit_length() % 2 else 1.2}


@pytest.mark.parametrize("name", ["normal, 2%", "drift and jumps", "Student's t with 3 degrees", "log-normal, σ = 1"])
def test_a_cliff_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [sweep(COURSES[name], seed, effect=cliff, patch=monkeypatch) for seed in range(8)]
    assert sum(t.differs for t in found) >= 7
    assert sum(t.gains for t in found) >= 7
    assert sum(t.smoothness.verdict.endswith("smooth") for t in found) >= 6
    gains = [t.gain.ratio for t in found if t.gain is not None]
    assert sum(r.low <= 1 / 1.2 <= r.high for r in gains) >= 7


def test_a_comb_is_rugged(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [sweep(COURSES["normal, 2%"], seed, effect=comb, patch=monkeypatch) for seed in range(8)]
    assert sum(t.smoothness.verdict == "rugged" for t in found) >= 7


def test_more_replicates_see_through_outliers(monkeypatch: pytest.MonkeyPatch) -> None:
    course = COURSES["5% outliers, × 1.5 to 5"]
    found = [sweep(course, seed, effect=cliff, replicates=4, patch=monkeypatch) for seed in range(10)]
    assert sum(t.differs for t in found) >= 5, "of forty, 26"
