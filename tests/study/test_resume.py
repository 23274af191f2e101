"""Interrupted after every single run, a study ends as an undisturbed one; and nothing is run twice."""

from __future__ import annotations

import contextlib
import math
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from heapwright.allocators.space import Point
from heapwright.interruption import ending_signals
from heapwright.search.gp import GaussianProcess
from heapwright.study.choose import keep_choice, kept_choice
from heapwright.study.store import open_writable_study, read_study
from heapwright.workload.model import Input
from tests import needs

from .conftest import Tuning
from .fakes import Settings, World

INPUTS = (Input("a"), Input("b"), Input("held out", split="test"))


def effect(settings: Settings, input_: str) -> Mapping[str, float]:
    faster = 0.8 if settings.get("cache") == "0" else 1.0
    smaller = 0.9 if settings.get("pad") == "16" and input_ != "b" else 1.0
    return {"cpu_s": faster * (1.02 if settings.get("trim") == "1" else 1.0), "peak_rss_bytes": smaller}


def fails(settings: Settings) -> str:
    return "killed by SIGSEGV" if settings.get("cache") == "64" else ""


def world() -> World:
    return World(effect=effect, fails=fails, noise=0.01)


OPTIONS: dict[str, dict[str, Any]] = {
    "nsga2": {"method": "nsga2", "evaluations": 30},
    "sobol": {"method": "sobol", "evaluations": needs.repeats(10, 6)},  # 210 runs, or 92 of the same phases
    "grid": {"method": "grid", "evaluations": 9, "params": ("cache", "trim")},
    "nsga2 by time": {"method": "nsga2", "budget_s": 260.0, "evaluations": 0},
    "gp": {"method": "gp", "evaluations": 25},
    "cmaes": {"method": "cmaes", "evaluations": 30},
    "local": {"method": "local", "evaluations": 30},
    "magpie": {"method": "magpie", "evaluations": 20},
    "auto": {"method": "auto", "evaluations": 20},
    "auto by time": {"method": "auto", "budget_s": 200.0, "evaluations": 0},
}
# The number of runs between two interruptions. The short form has them after each run with one
# method alone.
STEPS = {"nsga2": 3, "sobol": 1, "grid": 1, "nsga2 by time": 7, "gp": 31, "cmaes": 7, "local": 3, "magpie": 5}
STEPS |= {"auto": 31, "auto by time": 31}
INTERRUPTIONS = [
    *(needs.long_unless(name.startswith("auto") or name == "sobol", name, step) for name, step in STEPS.items()),
    *((name, 37) for name, step in STEPS.items() if step < 31 and name != "sobol"),
]


@pytest.mark.parametrize(("name", "step"), INTERRUPTIONS)
@pytest.mark.few(2)
@pytest.mark.longer
def test_interrupted_it_ends_as_undisturbed(
    name: str, step: int, tuning: Callable[..., Tuning], tmp_path: Path
) -> None:
    options = {**OPTIONS[name], "pairs_min": 6, "pairs_max": 8, "seed": 3}
    undisturbed = tuning(world(), inputs=INPUTS, options=options)
    undisturbed.path = tmp_path / "undisturbed.study"
    expected = undisturbed.go()
    assert expected.picks

    interrupted = tuning(world(), inputs=INPUTS, options=options)
    times = 0
    while interrupted.go_until_interrupted(step):
        times += 1
        assert times < 2000
    assert times == (len(undisturbed.world.made) - 1) // step
    assert interrupted.course() == undisturbed.course()
    assert interrupted.world.made == undisturbed.world.made, "something was run twice, or not at all"
    found = interrupted.view()
    assert (found.claim, found.picks, found.front) == (expected.claim, expected.picks, expected.front)


def test_a_run_that_was_made_and_not_stored_is_made_again(tuning: Callable[..., Tuning]) -> None:
    """The kill falls between the run's end and its commit: that one run is lost, and only that one."""
    study = tuning(world(), options={"method": "sobol", "evaluations": 5, "pairs_min": 6, "pairs_max": 6})
    with pytest.MonkeyPatch.context() as patch:
        from heapwright.study.store import Store

        add, count = Store.add_run, 0

        def dies(self: Store, *words: Any) -> None:
            nonlocal count
            count += 1
            if count == 9:
                raise KeyboardInterrupt
            add(self, *words)

        patch.setattr(Store, "add_run", dies)
        with pytest.raises(KeyboardInterrupt):
            study.go()
    assert len(study.runs()) == 8
    study.go()
    assert len(study.world.made) == len(study.runs()) + 1
    assert study.world.made.count(study.world.made[8]) == 2


