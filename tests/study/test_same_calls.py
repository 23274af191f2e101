"""Tests the comparison of a program's recordings, and of replays with the program, before the search."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heapwright.errors import HeapwrightError
from heapwright.interleaving.candidates import Candidate
from heapwright.interleaving.configuration import Config
from heapwright.study import agreement
from heapwright.tuning import proxy, same_calls
from heapwright.tuning.same_calls import compare_calls, judge_calls
from heapwright.workload.model import Input

from .conftest import Tuning, quick
from .fakes import World, toy_allocator

SHORT: dict[str, Any] = {"method": "sobol", "evaluations": 30, "pairs_min": 10, "pairs_max": 10, "proxy": "auto"}


def made(calls: float = 1e6, asked: float = 1e8, live: float = 4e7) -> dict[str, float]:
    """Counts of a recording."""
    return {"calls": calls, "asked_bytes": asked, "live_bytes": live}


def test_a_difference_is_the_largest_of_the_counts() -> None:
    assert compare_calls(made(), made()).share == 0.0
    found = compare_calls(made(), made(calls=1.02e6, live=5e7))
    assert (found.count, round(found.share, 3)) == ("live_bytes", 0.2)
    assert found.phrase("under exgen") == "38.1 MiB of live blocks at its peak, and 47.7 MiB under exgen (20.0% apart)"
    found = compare_calls(made(), made(calls=2e6))
    assert found.phrase("in another run") == "1 M calls of malloc and free, and 2 M in another run (50.0% apart)"


def test_a_few_blocks_do_not_count_in_a_small_program() -> None:
    small = made(calls=500, asked=200_000, live=100_000)
    assert compare_calls(small, made(calls=590, asked=260_000, live=160_000)).share == 0.0
    assert compare_calls(small, made(calls=650, asked=200_000, live=100_000)).share > 0.2


def test_the_load_of_a_server_has_no_fixed_number_of_calls() -> None:
    assert compare_calls(made(), made(calls=3e6, asked=3e8), by_size=True).share == 0.0
    assert compare_calls(made(), made(live=3e7), by_size=True).share == 0.25


def test_calls_depend_on_the_malloc_if_only_the_other_malloc_differs() -> None:
    found = judge_calls(made(), made(live=5e7), made(live=4.001e7), "exgen")
    assert found.faithful is False
    assert found.why.startswith("its calls depend on the malloc: ")
    assert found.why.endswith("two runs under its own differ less (0.0%)")


def test_a_program_varies_if_its_own_runs_differ_as_much() -> None:
    found = judge_calls(made(live=4e7), made(live=5e7), made(live=5e7), "exgen")
    assert found.faithful is False
    assert found.why.startswith("it makes other calls in every run: 38.1 MiB of live blocks at its peak, and 47.7 MiB")
    assert found.why.endswith("in another run (20.0% apart)")
    slightly = judge_calls(made(live=4e7), made(live=4.1e7), made(live=4.1e7), "exgen")
    assert slightly.faithful is False
    assert not slightly.why
    assert slightly.sentence.startswith("Replays are not exact, because it makes other calls in every run: ")


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Makes recordings have these counts: the first, under exgen, and again under its own malloc."""

    def make(first: dict[str, float], other: dict[str, float] | None, again: dict[str, float]) -> list[str]:
        asked: list[str] = []

        def record_inputs(*_: object) -> tuple[dict[str, Path], dict[str, Any]]:
            return {}, {"default": {"elapsed_s": 2.0, "events": 1000, "allocator": "glibc 2.36", "made": first}}

        def record_input(*words: Any) -> dict[str, Any]:
            assert isinstance(words[2], Input)
            name = words[4].name if words[4] else ""
            asked.append(name)
            found = other if name else again
            if found is None:
                raise HeapwrightError("it crashes")
            return {"made": found}

        monkeypatch.setattr(proxy, "record_inputs", record_inputs)
        monkeypatch.setattr(proxy, "record_input", record_input)
        monkeypatch.setattr(same_calls, "find_allocators", lambda: {"exgen": toy_allocator()})
        monkeypatch.setattr(same_calls, "take_over", lambda _s, _e, allocator, *_: (allocator, ""))
        return asked

    return make


def effect(settings: dict[str, str], _input: str) -> dict[str, float]:
    """Small thresholds save memory."""
    return {"peak_rss_bytes": 1 - 0.05 * math.log2(1024 / int(settings.get("threshold", 1024)))}


@pytest.fixture
def study(tuning: Callable[..., Tuning], replays: Callable[[World], None]) -> Tuning:
    """A study of a program whose replays would be right."""
    program = World(effect=effect, noise=0.002)
    replays(quick(World(effect=effect), program))
    return tuning(program, options=SHORT)


def test_the_same_calls_allow_replays(study: Tuning, recordings: Callable[..., list[str]]) -> None:
    asked = recordings(made(), made(calls=1.001e6), made())
    view = study.go()
    assert view.proxy is not None
    assert view.proxy.used
    assert view.proxy.checked.startswith("Recorded under toy, the program makes the same calls (within 0.10%).")
    assert asked == ["toy"], "a third recording is not needed"
    course = study.course()
    study.go()
    assert asked == ["toy"], "the study has the counts"
    assert study.course() == course


