"""Settings beside those of the allocators: screened alone, searched together, and kept when a study resumes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from heapwright.allocators.memory_manager import MemoryManager
from heapwright.allocators.space_spec import AllocatorSpec, ParamSpec, SpaceFile
from heapwright.errors import HeapwrightError
from heapwright.measure.memory_parts import Breakdown, MemoryParts
from heapwright.study.extra_space_text import with_tried
from heapwright.study.load import view_of
from heapwright.study.local_environment import all_spaces, local_environment
from heapwright.study.store import open_writable_study, read_study

from ..allocators.spaces import number
from .conftest import Tuning, quick
from .fakes import Settings, World
from .test_allocator_screening import allocator

SHORT: dict[str, Any] = {"method": "nsga2", "evaluations": 40, "pairs_min": 8, "pairs_max": 8}
SMALL = ("1", "2", "4")


def extra_space(name: str = "gc") -> SpaceFile:
    """A space whose settings go into TOY too: one that matters, one that does nothing, and one that always fails."""
    params = [
        ParamSpec(
            "frugal",
            "explained",
            type="enum",
            values=["yes", "no"],
            hazard="It may end the program.",
            changes_calls=True,
        ),
        number("idle", 1, 64),
        ParamSpec("wrong", "explained", type="enum", values=["x"]),
    ]
    return SpaceFile(AllocatorSpec(name, env="TOY", pair="toy.{key}={value}", join=":"), [], params)


def effect(settings: Settings, _input: str) -> dict[str, float]:
    """'frugal' saves memory, and more together with the small cache of 'lean', which alone does nothing."""
    if settings.get("frugal") != "yes":
        return {"peak_rss_bytes": 0.99} if settings.get("is") == "lean" else {}
    small = settings.get("is") == "lean" and settings.get("cache", "64") in SMALL
    return {"peak_rss_bytes": 0.5 if small else 0.8}


def world() -> World:
    return World(effect=effect, fails=lambda s: "exit status 1" if "wrong" in s else "", noise=0.0005)


def both(tuning: Callable[..., Tuning]) -> Tuning:
    options = {**SHORT, "objectives": ("peak_rss_bytes",)}
    return tuning(world(), allocator=allocator("plain", "size"), others=(allocator("lean", "cache"),),
                  added=(extra_space(),), options=options)  # fmt: skip


def test_both_halves_are_searched_together(tuning: Callable[..., Tuning]) -> None:
    study = both(tuning)
    view = study.go()
    pick = view.picks["memory"]
    assert pick.config.allocator == "lean"
    cache = pick.config.settings.pop("cache")
    assert cache in SMALL
    assert pick.config.settings == {"gc.frugal": "yes"}
    assert pick.config.env == {"TOY": f"toy.is=lean:toy.cache={cache}:toy.frugal=yes"}
    assert "50.0% lower" in pick.claim
    assert view.explain(pick.config, "gc.frugal").startswith("explained")
    assert any(text.startswith("gc.frugal=yes (memory") for text in view.hazards)


def test_a_setting_is_explained_as_this_version_has_it(tuning: Callable[..., Tuning]) -> None:
    """Arrow 26 takes mimalloc if nothing is set, Arrow 17 took jemalloc: the later text stood for both."""
    study = both(tuning)
    study.go()
    with open_writable_study(study.path) as store:
        runtimes = store.meta.runtimes
        assert runtimes is not None
        frugal = runtimes["gc"]["space"]["param"][0]
        new = {**frugal, "explain": "as it is", "requires": {**frugal["requires"], "since": "18"}}
        old = {**frugal, "explain": "as it was", "requires": {**frugal["requires"], "before": "18"}}
        for version, text in (("17", "as it was"), ("26", "as it is")):
            space = {**runtimes["gc"]["space"], "param": [new, old]}
            store.update(runtimes={"gc": {**runtimes["gc"], "space": space, "version": version}})
            view = view_of(store)
            assert view.explain(view.picks["memory"].config, "gc.frugal").startswith(text)


def test_settings_without_effect_alone_are_not_searched(tuning: Callable[..., Tuning]) -> None:
    study = both(tuning)
    view = study.go()
    tried = {r.config for r in study.runs("runtimes")}
    alone = {tuple(e.config.settings.items()) for e in view.evaluations if e.config.id in tried}
    assert {(("gc.idle", level),) for level in ("1", "8", "64")} < alone
    after = {r.config for r in study.runs("search")}
    keys = {key for e in view.evaluations if e.config.id in after for key in e.config.settings}
    assert "gc.frugal" in keys
    assert not {"gc.idle", "gc.wrong"} & keys
    assert any(text.startswith("gc.idle was not searched further: alone, no objective") for text in view.warnings)
    assert any(text.startswith("gc.wrong was not searched: each run failed (exit status 1") for text in view.warnings)


def test_every_setting_is_tried_before_a_second_level(tuning: Callable[..., Tuning]) -> None:
    study = both(tuning)
    view = study.go(budget_s=64.0, proxy="none")
    of = {e.config.id: next(iter(e.config.settings), "") for e in view.evaluations}
    first = [of.get(run.config, "") for run in study.runs("runtimes") if run.block == 0]
    assert {"gc.frugal", "gc.idle", "gc.wrong"} <= set(first)
    assert view.picks["memory"].config.settings["gc.frugal"] == "yes"


@pytest.mark.parametrize(
    ("heap", "other", "tried"),
    [(10.0, 90.0, True), (90.0, 10.0, False), (None, None, True)],
)
def test_a_short_study_tries_the_settings_of_what_holds_the_memory(
    tuning: Callable[..., Tuning],
    monkeypatch: pytest.MonkeyPatch,
    heap: float | None,
    other: float | None,
    tried: bool,
) -> None:
    """If a runtime holds it, allocators may be left without a run; otherwise the runtime's settings may."""
    manager = MemoryManager("openjdk", "all", "OpenJDK manages the heap.")
    monkeypatch.setattr("heapwright.tuning.reachable_allocators.find_memory_manager", lambda _program: manager)
    study = both(tuning)
    if heap is not None and other is not None:
        parts = MemoryParts(program=0.0, files=0.0, stacks=0.0, heap=heap, other=other)
        study.world.parts = Breakdown(parts, parts, 1, "", 0.0)
    view = study.go(budget_s=26.0, proxy="none")
    assert ("gc.frugal" in view.picks["memory"].config.settings) == tried
    made = len(study.world.made)
    study.go()
    assert len(study.world.made) == made


