"""Tests which loads count as loads of fixed time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heapwright.workload.work_done import (
    fixed_time_sentence,
    fixed_time_warning,
    load_errors_warning,
    replacement_metrics,
)


def runs(*found: tuple[float | None, float], errors: tuple[float, ...] = ()) -> list[dict[str, float | None]]:
    failed = dict(enumerate(errors))
    return [{"load_operations": n, "wall_s": wall, "load_errors": failed.get(i)} for i, (n, wall) in enumerate(found)]


@pytest.mark.parametrize(
    ("errors", "text"),
    [
        ((0, 0), ""),
        ((), ""),
        ((20, 0), " under exgen had 20 errors in 2,000 operations (1%)"),
        ((1000, 1000), " under exgen had 2,000 errors in 2,000 operations (100%)"),
        ((5000, 0), " under exgen had 5,000 errors in 2,000 operations"),
    ],
)
def test_errors_of_a_load_are_told_with_their_share(errors: tuple[float, ...], text: str) -> None:
    warning = load_errors_warning(runs((1000, 2.0), (1000, 2.1), errors=errors), " under exgen")
    assert warning == (f"The load{text}: an operation that fails may take less memory and time." if text else "")


def test_work_that_differs_in_the_same_time() -> None:
    sentence = fixed_time_sentence([runs((2323, 10.01), (1179, 10.02))])
    assert sentence.startswith("The load runs for a fixed time: it did 1,179 to 2,323 operations in 10.01 s. Wall time")
    assert fixed_time_sentence([runs((1000, 1.02), (1006, 1.025))]).startswith("The load runs for a fixed time")
    assert fixed_time_sentence([runs((1000, 2.3), (1300, 3.0))]).startswith(
        "The load does another amount of work in each run: it did 1,000 to 1,300 operations in 2.30 s to 3.00 s. Wall"
    )
    assert fixed_time_sentence([runs((500, 3.0), (500, 3.1)), runs((2323, 9.5), (1179, 9.6))]), "one input is enough"


@pytest.mark.parametrize(
    "found",
    [
        runs((1000, 2.0), (1000, 2.0), (1000, 2.0)),
        runs((1000, 2.3)),
        runs((None, 2.0), (None, 2.0)),
        runs((0, 2.0), (0, 2.0)),
        runs((990, 3.3), (1000, 3.3), errors=(10, 0)),
        [],
    ],
)
def test_other_loads_are_not_taken_for_loads_of_a_fixed_time(found: list[dict[str, float | None]]) -> None:
    assert fixed_time_sentence([found]) == ""


@given(st.integers(1, 10**6), st.lists(st.floats(0.001, 1e4), min_size=1))
def test_a_fixed_count_is_never_a_fixed_time(count: int, walls: list[float]) -> None:
    assert fixed_time_sentence([runs(*((count, wall) for wall in walls))]) == ""


@given(st.floats(0.5, 100), st.lists(st.floats(0, 0.02), min_size=2, max_size=5))
def test_twice_the_work_in_the_same_time_is_a_load_of_a_fixed_time(seconds: float, starts: list[float]) -> None:
    assert fixed_time_sentence([runs(*((1000 + 1000 * i, seconds * (1 + start)) for i, start in enumerate(starts)))])


def test_whole_seconds_without_a_count_are_doubted() -> None:
    assert fixed_time_warning([runs((None, 10.02), (None, 10.04))]).startswith("Every load took 10.02 s. If it runs")
    for found in (runs((None, 10.02)), runs((None, 10.02), (None, 10.4)), runs((5, 10.02), (5, 10.02)),
                  runs((None, 0.01), (None, 0.01)), runs((None, 9.99), (None, 10.01))):  # fmt: skip
        assert fixed_time_warning([found]) == ""


def test_metrics_per_operation_replace_times() -> None:
    assert replacement_metrics(("wall_s", "peak_rss_bytes", "cpu_s")) == (
        "throughput_per_s",
        "peak_rss_bytes",
        "cpu_per_op_s",
    )
    assert replacement_metrics(("wall_s", "cpu_s"), minimised=True) == ("cpu_per_op_s",)
    assert replacement_metrics(("cpu_s", "cpu_per_op_s")) == ("cpu_per_op_s",)
