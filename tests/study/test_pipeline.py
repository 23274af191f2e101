"""Tests the tuning pipeline on programs with known effects: gains it finds, settings it refuses, runs it avoids."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from heapwright.allocators.space_spec import ParamSpec
from heapwright.errors import HeapwrightError, UsageError
from heapwright.search.methods import METHODS
from heapwright.study.claim import NOTHING
from heapwright.workload.model import Input

from ..allocators.spaces import number, threads_only
from .conftest import Tuning
from .fakes import Settings, World, toy_allocator

SHORT: dict[str, Any] = {"method": "sobol", "evaluations": 16, "pairs_min": 6, "pairs_max": 6}


def faster_without_cache(settings: Settings, _input: str) -> Mapping[str, float]:
    return {"cpu_s": 0.85 if settings.get("cache") == "0" else 1.0}


# gains that are found


@pytest.mark.parametrize("method", [m for m in METHODS if m not in ("default", "magpie")])
def test_a_planted_gain_is_found_and_proven(method: str, tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(effect=faster_without_cache, noise=0.01), options={"method": method, "evaluations": 60})
    view = study.go()
    assert view.phase == "done"
    time = view.picks["time"]
    assert time.config.settings == {"cache": "0"}, "minify should have dropped what does nothing"
    confirmed = time.confirmed["cpu_s"]
    assert confirmed.verdict == "better"
    assert confirmed.low < 0.85 < confirmed.high
    assert confirmed.pairs >= 10
    assert time.confirmed["peak_rss_bytes"].ratio == pytest.approx(1, abs=0.01)
    assert view.claim.startswith("With toy's cache=0: CPU time 1")


def test_minify_keeps_settings_that_only_help_together(tuning: Callable[..., Tuning]) -> None:
    def effect(settings: Settings, _input: str) -> Mapping[str, float]:
        both = settings.get("cache") == "0" and settings.get("trim") == "1"
        return {"cpu_s": 0.8 if both else 1.0}

    study = tuning(World(effect=effect, noise=0.01), options={"method": "sobol", "evaluations": 40})
    assert study.go().picks["time"].config.settings == {"cache": "0", "trim": "1"}


def test_minify_does_not_lose_a_gain_that_two_settings_give_alike(tuning: Callable[..., Tuning]) -> None:
    """Either of two settings gives the gain: dropping one shows no cost, dropping both would lose the gain."""

    def effect(settings: Settings, _input: str) -> Mapping[str, float]:
        return {"cpu_s": 0.8 if settings.get("cache") == "0" or settings.get("trim") == "1" else 1.0}

    study = tuning(World(effect=effect, noise=0.01), options={"method": "sobol", "evaluations": 40})
    pick = study.go().picks["time"]
    assert pick.confirmed["cpu_s"].verdict == "better"
    assert len(pick.config.settings) == 1


@pytest.mark.parametrize("seed", range(1, 5))
def test_minify_removes_without_a_run_what_the_user_has_set_already(
    seed: int, tuning: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The removal of such a setting leaves the same variables: a block must not run the configuration twice."""

    def effect(settings: Settings, _input: str) -> Mapping[str, float]:
        return {"cpu_s": 0.8 if settings.get("trim") == "1" else 1.0}

    params = (number("cache", 1, 64, specials=[0]), ParamSpec("trim", "explained", type="bool"))
    study = tuning(World(effect=effect), allocator=toy_allocator(*params), options={**SHORT, "seed": seed})
    monkeypatch.setenv("TOY", "toy.cache=0")
    pick = study.go().picks["time"]
    assert pick.config.env == {"TOY": "toy.cache=0:toy.trim=1"}
    assert pick.confirmed["cpu_s"].ratio == pytest.approx(0.8, abs=0.01)


def test_minify_keeps_the_gain_of_a_noisy_program_and_drops_the_rest(tuning: Callable[..., Tuning]) -> None:
    """Five rounds cannot show a gain of 6% among runs that vary by 5%; the confirmation can."""

    def effect(settings: Settings, _input: str) -> Mapping[str, float]:
        return {"cpu_s": 0.94} if settings.get("cache") == "0" else {}

    kept = useless = 0
    for seed in range(1, 9):
        study = tuning(World(effect=effect, noise=0.05), options={**SHORT, "seed": seed, "objectives": ("cpu_s",)})
        study.path = study.path.with_name(f"{seed}.study")
        pick = study.go().picks.get("time")
        settings = pick.config.settings if pick else {}
        kept += settings.get("cache") == "0"
        useless += len(settings.keys() - {"cache"})
    assert kept >= 5
    assert useless <= 8, "of up to four settings in each study"


