"""Tests inputs, budgets and time-outs: which runs are made on which input, and how many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from heapwright.allocators.space import Point, Space
from heapwright.search.methods import METHODS as ALL_METHODS
from heapwright.workload.execute import Outcome
from heapwright.workload.model import Input
from tests import needs

from .conftest import Tuning
from .fakes import Settings, World

METHODS = [m for m in ALL_METHODS if m != "default"]
SHORT: dict[str, Any] = {"method": "sobol", "evaluations": 16, "pairs_min": 6, "pairs_max": 6}


def faster(settings: Settings, _input: str) -> Mapping[str, float]:
    return {"cpu_s": 0.8 if settings.get("cache") == "0" else 1.0}


def inputs_of(study: Tuning, phase: str) -> set[str]:
    return {r.input for r in study.runs(phase)}


def test_the_search_sees_train_inputs_and_the_confirmation_test_inputs(tuning: Callable[..., Tuning]) -> None:
    inputs = (Input("a"), Input("b"), Input("x", split="test"), Input("y", split="test"))
    study = tuning(World(effect=faster), inputs=inputs, options=SHORT)
    view = study.go()
    assert inputs_of(study, "calibrate") == {"a", "b", "x", "y"}
    for phase in ("search", "shortlist", "minify.%"):
        assert inputs_of(study, phase) == {"a", "b"}, phase
    assert inputs_of(study, "confirm") == {"x", "y"}
    assert view.picks["time"].confirmed["cpu_s"].pairs == 12
    assert "pairs on 2 inputs" in view.picks["time"].claim


def test_without_test_inputs_all_are_used_for_both(tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(effect=faster), inputs=(Input("a"), Input("b")), options=SHORT)
    study.go()
    assert inputs_of(study, "search") == inputs_of(study, "confirm") == {"a", "b"}


def test_every_block_holds_the_default_once_for_each_input(tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(effect=faster), inputs=(Input("a"), Input("b")), options=SHORT)
    study.go()
    blocks: dict[tuple[str, int, str], list[int]] = {}
    for run in study.runs():
        if not run.phase.startswith("minify"):  # there the pick itself is the reference
            blocks.setdefault((run.phase, run.block, run.input), []).append(run.config)
    assert all(configs.count(1) == 1 for configs in blocks.values())
    assert all(len(c) <= 6 for (phase, _, _), c in blocks.items() if phase == "search")


def test_the_default_stands_anywhere_in_its_block(tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(effect=faster), options={**SHORT, "evaluations": 100})
    study.go()
    blocks: dict[int, list[int]] = {}
    for run in study.runs("search"):
        blocks.setdefault(run.block, []).append(run.config)
    assert len({configs.index(1) for configs in blocks.values()}) >= 4


def test_padding_differs_from_run_to_run(tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(), options=SHORT)
    study.go()
    pads = [pad for _, _, pad in study.world.made]
    assert len(set(pads)) > 0.9 * len(pads)
    assert all(0 <= pad <= 4096 for pad in pads)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("evaluations", [1, 7, 33])
@pytest.mark.few(9)
def test_no_more_evaluations_than_asked_for(method: str, evaluations: int, tuning: Callable[..., Tuning]) -> None:
    view = tuning(World(noise=0.01), options={**SHORT, "method": method, "evaluations": evaluations}).go()
    found = len(view.evaluations)
    assert found <= evaluations
    assert found == evaluations or method == "grid"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.few(3)
def test_no_setting_is_evaluated_twice(method: str, tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(noise=0.01), options={**SHORT, "method": method, "evaluations": 60})
    view = study.go()
    environments = [tuple(e.config.env.items()) for e in view.evaluations]
    assert len(set(environments)) == len(environments)
    searched = [r.config for r in study.runs("search") if r.config != 1]
    assert len(set(searched)) == len(searched)


@pytest.mark.parametrize("method", METHODS)
def test_a_space_smaller_than_the_budget_ends_the_search(method: str, tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(noise=0.01), options={**SHORT, "method": method, "evaluations": 500, "params": ("trim",)})
    assert len(study.go().evaluations) == 2


def test_a_time_budget_is_shared_out(tuning: Callable[..., Tuning]) -> None:
    options = {"method": "nsga2", "evaluations": 0, "budget_s": 400.0, "pairs_min": 6, "pairs_max": 400}
    study = tuning(World(effect=faster, noise=0.02, seconds=2.0), options=options)
    study.go(margin=0.0)  # never narrow enough: only time ends the confirmation
    seconds: dict[str, float] = {}
    for run in study.runs():
        stage = run.phase.partition(".")[0]
        seconds[stage] = seconds.get(stage, 0.0) + run.elapsed_s
    assert seconds["search"] >= 0.3 * 400
    assert seconds["shortlist"] >= 4 * 2 * 2.0
    assert seconds["minify"] >= 3 * 2 * 2.0
    assert 400 - 3 * 2.0 < sum(seconds.values()) <= 400 + 2.0, "a deadline: one run past it at most"
    assert study.world.clock == sum(seconds.values())


@pytest.mark.parametrize("seconds", [0.3, 2.0, 5.0, 9.0])
def test_the_proof_has_its_time_whatever_a_run_takes(seconds: float, tuning: Callable[..., Tuning]) -> None:
    options = {"evaluations": 0, "budget_s": 60 * seconds, "method": "sobol"}
    study = tuning(World(effect=faster, noise=0.005, seconds=seconds), options=options)
    view = study.go()
    assert study.world.clock <= 61 * seconds
    assert view.picks["time"].minified
    assert view.picks["time"].config.settings == {"cache": "0"}
    assert view.picks["time"].confirmed["cpu_s"].verdict == "better"


def test_a_batch_that_does_not_fit_is_searched_in_part(
    tuning: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a first point that is tried alone, the time of the search is too short for the method's first batch."""

    def first(_session: object, space: Space) -> list[Point]:
        levels = (param.levels.index("0") + 1 if param.key == "cache" else 0 for param in space.params)
        return [space.normalise((*(0 for _ in space.gates), *levels))]

    monkeypatch.setattr("heapwright.tuning.pipeline.huge_page_points", first)
    study = tuning(World(seconds=10.0, noise=0.01), options={"evaluations": 0, "budget_s": 480.0, "pairs_min": 7})
    view = study.go()
    assert len(view.evaluations) > 1
    assert sum(run.elapsed_s for run in study.runs("search")) == 60.0, "its share: six runs"
    assert study.world.clock <= 490.0