@pytest.mark.parametrize(
    ("evaluations", "said"),
    [
        (1, "The space gc is added: the budget left no room to try its settings (frugal, idle, wrong)."),
        (40, "The space gc is added: its settings are searched too (frugal, idle, wrong)."),
    ],
)
def test_the_sentence_says_what_was_tried(tuning: Callable[..., Tuning], evaluations: int, said: str) -> None:
    study = both(tuning)
    study.options["evaluations"] = evaluations
    if evaluations == 1:  # the first of two allocators is all that 12 runs reach
        study.options |= {"budget_s": 12.0, "proxy": "none"}
    view = study.go()
    assert view.runtimes["gc"]["sentence"] == said
    some = with_tried(view.runtimes, {"gc.frugal"})["gc"]["sentence"]
    assert evaluations == 1 or some == f"{said} Not tried in this study: idle, wrong."


def test_the_screening_takes_half_of_the_evaluations_at_most(tuning: Callable[..., Tuning]) -> None:
    """It reaches some settings; the search tries the others, and a larger budget goes on where this one stopped."""
    file = SpaceFile(AllocatorSpec("gc", env="TOY", pair="toy.{key}={value}", join=":"), [],
                     [number(f"n{i}", 1, 64) for i in range(12)])  # fmt: skip
    options = {**SHORT, "evaluations": 8, "search_only": True, "proxy": "none"}
    study = tuning(world(), added=(file,), options=options)
    view = study.go()
    screened = {r.config for r in study.runs("runtimes")} - {1}
    assert len(screened) == 4
    assert len(view.evaluations) <= 8
    assert not any("was not searched" in text for text in view.warnings), "only settings that were tried are judged"
    before = len(study.world.made)
    study.go(evaluations=16)
    screened_then = {r.config for r in study.runs("runtimes")} - {1}
    assert len(screened_then) == 8
    assert screened < screened_then
    assert len(study.world.made) - before < 24


def test_a_study_resumes_with_the_same_settings(tuning: Callable[..., Tuning]) -> None:
    study = both(tuning)
    assert study.go_until_interrupted(30)
    study.go()
    course, made = study.course(), len(study.world.made)
    study.go()
    assert study.course() == course
    assert len(study.world.made) == made
    study.added = (extra_space("other"),)
    with pytest.raises(HeapwrightError, match="searches another parameter space"):
        study.go()


def test_one_allocator_with_a_space_beside_it(tuning: Callable[..., Tuning]) -> None:
    study = tuning(world(), added=(extra_space(),), options={**SHORT, "objectives": ("peak_rss_bytes",)})
    pick = study.go().picks["memory"]
    assert pick.config.settings == {"gc.frugal": "yes"}
    assert pick.config.allocator == "toy"
    with read_study(study.path) as store:
        env, _ = local_environment(pick.config.env, pick.config.settings, "toy", all_spaces(store.meta), {"TOY": "a"})
    assert env == {"TOY": "a:toy.frugal=yes"}


def test_a_study_of_an_older_version_goes_on_without(tuning: Callable[..., Tuning]) -> None:
    study = tuning(world(), options=dict(SHORT))
    assert study.go_until_interrupted(20)
    with open_writable_study(study.path) as store:
        store.update(seeks_runtimes=False, runtimes=None)
    assert study.go().runtimes == {}


def test_replays_stand_in_only_under_the_setting_of_their_recording(
    tuning: Callable[..., Tuning], replays: Callable[[World], None]
) -> None:
    study = both(tuning)
    replays(quick(World(effect=effect), study.world))
    view = study.go(proxy="auto", budget_s=400.0)
    by_id = {e.config.id: e.config.settings for e in view.evaluations}
    with read_study(study.path) as store:
        plain = [store.config_by_id(run.config).settings for run in store.runs("replay")]
        under = [store.config_by_id(run.config).settings for run in store.runs("replay beside")]
    assert plain
    assert not any("gc.frugal" in settings for settings in plain)
    assert under
    assert all(settings.get("gc.frugal") == "yes" for settings in under)
    measured = [by_id[run.config] for run in study.runs("search") if run.config in by_id]
    assert any({"gc.frugal", "cache"} <= settings.keys() for settings in measured), "their best runs on the program"
    assert view.picks["memory"].config.settings["gc.frugal"] == "yes"
    assert "50.0% lower" in view.picks["memory"].claim


def test_a_value_that_the_user_has_set_already_is_the_default(
    tuning: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = SpaceFile(
        AllocatorSpec("gc", env="TOY"), [], [ParamSpec("all", "e", type="enum", values=["toy.frugal=yes"])]
    )
    study = tuning(world(), added=(file,), options={**SHORT, "evaluations": 5})
    monkeypatch.setenv("TOY", "toy.frugal=yes")
    study.go()
    assert study.runs("runtimes") == []
