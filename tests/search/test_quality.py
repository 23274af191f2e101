"""Tests the quality indicators against areas computed by hand, and properties of any front."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heapwright.search.quality import REFERENCE, front_quality

KEYS = ("peak_rss_bytes", "cpu_s")


def test_two_points_by_hand() -> None:
    found = front_quality([(0.9, 1.05), (1.0, 0.8), (1.0, 0.9)], KEYS)
    assert (found.size, found.reference) == (2, 1.1)
    # (0.9, 1.05) alone: 0.2 × 0.05; (1, 0.8) below it: 0.1 × 0.3 less what both cover, 0.1 × 0.05.
    assert found.hypervolume == pytest.approx(0.2 * 0.05 + 0.1 * 0.25)
    assert found.default_hypervolume == pytest.approx(0.01)
    assert found.spans == pytest.approx({"peak_rss_bytes": 0.1, "cpu_s": 0.25})
    assert found.slope == pytest.approx(-2.5)


@pytest.mark.parametrize("other", [(0.998, 1.2), (0.9, 0.803)])
def test_a_front_that_spans_less_than_a_percent_has_no_slope(other: tuple[float, float]) -> None:
    """0.2% less memory for 40% more time does not show the cost of 1%."""
    found = front_quality([(1.0, 0.8), other], KEYS)
    assert (found.size, found.slope) == (2, None)


def test_one_objective_has_a_front_of_one_point() -> None:
    found = front_quality([(0.8,), (0.9,)], ("cpu_s",))
    assert (found.size, found.slope) == (1, None)
    assert found.hypervolume == pytest.approx(0.3)


def test_a_front_without_a_gain_is_worth_the_default() -> None:
    assert front_quality([(1.3, 1.2)], KEYS).hypervolume == pytest.approx(0.01)


@given(st.lists(st.tuples(st.floats(0.2, 2), st.floats(0.2, 2)), min_size=1, max_size=20), st.data())
def test_more_points_are_never_worth_less(points: list[tuple[float, float]], data: st.DataObject) -> None:
    some = data.draw(st.lists(st.sampled_from(points), min_size=1))
    whole = front_quality(points, KEYS).hypervolume
    assert front_quality(some, KEYS).hypervolume <= whole + 1e-12
    assert (REFERENCE - 1) ** 2 - 1e-12 <= whole <= (REFERENCE - 0.2) ** 2 + 1e-12