def test_runs_that_become_slower_take_from_the_search(tuning: Callable[..., Tuning]) -> None:
    """The machine becomes three times slower during the search: the confirmation still has its pairs."""
    study = tuning(World(effect=faster), options={"evaluations": 0, "budget_s": 300.0, "method": "sobol"})
    world = study.world
    run = world.run

    def slower(*words: Any) -> Any:
        world.seconds = 3.0 if len(world.made) > 30 else 1.0
        return run(*words)

    world.run = slower  # type: ignore[assignment, method-assign]
    view = study.go()
    assert world.clock <= 303.0
    assert view.picks["time"].confirmed["cpu_s"].verdict == "better"


def test_a_budget_too_small_for_a_proof_ends_in_time_and_claims_nothing(tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(effect=faster, seconds=10.0), options={"evaluations": 0, "budget_s": 120.0, "method": "sobol"})
    view = study.go()
    assert study.world.clock <= 130.0
    assert not any(p.confirmed for p in view.picks.values())
    assert view.claim.startswith("Nothing is proven: the time budget")


@pytest.mark.parametrize("seconds", [1.0, 3.0, 50.0])
def test_a_study_that_its_deadline_ended_runs_nothing_more(seconds: float, tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(effect=faster, noise=0.02, seconds=seconds), options={"evaluations": 0, "budget_s": 100.0})
    first = study.go(method="sobol")
    made = len(study.world.made)
    study.world.clock += 1000
    assert study.go().claim == first.claim
    assert len(study.world.made) == made


def test_a_larger_budget_goes_on_after_the_deadline(tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(effect=faster, seconds=10.0), options={"evaluations": 0, "method": "sobol"})
    assert not study.go(budget_s=100.0).picks
    assert study.go(budget_s=1000.0).picks["time"].confirmed["cpu_s"].verdict == "better"


