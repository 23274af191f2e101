"""Tests a time budget: its division among stages, its charges, and the end of a study."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heapwright.interleaving import budget as module
from heapwright.interleaving.budget import Budget, StageNeed, TypicalCost, allot

NEEDS = st.builds(
    lambda fewest, more, share: StageNeed(fewest, fewest + more, share),
    st.floats(0, 50),
    st.floats(0, 1000) | st.just(math.inf),
    st.floats(0, 1),
)


@given(st.floats(0, 1e5), st.floats(1e-3, 100), st.lists(NEEDS, min_size=1, max_size=6))
def test_allotted_time_is_available_and_usable(left: float, run: float, needs: list[StageNeed]) -> None:
    stages = {str(i): need for i, need in enumerate(needs)}
    given_ = allot(left, run, stages)
    assert sum(given_.values()) <= left * (1 + 1e-9)
    for name, need in stages.items():
        assert 0 <= given_[name] <= max(need.max_runs, need.min_runs) * run * (1 + 1e-9)
    if sum(need.min_runs for need in needs) * run <= left:
        assert all(given_[name] >= need.min_runs * run * (1 - 1e-9) for name, need in stages.items())


def test_the_first_stages_are_served_first_when_time_is_short() -> None:
    needs = {
        "confirm": StageNeed(10, 100, 0.5),
        "minify": StageNeed(10, 100, 0.5),
        "search": StageNeed(5, math.inf, 1.0),
    }
    assert allot(12, 1, needs) == {"confirm": 10, "minify": 2, "search": 0}


def test_time_that_one_stage_cannot_use_goes_to_the_others() -> None:
    needs = {"confirm": StageNeed(0, 10, 0.9), "search": StageNeed(0, math.inf, 0.1)}
    assert allot(100, 1, needs) == pytest.approx({"confirm": 10, "search": 90})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that the test moves."""
    now = SimpleNamespace(now=0.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now.now))
    return now


def test_every_second_of_a_session_is_charged_once(clock: SimpleNamespace) -> None:
    budget = Budget(100.0)
    clock.now = 3.0
    assert budget.charge() == 3.0
    clock.now = 4.5
    assert budget.charge("takeover.x") == 1.5
    budget.recall(1.5, "takeover.x")
    assert budget.spent_s == 4.5, "named work counts once"
    clock.now = 50.0
    budget.recall(10.0)
    clock.now = 51.0
    assert budget.charge() == 1.0, "looking up stored runs costs nothing"
    assert budget.spent_s == 15.5


def test_the_first_run_is_always_made_and_none_begins_after_the_deadline(clock: SimpleNamespace) -> None:
    kept: list[float] = []
    budget = Budget(10.0, keep_stop=kept.append)
    clock.now = 20.0
    assert not budget.passed()
    budget.charge("start")
    assert not budget.passed(), "the start took longer than the whole budget"
    clock.now = 23.0
    budget.charge()
    assert budget.passed()
    budget = Budget(10.0, keep_stop=kept.append)
    clock.now += 6.0
    budget.charge()
    assert not budget.passed()
    clock.now += 5.0
    assert budget.passed()
    assert kept == [6.0], "where the clock ended it between two runs"
    again = Budget(10.0, stopped_s=6.0)
    again.recall(6.0)
    assert again.passed()


def test_a_stage_ends_by_the_charges(clock: SimpleNamespace) -> None:
    budget = Budget(100.0)
    budget.set_limit(10.0)
    clock.now = 50.0
    assert not budget.over(10.0), "the wall clock does not decide"
    assert budget.over(10.1)
    budget.charge()
    budget.set_limit(80.0)
    assert budget.limit_s == 100.0, "no stage outlives the study"


def test_the_present_cost_of_a_run_is_the_median_of_the_latest() -> None:
    typical = TypicalCost()
    assert typical.seconds == 0.0
    for seconds in [1.0] * 12 + [5.0] * 7:
        typical.add(seconds)
    assert typical.seconds == 5.0