def test_a_finished_study_runs_nothing_more(tuning: Callable[..., Tuning]) -> None:
    study = tuning(world(), options={"method": "sobol", "evaluations": 5, "pairs_min": 6, "pairs_max": 6})
    first = study.go()
    made = len(study.world.made)
    again = study.go()
    assert len(study.world.made) == made
    assert study.notes.fresh == 0
    assert (again.claim, again.phase) == (first.claim, "done")


def test_an_old_choice_is_forgotten_when_a_study_goes_on(tuning: Callable[..., Tuning]) -> None:
    """Regression: after Ctrl-C after the last run, `run` started the choice of the earlier, smaller study."""
    study = tuning(world(), options={"method": "sobol", "evaluations": 5, "pairs_min": 6, "pairs_max": 6})
    view = study.go()
    with open_writable_study(study.path) as store:
        keep_choice(store, view)
        assert kept_choice(store, None) is not None
    assert study.go().phase == "done"  # tune_study alone, as if Ctrl-C came before keep_choice
    with read_study(study.path) as store:
        assert kept_choice(store, None) is None


@pytest.mark.parametrize("method", ["nsga2", "sobol", "gp", "cmaes", "local", "auto"])
def test_a_larger_budget_goes_on_from_what_is_there(method: str, tuning: Callable[..., Tuning]) -> None:
    study = tuning(world(), options={"method": method, "pairs_min": 6, "pairs_max": 6})
    small = study.go(evaluations=12)
    searched = [e.config.env for e in small.evaluations]
    large = study.go(evaluations=30)
    assert len(small.evaluations) == 12
    assert len(large.evaluations) == 30
    assert [e.config.env for e in large.evaluations][:12] == searched
    assert len(study.world.made) == len(study.runs())


def test_after_a_larger_budget_the_confirmation_is_fresh(tuning: Callable[..., Tuning]) -> None:
    """Between the two the machine became a tenth faster: a new pick must not be held against the default of then."""
    shift = 0.0

    def rare(settings: Settings, _input: str) -> Mapping[str, float]:
        both = settings.get("cache") == "0" and settings.get("trim") == "1"
        return {"cpu_s": 0.94 if both else 0.97 if settings.get("trim") == "1" else 1.0}

    study = tuning(World(effect=rare, noise=0.005, drift=lambda _n: shift), options={"method": "sobol"})
    before = study.go(evaluations=6)
    assert before.picks["time"].config.settings == {"trim": "1"}
    shift = -0.1
    after = study.go(evaluations=48)
    assert after.picks["time"].config.settings == {"cache": "0", "trim": "1"}
    confirmed = after.picks["time"].confirmed["cpu_s"]
    assert confirmed.low < 0.94 < confirmed.high
    assert confirmed.default_median == pytest.approx(math.exp(-0.1), rel=0.02)


def test_a_study_being_extended_can_be_read_at_any_moment(tuning: Callable[..., Tuning]) -> None:
    study = tuning(world(), options={"method": "sobol", "pairs_min": 6, "pairs_max": 6, "seed": 2})
    study.go(evaluations=6)
    study.options["evaluations"] = 24
    while study.go_until_interrupted(11):
        assert study.view().phase != "done"
        assert study.view().claim == "Nothing is proven yet: the study has not been confirmed."
    assert study.view().phase == "done"


def test_an_interruption_that_a_library_swallows_ends_the_study_before_the_next_run(
    tuning: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when Ctrl-C comes while the search method imports a library that catches everything."""
    propose = GaussianProcess.ask

    def ask(strategy: GaussianProcess) -> list[Point]:
        with contextlib.suppress(BaseException):
            signal.raise_signal(signal.SIGINT)
        return propose(strategy)

    study = tuning(world(), options={"method": "gp", "evaluations": 10, "pairs_min": 6, "pairs_max": 6})
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patched, ending_signals():
            patched.setattr(GaussianProcess, "ask", ask)
            with pytest.raises(KeyboardInterrupt):
                study.go()
    finally:
        signal.signal(signal.SIGINT, before)
    assert study.runs("calibrate")
    assert not study.runs("search")
    assert study.go().picks
