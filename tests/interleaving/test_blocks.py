"""Tests blocks of runs over a store in memory: order, storing, failures."""

from __future__ import annotations

import itertools

import pytest

from heapwright.errors import HeapwrightError
from heapwright.interleaving.blocks import BLOCKS_APART, Blocks
from heapwright.interleaving.configuration import Config
from heapwright.report.progress import SilentProgress
from heapwright.workload.execute import Outcome
from heapwright.workload.model import Input

from .fakes import FakeProgram, FakeRunner, MemoryStore, outcome

CONFIGS = [Config(id_, "toy", {}, {"WHO": str(id_)}) for id_ in (1, 2, 3, 4)]
INPUTS = [Input("small"), Input("large")]


def blocks(program: FakeProgram, store: MemoryStore | None = None, seed: int = 7) -> Blocks:
    return Blocks(store or MemoryStore(), FakeRunner(program, slots=2), seed, SilentProgress())


def test_order_and_padding_stay_the_same_between_versions() -> None:
    """Else a study that was begun with an older version would go on with other runs than it began with."""
    program = FakeProgram()
    blocks(program).measure_all("search", 3, [CONFIGS] * 4, INPUTS)
    assert program.made[:4] == [("2", "small", 3904), ("1", "small", 3179), ("4", "small", 584), ("3", "small", 527)]
    assert program.fingerprint() == "881a9accdfe757a5"


@pytest.mark.parametrize("count", [2, 3, 4])
def test_each_configuration_follows_the_others_as_often_as_itself(count: int) -> None:
    """A run may leave cold pages or heat for its successor."""
    program = FakeProgram()
    blocks(program).measure_all("confirm", 0, [CONFIGS[:count]] * 40, INPUTS[:1])
    order = [who for who, _, _ in program.made]
    itself = sum(a == b for a, b in itertools.pairwise(order))
    if count == 2:
        assert itself == 39, "ABBAABBA…: of 79 successors"
        assert sorted(order[:2]) == sorted(order[2:4])
    else:
        assert 20 <= itself <= 39, "in the middle of each pair of blocks, and at some of their ends"


def test_stored_runs_are_not_made_again() -> None:
    program, store = FakeProgram(), MemoryStore()
    first = blocks(program, store).measure("search", 0, CONFIGS, INPUTS)
    again = blocks(program, store).measure("search", 0, CONFIGS, INPUTS)
    assert len(program.made) == len(first) == 8
    assert again == first


def test_a_run_is_charged_once_however_often_it_is_asked_for() -> None:
    store = MemoryStore()
    made = blocks(FakeProgram(), store)
    made.measure_all("minify", 0, [CONFIGS] * 2, INPUTS)
    spent_s = made.budget.spent_s
    assert len(made.measure_all("minify", 0, [CONFIGS] * 3, INPUTS)) == 24
    more_s = made.budget.spent_s - spent_s
    again = blocks(FakeProgram(), store)
    again.measure_all("minify", 0, [CONFIGS] * 3, INPUTS)
    assert again.budget.spent_s == pytest.approx(spent_s + more_s), "a resumed study spends the same"
    assert again.typical.seconds == pytest.approx(made.typical.seconds)
    before = again.budget.spent_s
    again.measure_all("minify", 0, [CONFIGS] * 3, INPUTS)
    assert again.budget.spent_s == before