def test_without_any_effect_a_claim_is_rare(tuning: Callable[..., Tuning]) -> None:
    """One study in twenty may claim something; tests/study/test_false_claims.py counts."""
    wrong = 0
    for seed in range(1, 13):
        study = tuning(World(noise=0.02), options={**SHORT, "pairs_min": 10, "pairs_max": 10, "seed": seed})
        study.path = study.path.with_name(f"{seed}.study")
        wrong += study.go().claim != NOTHING
    assert wrong <= 2


def test_with_no_noise_and_no_effect_there_is_no_pick(tuning: Callable[..., Tuning]) -> None:
    view = tuning(World(), options=SHORT).go()
    assert (view.picks, view.claim) == ({}, NOTHING)


def test_memory_and_time_have_their_own_picks(tuning: Callable[..., Tuning]) -> None:
    def effect(settings: Settings, _input: str) -> Mapping[str, float]:
        small = settings.get("trim") == "1"
        fast = settings.get("cache") == "0"
        memory = (0.7 if small else 1.0) * (1.2 if fast else 1.0)
        return {"peak_rss_bytes": memory, "cpu_s": (1.3 if small else 1.0) * (0.6 if fast else 1.0)}

    view = tuning(World(effect=effect), options={"method": "sobol", "evaluations": 30}).go()
    assert view.picks["memory"].config.settings == {"trim": "1"}
    assert view.picks["time"].config.settings == {"cache": "0"}
    assert view.picks["balanced"].config.settings == {"trim": "1", "cache": "0"}


# settings that are refused


def test_settings_that_fail_are_infeasible_and_never_picked(tuning: Callable[..., Tuning]) -> None:
    world = World(effect=faster_without_cache, fails=lambda s: "killed by SIGSEGV" if s.get("cache") == "0" else "")
    view = tuning(world, options={**SHORT, "evaluations": 30}).go()
    bad = [e for e in view.evaluations if not e.feasible]
    assert bad
    assert all(e.config.settings.get("cache") == "0" and e.reason == "killed by SIGSEGV" for e in bad)
    assert not any(e.on_front or e.ratios for e in bad)
    assert all(p.config.settings.get("cache") != "0" for p in view.picks.values())


def test_a_changed_output_is_infeasible(tuning: Callable[..., Tuning]) -> None:
    world = World(effect=faster_without_cache, prints=lambda s, _n: "wrong" if s.get("cache") == "0" else "right")
    view = tuning(world, options={**SHORT, "evaluations": 30}).go()
    bad = [e for e in view.evaluations if e.config.settings.get("cache") == "0"]
    assert bad
    assert {e.reason for e in bad} == {"its output differs from the default's"}


def test_errors_of_the_load_are_told(tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(extra={"load_errors": 5.0, "load_operations": 10.0}), options=SHORT)
    view = study.go()
    assert any("The load of the default had" in n for n in study.notes.notes)
    assert any("The load of the default had" in w and "(50%)" in w for w in view.warnings)


def test_an_output_that_changes_by_itself_is_not_compared(tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(prints=lambda _s, n: f"at {n} o'clock"), options=SHORT)
    view = study.go()
    assert all(e.feasible for e in view.evaluations)
    assert any("output differs from run to run" in n for n in study.notes.notes)
    assert any("output differs from run to run" in w for w in view.warnings)


def test_a_default_that_fails_says_so_in_one_line(tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(fails=lambda _s: "exit status 3"), options=SHORT)
    with pytest.raises(HeapwrightError) as caught:
        study.go()
    assert caught.value.message == "the command fails by itself, with nothing changed: exit status 3"
    assert caught.value.hint == "its last words: the last words"
    assert len(study.world.made) == 3, "it is tried three times"