def test_the_confirmation_goes_on_until_it_is_narrow(tuning: Callable[..., Tuning]) -> None:
    noisy = tuning(World(effect=faster, noise=0.2), options={**SHORT, "pairs_min": 10, "pairs_max": 30})
    noisy.go()
    assert len({r.block for r in noisy.runs("confirm")}) == 30
    calm = tuning(World(effect=faster, noise=0.001), options={**SHORT, "pairs_min": 10, "pairs_max": 30})
    calm.path = calm.path.with_name("calm.study")
    calm.go()
    assert len({r.block for r in calm.runs("confirm")}) == 10


def test_the_time_a_run_may_take(tuning: Callable[..., Tuning]) -> None:
    def last_timeout(name: str, **options: Any) -> float:
        study = tuning(World(extra={"wall_s": 4.0}), options={**SHORT, "evaluations": 1, **options})
        study.path = study.path.with_name(f"{name}.study")
        study.go()
        return study.world.timeouts[-1]

    assert last_timeout("own") == 40.0, "ten times the default's"
    assert last_timeout("given", timeout=5.0) == 5.0


def test_a_quick_program_may_take_ten_seconds(tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(extra={"wall_s": 0.01}), options={**SHORT, "evaluations": 1})
    study.go()
    assert (study.world.timeouts[0], study.world.timeouts[-1]) == (0.0, 10.0)


def test_a_noisy_machine_is_said(tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(noise=0.3), options={**SHORT, "evaluations": 1})
    view = study.go()
    assert any("CPU time varies by" in n and "noisy machine" in n for n in study.notes.notes)
    assert any("CPU time varied by" in w for w in view.warnings)


def test_many_mappings_are_a_hazard(tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(effect=faster, maps=60_000), options=SHORT)
    limit = study.go().host["max_map_count"]
    if limit is None or limit > 240_000:
        needs.machine_cannot("run out of mappings: its limit is too high")
    assert any("60000 memory mappings" in h for h in study.view().hazards)


@pytest.mark.parametrize(("processes", "objective"), [(1, "peak_rss_bytes"), (3, "peak_pss_bytes")])
def test_memory_of_a_tree_is_proportional_unless_asked_otherwise(
    processes: int, objective: str, tuning: Callable[..., Tuning]
) -> None:
    world = World(effect=faster, processes=processes, extra={"peak_pss_bytes": 5e7})
    study = tuning(world, options=SHORT)
    view = study.go()
    assert view.objectives == [objective, "cpu_s"]
    assert ("divided among them" in view.objectives_why) == (processes > 1)
    made = len(world.made)
    assert study.go().objectives == view.objectives, "the same when it is taken up again"
    assert len(world.made) == made
    asked = tuning(world, options={**SHORT, "objectives": ("peak_rss_bytes", "cpu_s")})
    asked.path = asked.path.with_name("asked.study")
    assert asked.go().objectives == ["peak_rss_bytes", "cpu_s"]


def test_a_tree_whose_proportional_memory_cannot_be_read_has_the_usual_objectives(
    tuning: Callable[..., Tuning],
) -> None:
    assert tuning(World(effect=faster, processes=3), options=SHORT).go().objectives == ["peak_rss_bytes", "cpu_s"]


def test_a_tree_whose_peak_some_runs_missed_has_the_usual_objectives(tuning: Callable[..., Tuning]) -> None:
    """The first run can read proportional memory, a later run of the default cannot."""

    class Missing(World):
        def run(self, input_: Input, settings: Settings, pad: int) -> Outcome:
            self.extra = {"peak_pss_bytes": None if len(self.made) == 2 else 5e7}
            return super().run(input_, settings, pad)

    study = tuning(Missing(effect=faster, processes=3), options=SHORT)
    view = study.go()
    assert view.objectives == ["peak_rss_bytes", "cpu_s"]
    assert "missed the peak" in view.objectives_why
    assert "divided among them" not in view.objectives_why
    assert sum("missed the peak" in note for note in study.notes.notes) == 1
    made = len(study.world.made)
    assert study.go().objectives == view.objectives, "the same when it is taken up again"
    assert len(study.world.made) == made