def test_other_calls_under_another_malloc_forbid_replays(study: Tuning, recordings: Callable[..., list[str]]) -> None:
    asked = recordings(made(), made(calls=1.5e6), made())
    view = study.go()
    assert view.proxy is not None
    assert not view.proxy.used
    assert "its calls depend on the malloc: " in view.proxy.why
    assert asked == ["toy", ""]
    assert not study.runs("replay")
    assert any(f"the search runs the program itself: {view.proxy.why}" == note for note in study.notes.notes)


def test_calls_within_a_time_are_not_counted(
    tuning: Callable[..., Tuning], replays: Callable[[World], None], recordings: Callable[..., list[str]]
) -> None:
    """Regression: under a faster malloc a program gets further in 0.7 s, which was taken for other calls."""
    program = World(effect=effect, noise=0.002, seconds=100.0, peak_at=0.02, extra={"wall_s": 100.0})
    replays(quick(World(effect=effect), program))
    asked = recordings(made(), made(calls=1.5e6), made())
    view = tuning(program, options={**SHORT, "budget_s": 1500.0}).go()
    assert view.prefix is not None
    assert view.proxy is not None
    assert view.proxy.used, view.proxy.why
    assert asked == ["toy"]


def test_a_small_variation_is_said(study: Tuning, recordings: Callable[..., list[str]]) -> None:
    recordings(made(), made(live=4.1e7), made(live=4.1e7))
    view = study.go()
    assert view.proxy is not None
    assert view.proxy.used
    assert any(note.startswith("Replays are not exact, because ") for note in study.notes.notes)


def test_a_malloc_on_which_the_program_fails_tells_nothing(study: Tuning, recordings: Callable[..., list[str]]) -> None:
    recordings(made(), None, made())
    view = study.go()
    assert view.proxy is not None
    assert view.proxy.used
    assert "It could not be recorded under toy" in view.proxy.checked
    assert "It could not be recorded under toy, so its calls were not compared." in study.notes.notes


def candidate(number: int, allocator: str, peak: float, runs: int = 3) -> Candidate:
    """An allocator at its defaults whose peak is `peak` times the default's."""
    config = Config(number, allocator, {}, {})
    return Candidate(config, runs=runs, logs={"peak_rss_bytes": {"default": [math.log(peak)] * runs}})


def test_replays_of_allocators_at_their_defaults_are_compared_with_the_program() -> None:
    program = {2: candidate(2, "exgen", 0.90), 3: candidate(3, "jemalloc", 1.08)}

    def told(exgen: float, jemalloc: float, noise: float = 0.0) -> str:
        replayed = {2: candidate(2, "exgen", exgen), 3: candidate(3, "jemalloc", jemalloc)}
        errors = agreement.anchor_errors(replayed, program, ["peak_rss_bytes", "cpu_s"], {"peak_rss_bytes": noise})
        return agreement.errors_sentence(errors)

    assert told(0.90, 1.07).startswith("Replays under each allocator at its defaults are within 3% of the program")
    assert "not faithful" in told(0.90, 1.03)
    assert "peak resident memory −4.6% under jemalloc" in told(0.90, 1.03)
    assert "not faithful" not in told(0.90, 1.03, noise=0.02), "the program's own runs differ by as much"
    worse = agreement.anchor_errors(
        {2: candidate(2, "google-tcmalloc", 0.8)}, {2: candidate(2, "google-tcmalloc", 1)}, ["peak_rss_bytes"], {}
    )
    assert "−20.0% under google-tcmalloc" in agreement.errors_sentence(worse)
    assert agreement.errors_sentence([]) == ""


def test_one_input_whose_calls_depend_on_the_malloc_decides_for_all(
    tuning: Callable[..., Tuning], replays: Callable[[World], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = World(effect=effect, noise=0.002)
    replays(quick(World(effect=effect), program))

    def record_inputs(*_: object) -> tuple[dict[str, Path], dict[str, Any]]:
        facts = {"elapsed_s": 2.0, "events": 1000, "allocator": "glibc 2.36", "made": made()}
        return {}, {"small": facts, "large": facts}

    def record_input(
        _workload: object, _executor: object, input_: Input, _trace: Path, allocator: Any
    ) -> dict[str, Any]:
        return {"made": made(live=6e7) if allocator and input_.name == "large" else made()}

    monkeypatch.setattr(proxy, "record_inputs", record_inputs)
    monkeypatch.setattr(proxy, "record_input", record_input)
    monkeypatch.setattr(same_calls, "find_allocators", lambda: {"exgen": toy_allocator()})
    monkeypatch.setattr(same_calls, "take_over", lambda _s, _e, allocator, *_: (allocator, ""))
    view = tuning(program, options=SHORT, inputs=(Input("small"), Input("large"))).go()
    assert view.proxy is not None
    assert not view.proxy.used
    assert view.proxy.why.startswith("its calls depend on the malloc: ")