def test_a_default_that_fails_names_its_input(tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(fails=lambda _s: "exit status 3"), inputs=(Input("big"),), options=SHORT)
    with pytest.raises(HeapwrightError, match=r"^the command fails by itself on input 'big', with"):
        study.go()


def test_a_default_that_fails_once_is_forgiven(tuning: Callable[..., Tuning]) -> None:
    world = World()
    world.fails = lambda _s: "exit status 3" if len(world.made) == 4 else ""
    study = tuning(world, options=SHORT)
    assert study.go().phase == "done"
    assert "the default failed (exit status 3); trying again" in study.notes.notes
    assert {r.failure for r in study.runs()} == {""}


def test_an_objective_that_cannot_be_measured(tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(), options={**SHORT, "objectives": ("instructions",)})
    with pytest.raises(HeapwrightError, match=r"instructions \(instructions\) cannot be measured here") as caught:
        study.go()
    assert "--instructions=callgrind" in caught.value.hint
    assert study.runs() == []


@pytest.mark.parametrize(
    ("metric", "hint"), [("p99_ms", "[server.load_metrics]"), ("energy_j", "RAPL"), ("cgroup_peak_bytes", "cgroup")]
)
def test_a_requirement_that_cannot_be_measured(tuning: Callable[..., Tuning], metric: str, hint: str) -> None:
    """It is refused at once; the study goes on without the requirement."""
    study = tuning(World(), options={**SHORT, "requires": (f"{metric} <= 1.05x",)})
    with pytest.raises(HeapwrightError, match=rf"\({metric}\) cannot be measured here") as caught:
        study.go()
    assert hint in caught.value.hint
    assert len(study.runs()) == 1, "a new requirement removes no runs of a study"


def test_a_program_too_short_for_the_meter(tuning: Callable[..., Tuning]) -> None:
    world = World(effect=lambda _settings, _input: {"wall_s": 1e-3})
    study = tuning(world, options={**SHORT, "objectives": ("mean_heap_bytes",)})
    with pytest.raises(HeapwrightError, match=r"cannot be measured here") as caught:
        study.go()
    assert "the program ends before the meter reads it; use --meter ptrace" in caught.value.hint


def test_a_setting_the_loader_refuses_is_never_run(
    tuning: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch
) -> None:
    import msgspec

    def effective(_spec: object, _program: str, settings: Settings, _env: Mapping[str, str]) -> Settings:
        return {k: "7" if k == "trim" else v for k, v in settings.items()}

    monkeypatch.setattr("heapwright.tuning.config_cache.effective_settings", effective)
    study = tuning(World(effect=faster_without_cache), options=SHORT)
    file = study.allocator.file
    probed = msgspec.structs.replace(file, allocator=msgspec.structs.replace(file.allocator, probe="ld.so"))
    study.allocator = type(study.allocator)("toy", None, None, False, "", probed)
    view = study.go()
    refused = [e for e in view.evaluations if "trim" in e.config.settings]
    assert refused
    assert all(re.match(r"did not take effect: trim=[01]$", e.reason) for e in refused)
    assert not any("trim" in settings for _, settings, _ in study.world.made)


def test_an_allocator_with_nothing_to_set(tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(threads=1), allocator=toy_allocator(number("arenas", requires=threads_only())), options=SHORT)
    with pytest.raises(HeapwrightError, match="toy has no setting that applies to this program"):
        study.go()


def test_settings_for_threads_are_searched_where_there_are_threads(tuning: Callable[..., Tuning]) -> None:
    allocator = toy_allocator(number("arenas", requires=threads_only()))
    view = tuning(World(threads=4), allocator=allocator, options=SHORT).go()
    assert {k for e in view.evaluations for k in e.config.settings} == {"arenas"}


def test_only_the_parameters_asked_for(tuning: Callable[..., Tuning]) -> None:
    view = tuning(World(), options={**SHORT, "params": ("pad", "trim")}).go()
    assert {k for e in view.evaluations for k in e.config.settings} == {"pad", "trim"}
    study = tuning(World(), options={**SHORT, "params": ("pads",)})
    study.path = study.path.with_name("other.study")
    with pytest.raises(UsageError, match="unknown parameter 'pads'"):
        study.go()
