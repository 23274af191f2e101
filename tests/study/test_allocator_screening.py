"""Several allocators in one study: each at its defaults first, then all of them and their settings together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from heapwright.allocators.registry import Allocator
from heapwright.allocators.space_spec import AllocatorSpec, SpaceFile
from heapwright.study.load import load_view
from heapwright.tuning import allocator_screening
from heapwright.tuning.takeover_check import take_over

from ..allocators.spaces import number
from .conftest import Tuning
from .fakes import Settings, World

SHORT: dict[str, Any] = {"method": "nsga2", "evaluations": 40, "pairs_min": 8, "pairs_max": 8}


def allocator(name: str, key: str) -> Allocator:
    """An allocator that puts its name into TOY, and has one setting."""
    spec = AllocatorSpec(name, env="TOY", pair="toy.{key}={value}", join=":", needs={"TOY": f"toy.is={name}"})
    params = [number(key, 1, 64)]
    return Allocator(name, None, None, False, "", SpaceFile(spec, [], params), spec.needs)


def effect(settings: Settings, _input: str) -> dict[str, float]:
    """'lean' saves memory, and more with its cache small; 'fast' takes less time and more memory."""
    who = settings.get("is", "")
    if who == "lean":
        return {"peak_rss_bytes": 0.6 if settings.get("cache") == "1" else 0.8}
    return {"cpu_s": 0.5, "peak_rss_bytes": 1.5} if who == "fast" else {}


def three(tuning: Callable[..., Tuning], world: World) -> Tuning:
    others = (allocator("lean", "cache"), allocator("broken", "cache"))
    return tuning(world, allocator=allocator("fast", "size"), others=others, options=dict(SHORT))


def world() -> World:
    return World(effect=effect, fails=lambda s: "killed by SIGSEGV" if s.get("is") == "broken" else "")


def test_every_allocator_is_measured_at_its_defaults_first(tuning: Callable[..., Tuning]) -> None:
    study = three(tuning, world())
    view = study.go()
    assert view.default.allocator == "default"
    first = [r for r in study.runs("allocators") if r.config != 1]
    by_id = {e.config.id: e.config for e in view.evaluations}
    assert {by_id[r.config].allocator for r in first if r.config in by_id} == {"fast", "lean", "broken"}
    assert all(not by_id[r.config].settings for r in first if r.config in by_id)


def test_the_picks_are_of_different_allocators(tuning: Callable[..., Tuning]) -> None:
    view = three(tuning, world()).go()
    assert view.picks["time"].config.allocator == "fast"
    assert view.picks["time"].config.settings == {}, "its setting does nothing and is dropped"
    assert view.picks["memory"].config.allocator == "lean"
    assert view.picks["memory"].config.settings == {"cache": "1"}
    assert view.picks["memory"].config.env == {"TOY": "toy.is=lean:toy.cache=1"}
    assert view.explain(view.picks["memory"].config, "cache").startswith("explained")


def test_an_allocator_that_fails_is_reported_and_not_searched(tuning: Callable[..., Tuning]) -> None:
    study = three(tuning, world())
    view = study.go()
    assert "broken is not searched: killed by SIGSEGV" in study.notes.notes
    assert any("broken was not searched: killed by SIGSEGV" in text for text in view.warnings)
    searched = {e.config.allocator for e in view.evaluations if e.config.settings}
    assert searched == {"fast", "lean"}


def test_one_line_lists_allocators_without_time(tuning: Callable[..., Tuning]) -> None:
    names = ("lean", "third", "fourth", "fifth", "sixth")
    study = tuning(
        World(effect=effect, seconds=1.0),
        allocator=allocator("fast", "size"),
        others=tuple(allocator(name, "cache") for name in names),
        options={"budget_s": 40.0, "proxy": "none"},
    )
    view = study.go()
    why = "not searched: there was no time for a measurement"
    (note,) = (note for note in study.notes.notes if "not searched" in note)
    assert note.endswith(f" are {why}")
    assert note.count(", ") >= 1
    assert " and sixth are " in note
    (warning,) = (text for text in view.warnings if "not searched" in text)
    assert warning == f"{note.replace(' are ', ' were ')}."


def test_tests_longer_than_runs_leave_time_to_measure(
    tuning: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the loader's answers took all time of the stage, which is planned in runs of a short program."""
    study = tuning(
        World(effect=effect, seconds=0.03),
        allocator=allocator("fast", "size"),
        others=(allocator("lean", "cache"),),
        options={"budget_s": 30.0, "proxy": "none"},
    )

    def slow(*args: Any) -> Any:
        study.world.clock += 0.2
        return take_over(*args)

    monkeypatch.setattr(allocator_screening, "take_over", slow)
    study.go()
    assert not [note for note in study.notes.notes if "not searched" in note]


def test_the_best_at_its_defaults_stands_first(tuning: Callable[..., Tuning]) -> None:
    study = three(tuning, world())
    study.go()
    assert "allocators to search, best at its defaults first: fast, lean" in study.notes.notes


@pytest.mark.long
def test_interrupted_anywhere_it_ends_the_same(tuning: Callable[..., Tuning]) -> None:
    whole = three(tuning, world())
    whole.go()
    expected = whole.course()
    whole.path.unlink()
    broken_up = three(tuning, world())
    while broken_up.go_until_interrupted(17):
        pass
    assert broken_up.course() == expected
    assert load_view(broken_up.path).picks.keys() == {"memory", "time", "balanced"}
