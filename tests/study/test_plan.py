"""Tests the plan that a study makes after its first run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from heapwright.interleaving.budget import StageNeed
from heapwright.study.options import Options
from heapwright.tuning.plan import make_plan
from heapwright.tuning.stages import needs_from
from heapwright.units import show_exactly

from .conftest import Tuning
from .fakes import World


def plan_for(run_s: float, budget_s: float = 600.0, **options: object) -> tuple[bool, bool, float, str]:
    """Whether a study of seven allocators can prove, whether it can predict, its length, and its sentence."""
    given = Options(budget_s=budget_s, **options)  # type: ignore[arg-type]
    total_s = budget_s or math.inf
    left_s = total_s - run_s
    needs = needs_from("allocators", given, 1, 1, 7, False, left_runs=left_s / run_s)
    plan = make_plan(needs, run_s, left_s, total_s)
    return plan.proof, plan.predicts, plan.total_s, plan.sentence()


def test_a_short_program_needs_less_than_the_budget() -> None:
    proof, _, total_s, sentence = plan_for(0.2)
    assert proof
    assert 20 < total_s < 120
    assert sentence.startswith("One run takes 200.0 ms. The study takes about ")


def test_a_study_of_recordings_speaks_of_replays_and_a_prediction() -> None:
    needs = needs_from("allocators", Options(budget_s=2.0), 1, 1, 7, False, left_runs=9.0)
    sentence = replace(make_plan(needs, 0.2, 1.8, 2.0), replays=True).sentence()
    assert sentence.startswith("One replay takes 200.0 ms. A time budget of 2 s holds 10 replays; a prediction needs")


def test_a_longer_program_fills_the_budget() -> None:
    proof, _, total_s, _ = plan_for(5.0)
    assert proof
    assert total_s == pytest.approx(595.0, rel=0.2)


def test_a_long_program_gets_a_prediction_and_the_budget_for_a_proof() -> None:
    proof, predicts, _, sentence = plan_for(95.0)
    assert (proof, predicts) == (False, True)
    assert "A time budget of 10 min holds 6 runs; a proof needs --budget " in sentence
    advised = sentence.partition("--budget ")[2].partition(".")[0]
    hours = float(advised.removesuffix("h").removesuffix("m")) / (1 if advised.endswith("h") else 60)
    assert plan_for(95.0, hours * 3600)[0], "the advised budget holds a proof"


def test_a_budget_too_small_for_a_recording_gives_no_prediction() -> None:
    assert plan_for(400.0)[:2] == (False, False)


def test_a_short_budget_is_for_the_search_before_settings_are_dropped() -> None:
    needs = needs_from("allocators", Options(), 1, 1, 1, False, left_runs=30.0, runtime_levels=11)
    stages = make_plan(needs, 1.0, 30.0, 31.0).stages
    assert stages["search"] >= 6
    assert stages["shortlist"] >= 6
    assert stages["confirm"] >= 18
    assert stages["runtimes"] <= 2
    needs = needs_from("allocators", Options(), 1, 1, 7, False, left_runs=60.0, runtime_levels=27)
    assert make_plan(needs, 1.0, 60.0, 61.0).stages["runtimes"] >= 12
    assert "1 run to" in make_plan({"minify": StageNeed(1, 1, 1.0, 1.0)}, 1.0, math.inf, math.inf).sentence()


@pytest.mark.parametrize(("left_runs", "proof"), [(19.0, False), (25.0, True)])
def test_a_proof_needs_time_to_find_a_candidate(left_runs: float, proof: bool) -> None:
    """19 runs hold a confirmation but not the comparison of allocators before it: replays find more."""
    needs = needs_from("allocators", Options(), 1, 1, 11, True, left_runs=left_runs)
    plan = make_plan(needs, 1.0, left_runs, 24.0)
    assert needs["confirm"].min_runs <= left_runs
    assert (plan.proof, plan.predicts) == (proof, True)


def test_a_row_of_usual_advice_does_not_take_the_runs_of_the_search() -> None:
    """32 runs hold a pick and a row beside it, or a pick and a search."""
    needs = needs_from("allocators", Options(), 1, 1, 7, True, left_runs=32.0)
    assert make_plan(needs, 1.0, 32.0, 36.0).stages["search"] >= 6
    rich = needs_from("allocators", Options(), 1, 1, 7, True, left_runs=60.0)
    assert rich["confirm"].min_runs > needs["confirm"].min_runs


def test_settings_of_the_runtime_that_holds_the_memory_come_before_allocators() -> None:
    counts = (Options(), 1, 1, 7, True)
    for first, stage in ((False, "allocators"), (True, "runtimes")):
        needs = needs_from("allocators", *counts, left_runs=24.0, runtime_levels=18, runtime_first=first)
        stages = make_plan(needs, 1.0, 24.0, 28.0).stages
        assert {s for s in ("allocators", "runtimes") if stages[s] >= 6} == {stage}


def test_a_study_with_few_runs_searches_in_a_smaller_block(tuning: Callable[..., Tuning]) -> None:
    """The first block shrinks to the time of the search: 24 of 30 runs are the confirmation's and the default's."""
    world = World(seconds=1.0, effect=lambda s, _: {"cpu_s": 0.5} if s else {})
    view = tuning(world, options={"budget_s": 24.0, "proxy": "none"}).go()
    assert 0 < len(view.evaluations) < 5
    assert view.claim.startswith("With ")


def test_a_count_without_a_time_is_foreseen_too() -> None:
    proof, _, total_s, _ = plan_for(2.0, budget_s=0.0, evaluations=12)
    assert proof
    assert math.isfinite(total_s)


def test_a_study_without_time_for_a_proof_ends_at_once(tuning: Callable[..., Tuning]) -> None:
    """The study does not spend its budget on runs that prove nothing."""
    world = World(seconds=100.0)
    view = tuning(world, options={"budget_s": 600.0, "proxy": "none"}).go()
    assert len(world.made) == 1
    assert view.phase == "done"
    enough = view.claim.partition(" --budget ")[2].partition(" ")[0]
    assert view.claim == (
        "Nothing is proven: the time budget holds no proof (one run takes about 100.00 s), and replays predict nothing:"
        f" the study does without replays (--proxy none). A proof needs --budget {enough} If other work"
        " made the runs so far slow, begin anew: name another file with --study."
    ), "the same command would read this run again"


def test_no_prediction_is_promised_that_replays_cannot_give(tuning: Callable[..., Tuning]) -> None:
    """The plan and the claim say why there is none, and which budget is enough."""
    objective = {"proxy": "auto", "objectives": ("major_faults",)}
    study = tuning(World(seconds=9.3, extra={"major_faults": 3.0}), options={"budget_s": 90.0, **objective})
    view = study.go()
    plan = next(note for note in study.notes.notes if "One run takes" in note)
    assert "A time budget of 90 s holds 9 runs; a proof needs --budget " in plan
    why = "a replay does not measure major faults"
    assert plan.endswith(f" Replays cannot predict either: {why}. The study ends now.")
    assert f"replays predict nothing: {why}. A proof needs --budget " in view.claim
    assert len(study.world.made) == 2, "the second run, with warm caches, might have been faster"


def test_a_slow_first_run_does_not_decide(tuning: Callable[..., Tuning]) -> None:
    """The first run reads its files from a cold disk. A second run tells whether the budget holds a proof after all."""
    options = {"budget_s": 100.0, "proxy": "none"}
    world = World(seconds=1.0, first_s=13.0, effect=lambda s, _: {"cpu_s": 0.5} if s else {})
    study = tuning(world, options=options)
    view = study.go()
    assert view.claim.startswith("With ")
    made = len(world.made)
    assert tuning(world, options=options).go().claim == view.claim
    assert len(world.made) == made, "a study that goes on reads all of its runs"


@pytest.mark.parametrize(
    ("seconds", "text"), [(90, "90 s"), (120, "2 min"), (0.5, "0.5 s"), (5400, "90 min"), (36e3, "10 h")]
)
def test_a_given_time_is_not_rounded(seconds: float, text: str) -> None:
    assert show_exactly(seconds) == text


def test_few_settings_prove_nothing(tuning: Callable[..., Tuning]) -> None:
    """Two settings that are not better do not show that no setting is."""
    view = tuning(World(effect=lambda s, _: {"cpu_s": 1.1} if s else {}), options={"evaluations": 2}).go()
    assert view.picks == {}
    assert view.claim.startswith("Not enough was measured to say anything: 2 settings were tried, none was better")