def test_the_cost_of_a_configuration_is_that_of_its_own_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last setting that was tried may make the program ten times slower; a proof of another does not need that."""
    clock = [0.0]

    def slow_fourth(who: str, _count: int) -> Outcome:
        clock[0] += 10.0 if who == "4" else 1.0
        return outcome()

    monkeypatch.setattr("heapwright.interleaving.budget.time.monotonic", lambda: clock[0])
    made = blocks(FakeProgram(slow_fourth))
    made.measure_all("search", 0, [CONFIGS[:2]] * 3, INPUTS[:1])
    made.measure_all("minify", 0, [[CONFIGS[3]]] * 12, INPUTS[:1])
    assert made.typical.seconds == 10
    assert made.seconds_of(CONFIGS[:2]) == 2
    assert made.seconds_of(CONFIGS[2:]) == 20, "the third never ran, so it counts as the latest runs do"
    made.measure_all("confirm", 0, [[CONFIGS[2]]], INPUTS[:1])
    assert made.seconds_of(CONFIGS[2:3]) == 1, "a first charge may only be too large"


def test_a_phase_with_other_configurations_has_other_blocks() -> None:
    store = MemoryStore()
    made = blocks(FakeProgram(), store)
    assert [made.first_block("confirm", CONFIGS[:2]) for _ in range(2)] == [0, 0]
    assert made.first_block("confirm", CONFIGS) == BLOCKS_APART
    assert blocks(FakeProgram(), store).first_block("confirm", CONFIGS) == BLOCKS_APART
    assert made.first_block("race", CONFIGS) == 0


def test_a_candidate_that_fails_is_not_run_on_other_inputs() -> None:
    program = FakeProgram(lambda who, _: outcome(failure="exit status 1") if who == "3" else outcome())
    runs = blocks(program).measure("search", 0, CONFIGS, INPUTS)
    assert [(r.config, r.failure) for r in runs if r.failure] == [(3, "exit status 1")]
    assert len(runs) == 7


def test_another_output_is_a_failure() -> None:
    program = FakeProgram(lambda who, _: outcome("other" if who == "4" else "same"))
    made = blocks(program)
    made.measure("calibrate", 0, CONFIGS[:1], INPUTS)
    runs = made.measure("search", 0, CONFIGS, INPUTS)
    assert {(r.config, r.failure) for r in runs if r.failure} == {(4, "its output differs from the default's")}


def test_errors_of_a_load_are_a_failure_if_the_default_has_none() -> None:
    program = FakeProgram(lambda who, _: outcome(load_errors=float(who == "4"), load_operations=50.0))
    made = blocks(program)
    made.measure("calibrate", 0, CONFIGS[:1], INPUTS)
    runs = made.measure("search", 0, CONFIGS, INPUTS)
    assert {(r.config, r.failure) for r in runs if r.failure} == {
        (4, "its load had 1 error in 50 operations (2%), and the loads of the default had none")
    }


def test_an_output_that_changes_by_itself_is_not_compared() -> None:
    program = FakeProgram(lambda _, count: outcome(str(count)))
    made = blocks(program)
    made.measure_all("calibrate", 0, [CONFIGS[:1]] * 2, INPUTS)
    runs = made.measure("search", 0, CONFIGS, INPUTS)
    assert len(runs) == len(CONFIGS) * len(INPUTS)
    assert not any(r.failure for r in runs)


def test_the_default_may_fail_twice_but_not_three_times() -> None:
    def fails(times: int) -> FakeProgram:
        def answer(who: str, _: int) -> Outcome:
            nonlocal times
            times -= who == "1"
            return outcome(failure="exit status 1" if who == "1" and times >= 0 else "")

        return FakeProgram(answer)

    blocks(fails(2)).measure("calibrate", 0, CONFIGS[:1], INPUTS[:1])
    with pytest.raises(HeapwrightError, match="the command fails by itself on input 'small'"):
        blocks(fails(3)).measure("calibrate", 0, CONFIGS[:1], INPUTS[:1])


def test_half_a_block_of_another_machine_is_made_anew() -> None:
    program, store = FakeProgram(), MemoryStore()
    blocks(program, store).measure("search", 0, CONFIGS, INPUTS)
    del store.runs["search", 0, "large", 4]
    elsewhere = Blocks(store, FakeRunner(program, on_other_machines=True), 7, SilentProgress())
    assert len(elsewhere.measure("search", 0, CONFIGS, INPUTS)) == 8
    assert len(program.made) == 16
