"""Studies of prefixes, where the budget holds too few whole runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from heapwright.interleaving.configuration import Config
from heapwright.interleaving.records import StoredRun
from heapwright.measure.prefix import Prefix
from heapwright.study.commands import measure_command
from heapwright.study.prefix import ChosenPrefix, WholeRun, chosen_prefix, find_prefix, prefix_sentence, with_objection
from heapwright.study.store import read_study
from heapwright.study.view import Confirmation, Evaluation, Pick

from .conftest import Tuning
from .fakes import World

MEMORY = ("peak_rss_bytes",)


def whole_run(peak_at: float, wall_s: float = 100.0, heap_at: float | None = None) -> StoredRun:
    """A run whose resident memory and heap reach their peaks after given times, in seconds."""
    peaks = {peak_at, heap_at or peak_at}
    at = sorted({0.0, *peaks, *(peak + 1e-9 for peak in peaks), wall_s})
    series = {
        "t": at,
        "rss": [1e8 if t >= peak_at else 1e6 for t in at],
        "heap": [1e8 if t >= (heap_at or peak_at) else 1e6 for t in at],
        "vm": [1e8] * len(at),
    }
    metrics: dict[str, float | None] = {"wall_s": wall_s, "peak_rss_bytes": 1e8}
    return StoredRun("calibrate", 0, "default", 1, wall_s, "", "", metrics, {}, series)


@pytest.mark.parametrize(("peak_at", "length"), [(0.1, 0.6), (1.0, 1.5), (20.0, 25.0), (39.99, 50.0)])
def test_a_prefix_is_longer_than_the_peak_takes(peak_at: float, length: float) -> None:
    assert find_prefix([whole_run(peak_at)], MEMORY) == (Prefix(seconds=length), MEMORY)


def test_a_late_peak_has_no_prefix() -> None:
    assert find_prefix([whole_run(41.0)], MEMORY) is None


def test_the_latest_input_and_objective_count() -> None:
    runs = [whole_run(2.0), whole_run(8.0)]
    assert find_prefix(runs, MEMORY) == (Prefix(seconds=10.0), MEMORY)
    both = ("peak_rss_bytes", "peak_heap_bytes")
    assert find_prefix([whole_run(2.0, heap_at=16.0)], both) == (Prefix(seconds=20.0), both)


def test_a_prefix_has_memory_as_its_only_objective() -> None:
    assert find_prefix([whole_run(1.0)], ("peak_rss_bytes", "cpu_s")) == (Prefix(seconds=1.5), MEMORY)
    assert find_prefix([whole_run(1.0)], ("cpu_s", "mean_rss_bytes")) is None


def test_without_memory_over_time_there_is_none() -> None:
    run = StoredRun("calibrate", 0, "default", 1, 9.0, "", "", {"wall_s": 9.0}, {}, None)
    assert find_prefix([run], MEMORY) is None


@pytest.mark.parametrize(
    ("whole", "objection"),
    [
        (WholeRun(2, "", {"peak_rss_bytes": 0.9, "cpu_s": 1.2}), ""),
        (WholeRun(2, "", {"peak_rss_bytes": 0.9, "cpu_s": 1.6}), "a whole run under it is slower (CPU time +60.0%)"),
        (WholeRun(2, "", {"peak_rss_bytes": 0.995}), "in a whole run under it the gain does not show"),
        (WholeRun(2, "", {"peak_rss_bytes": 0.96}), "in a whole run under it the gain does not show"),
        (WholeRun(2, "exit status 1", {}), "a whole run under it failed: exit status 1"),
    ],
)
def test_a_whole_run_may_reject_the_gain_of_a_prefix(whole: WholeRun, objection: str) -> None:
    found = whole.objection({"peak_rss_bytes": 0.9})
    assert found.startswith(objection)
    assert bool(found) == bool(objection)
    sentence = prefix_sentence(ChosenPrefix(Prefix(seconds=2), 95.0, whole), MEMORY, "toy at its defaults")
    assert "whole run with toy at its defaults" in sentence


def test_without_a_whole_run_nothing_is_recommended() -> None:
    """A slower program has allocated less when a prefix ends."""
    config = Config(2, "toy", {"cache": "0"}, {})
    gain = Confirmation("peak_rss_bytes", 0.86, 0.85, 0.87, 0.004, 15, "better", 1e8, 8.6e7)
    pick = Pick("memory", config, Evaluation(1, config, 1, {}, {}, True, "", True), [], {gain.metric: gain}, "")
    [found] = with_objection({"memory": pick}, ChosenPrefix(Prefix(seconds=2), 95.0)).values()
    assert found.objection.startswith("there was no time for a whole run")
    whole = WholeRun(2, "", {"peak_rss_bytes": 0.87, "cpu_s": 1.0})
    [found] = with_objection({"memory": pick}, ChosenPrefix(Prefix(seconds=2), 95.0, whole)).values()
    assert found.objection == ""
    other = msgspec.structs.replace(whole, config=3)  # the row that had the name before the confirmation
    [found] = with_objection({"memory": pick}, ChosenPrefix(Prefix(seconds=2), 95.0, other)).values()
    assert found.objection.startswith("no whole run was made under it")


# a whole study


def gains(settings: Mapping[str, str], _input: str) -> dict[str, float]:
    return {"peak_rss_bytes": 0.8} if settings.get("trim") == "1" else {}


def long_program(**more: Any) -> World:
    """A program of 100 seconds that reaches its peak in the third."""
    return World(**{"effect": gains, "seconds": 100.0, "peak_at": 0.02, "extra": {"wall_s": 100.0}, **more})


OPTIONS = {"budget_s": 600.0, "proxy": "none"}


def test_a_long_program_with_an_early_peak_gets_a_proof(tuning: Callable[..., Tuning]) -> None:
    """One whole run at the beginning, one at the end, prefixes in between, all within the budget."""
    world = long_program()
    study = tuning(world, options=dict(OPTIONS))
    view = study.go()
    assert world.clock < 620
    assert view.prefix == Prefix(seconds=2.5)
    assert view.objectives == ["peak_rss_bytes"]
    assert "peak resident memory 20.0% lower" in view.claim
    assert "pairs of the first 2.5 s of a run" in view.claim
    assert "One whole run with toy's trim=1, no proof by itself: peak resident memory −20.0%" in view.objectives_why
    assert any("then one whole run is made" in note for note in study.notes.notes)
    assert "CPU time cannot be compared so, because a faster run has done more by then" in view.objectives_why
    by_hand = measure_command(view.default, dataclasses.replace(view, workload_file="w.toml"))
    assert "--prefix 2.5s" in by_hand
    assert not any("output differs" in text for text in view.warnings)
    assert next(stage for stage in view.stages if stage.name == "whole run").wall_s == pytest.approx(100.0)


def test_the_same_command_measures_nothing_again(tuning: Callable[..., Tuning]) -> None:
    world = long_program()
    study = tuning(world, options=dict(OPTIONS))
    first = study.go()
    made = len(world.made)
    for budget_s in (600.0, 500.0):  # `tune --budget` names both options
        assert study.go(budget_s=budget_s, evaluations=0).claim == first.claim
    assert len(world.made) == made


@pytest.mark.long
def test_an_interrupted_study_of_prefixes_goes_on(tuning: Callable[..., Tuning]) -> None:
    world = long_program()
    study = tuning(world, options=dict(OPTIONS))
    while study.go_until_interrupted(7):
        pass
    view = study.view()
    assert view.phase == "done"
    assert "20.0% lower" in view.claim


def test_a_gain_of_the_prefix_alone_is_no_advice(tuning: Callable[..., Tuning]) -> None:
    """The setting fails to gain in the last whole run: `apply` does not ship it by itself."""
    world = long_program()

    def early_only(settings: Mapping[str, str], input_: str) -> dict[str, float]:
        with read_study(study.path) as store:
            confirmed = bool(store.runs("confirm"))
            fresh = store.meta.phase == "confirm" and confirmed and study.notes.phases[-1][0] == "whole run"
        return {} if fresh else gains(settings, input_)

    world.effect = early_only
    study = tuning(world, options=dict(OPTIONS))
    view = study.go()
    assert view.claim.startswith("Keep the default, not ")
    assert ": in a whole run under it the gain does not show" in view.claim


@pytest.mark.long
def test_a_larger_budget_begins_a_new_study(tuning: Callable[..., Tuning]) -> None:
    """Prefixes and whole runs do not mix."""
    study = tuning(long_program(), options=dict(OPTIONS))
    study.go()
    view = study.go(budget_s=36_000.0)
    assert view.prefix is None
    assert view.objectives == ["peak_rss_bytes", "cpu_s"]
    aside = study.path.with_name("s.1.study")
    with read_study(aside) as store:
        assert chosen_prefix(store) is not None


def test_a_late_peak_is_not_cut_off(tuning: Callable[..., Tuning]) -> None:
    view = tuning(long_program(peak_at=0.9), options=dict(OPTIONS)).go()
    assert view.prefix is None
    assert view.claim.startswith("Nothing is proven")


def test_objectives_of_the_user_stay(tuning: Callable[..., Tuning], tmp_path: Path) -> None:
    """A user who asks for time does not get memory as the objective."""
    assert tmp_path
    view = tuning(long_program(), options={**OPTIONS, "objectives": ("cpu_s",)}).go()
    assert view.prefix is None
    assert view.objectives == ["cpu_s"]
