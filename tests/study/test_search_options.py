"""Tests the search of a study: the method chosen by auto, warm starts, the default alone, quality of the front."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from heapwright.errors import UsageError
from heapwright.interleaving.candidates import Candidate, gather
from heapwright.interleaving.records import StoredRun
from heapwright.report.study_json import tune_json
from heapwright.report.terminal import how_searched, print_summary, quality_text
from heapwright.search.methods import make_strategy
from heapwright.search.protocol import Setup, Strategy
from heapwright.study import options as opt
from heapwright.study.claim import NOTHING, SEARCH_ONLY
from heapwright.tuning import search_loop, strategy
from heapwright.tuning.search_loop import Search
from heapwright.tuning.warm_start import good_settings

from ..report.conftest import without_pictures
from .conftest import Tuning
from .fakes import Settings, World

SHORT = {"allocator": "toy", "method": "sobol", "evaluations": 12, "pairs_min": 6, "pairs_max": 6}

PLANE = {**SHORT, "method": "grid", "evaluations": 40, "params": ("pad", "cache")}


def effect(settings: Settings, _input: str) -> Mapping[str, float]:
    """Only two settings together have an effect."""
    both = settings.get("cache") == "16" and settings.get("pad") == "32"
    return {"cpu_s": 0.8 if both else 1.0, "peak_rss_bytes": 1.05 if both else 1.0}


def test_auto_says_what_it_chose_and_keeps_to_it(tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(noise=0.01), options={**SHORT, "method": "auto"})
    view = study.go()
    assert (view.method, view.options["method"]) == ("gp", "auto")
    assert (
        view.method_why
        == "a budget of 12 evaluations is small for 4 settings: a surrogate model learns most from each evaluation"
    )
    assert f"search method: gp ({view.method_why})" in study.notes.notes
    assert how_searched(view) == f"by gp ({view.method_why})"
    assert tune_json(view)["method"] == "gp"
    larger = study.go(evaluations=14)
    assert larger.method_why == view.method_why
    assert len(study.world.made) == len(study.runs())


@pytest.mark.parametrize(
    ("options", "method"),
    [
        ({"evaluations": 12, "params": ("trim",)}, "grid"),
        ({"evaluations": 0, "budget_s": 2000.0}, "nsga2"),
        ({"evaluations": 0, "budget_s": 60.0}, "gp"),
        ({"evaluations": 700, "objectives": ("cpu_s",)}, "cmaes"),
    ],
)
def test_auto_looks_at_budget_settings_and_objectives(
    options: dict[str, object], method: str, tuning: Callable[..., Tuning]
) -> None:
    """With a time budget, the number of evaluations follows from the seconds of a run, here one."""
    study = tuning(World(noise=0.01), options={**SHORT, **options, "method": "auto"})
    study.world.interrupt_after = 60
    with contextlib.suppress(KeyboardInterrupt):
        study.go()
    assert study.view().method == method


def test_the_best_runs_so_far_have_a_minus_sign(tuning: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch) -> None:
    study = tuning(World(effect=effect), options={**PLANE, "objectives": ("cpu_s",)})
    best: list[str] = []
    monkeypatch.setattr("heapwright.report.progress.SilentProgress.best", lambda _self, text: best.append(text))
    study.go()
    assert best[-1] == "best single runs: CPU time −20.0%"


def test_the_default_method_searches_nothing(tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(effect=effect), options={**SHORT, "method": "default"})
    view = study.go()
    assert (view.evaluations, view.claim, view.quality) == ([], NOTHING, None)
    assert {r.phase for r in study.runs()} == {"calibrate"}


def test_a_search_gathers_only_the_runs_of_new_blocks(
    tuning: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the work of a search would grow with the square of its evaluations."""
    lengths: list[int] = []
    searches: list[Search] = []

    class Watched(Search):
        def __init__(self, *args: Any) -> None:
            searches.append(self)
            super().__init__(*args)

    def counted(runs: Sequence[StoredRun], *more: Any) -> dict[int, Candidate]:
        lengths.append(len(runs))
        return gather(runs, *more)

    monkeypatch.setattr(search_loop, "gather", counted)
    monkeypatch.setattr(strategy, "Search", Watched)
    study = tuning(World(effect=effect, noise=0.01), options={**PLANE, "search_only": True})
    study.go()
    (search,) = searches
    assert len(search.known) > 3 * opt.BLOCK
    assert search.known == gather(search.runs, search.config_cache.configs, search.config_cache.default.id)
    assert max(lengths) <= (opt.BLOCK + 1) * len(search.inputs)
    assert sum(lengths) == len(search.runs)


def test_a_method_that_takes_another_course_keeps_to_the_budget(
    tuning: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an interruption it proposes other points. Those from before count, and a warning tells of them."""
    begun: list[int] = []

    def unsteady(name: str, setup: Setup) -> Strategy:
        begun.append(setup.seed)
        return make_strategy(name, replace(setup, seed=len(begun)))

    monkeypatch.setattr(strategy, "make_strategy", unsteady)
    study = tuning(World(noise=0.01), options={**SHORT, "method": "random", "search_only": True})
    while not (study.path.exists() and study.runs("search")):
        assert study.go_until_interrupted(10)
    before = {r.config for r in study.runs("search")} - {1}
    begun[:] = [1]
    view = study.go()
    assert len(view.evaluations) == SHORT["evaluations"]
    assert before <= {e.config.id for e in view.evaluations}
    (warning,) = (text for text in view.warnings if "before an interruption and did not propose" in text)
    what = "1 configuration" if len(before) == 1 else f"{len(before)} configurations"
    assert warning.startswith(f"The search method proposed {what} before ")
    assert study.notes.notes.count(warning) == 1


def test_an_objective_that_is_zero_is_told(tuning: Callable[..., Tuning]) -> None:
    view = tuning(
        World(extra={"major_faults": 0.0}), options={**SHORT, "objectives": ("major_faults",), "search_only": True}
    ).go()
    assert "major faults: 0 with nothing changed, so no setting can make it less." in view.warnings


def test_the_picks_of_a_search_alone_are_told(tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(effect=effect, noise=0.001), options={**PLANE, "search_only": True})
    view = study.go()
    assert view.claim == SEARCH_ONLY
    out = io.StringIO()
    print_summary(view, Console(width=100, file=out))
    told = " ".join(out.getvalue().split())
    assert "pick, toy's pad=32, cache=16: In the search: " in told
    assert "95% interval" not in told
    page = without_pictures(view)
    assert "Finished after the search: nothing is proven" in page
    assert "Picks of the search" in page
    for untrue in ("on fresh runs</", "no time to test", "measures each pick again", "No setting could be removed"):
        assert untrue not in page


def test_a_warm_start_tries_what_was_good_elsewhere_first(tuning: Callable[..., Tuning], tmp_path: Path) -> None:
    first = tuning(World(effect=effect), options=PLANE)
    first.path = tmp_path / "first.study"
    found = first.go().picks["time"].config.settings
    assert found == {"pad": "32", "cache": "16"}

    second = tuning(World(effect=effect), options={**SHORT, "warm_start": (str(first.path),)})
    view = second.go()
    assert view.evaluations[0].config.settings == found
    assert view.picks["time"].config.settings == found
    assert view.warm >= 1
    assert "warm-started with" in how_searched(view)
    first.path.unlink()  # the settings that were read are stored
    made = len(second.world.made)
    second.go()
    assert len(second.world.made) == made


@pytest.mark.parametrize("method", ["gp", "nsga2", "cmaes", "local", "sobol", "grid"])
def test_every_method_takes_a_warm_start(method: str, tuning: Callable[..., Tuning], tmp_path: Path) -> None:
    first = tuning(World(effect=effect, noise=0.01), options=SHORT)
    first.path = tmp_path / "first.study"
    good = good_settings([first.path], ["toy"], 5) if first.go().front else []
    study = tuning(World(effect=effect, noise=0.01), options={**SHORT, "method": method, "evaluations": 20})
    view = study.go(warm_start=(str(first.path),))
    begun = [{"allocator": "toy", **e.config.settings} for e in view.evaluations[: len(good)]]
    assert good
    assert sorted(map(str, begun)) == sorted(map(str, good))  # within a block the order is drawn


def test_another_allocators_study_is_no_warm_start(tuning: Callable[..., Tuning], tmp_path: Path) -> None:
    first = tuning(World(), options=SHORT)
    first.path = tmp_path / "first.study"
    first.go()
    with pytest.raises(UsageError, match="it searched toy, not jemalloc"):
        good_settings([first.path], ["jemalloc"], 5)


def test_the_front_in_words(tuning: Callable[..., Tuning]) -> None:
    view = tuning(World(effect=effect), options=PLANE).go()
    assert view.quality is not None
    assert view.quality.size == 2
    assert quality_text(view) == (
        "2 members, spanning 5.0% of peak resident memory, 20.0% of CPU time; each 1% less peak resident memory"
        " costs 4% more CPU time; hypervolume 0.0200, reference point 1.1 times the default (the default alone has"
        " 0.01); from repeated runs"
    )
    found = tune_json(view)["front_quality"]
    assert found["hypervolume"] == pytest.approx(0.1 * 0.1 + 0.05 * 0.2)
    assert found["slope"] == pytest.approx(-4)


def test_a_search_alone_keeps_its_raw_picks(tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(effect=effect, noise=0.01), options={**SHORT, "search_only": True})
    view = study.go()
    assert {r.phase for r in study.runs()} == {"calibrate", "search"}
    assert (view.claim, view.phase) == (SEARCH_ONLY, "done")
    best = min((e for e in view.evaluations if e.feasible), key=lambda e: e.ratios["cpu_s"])
    pick = view.picks["time"]
    assert (pick.config, pick.dropped, pick.confirmed) == (best.config, [], {})
    assert not [w for w in view.warnings if "no time" in w]
    made = len(study.world.made)
    assert study.go().picks["time"].config == best.config
    assert len(study.world.made) == made, "a finished search runs nothing again"


def test_without_minify_every_setting_of_a_pick_is_confirmed(tuning: Callable[..., Tuning]) -> None:
    def cached(settings: Settings, _input: str) -> Mapping[str, float]:
        return {"cpu_s": 0.8 if settings.get("cache") else 1.0}

    study = tuning(World(effect=cached, noise=0.001), options={**SHORT, "minify": False})
    view = study.go()
    assert "confirm" in {r.phase for r in study.runs()}
    assert not [r for r in study.runs() if r.phase.startswith("minify")]
    for pick in view.picks.values():
        assert pick.config.settings == pick.searched.config.settings
    assert not [w for w in view.warnings if "no time" in w]


def test_without_minify_a_study_with_a_time_limit_ends(tuning: Callable[..., Tuning]) -> None:
    def cached(settings: Settings, _input: str) -> Mapping[str, float]:
        return {"cpu_s": 0.8 if settings.get("cache") else 1.0}

    options = {"evaluations": 0, "budget_s": 400.0, "method": "sobol", "minify": False}
    study = tuning(World(effect=cached, noise=0.001), options=options)
    assert study.go().phase == "done"
    assert "confirm" in {r.phase for r in study.runs()}


def test_the_hypervolume_is_made_of_repeated_runs(tuning: Callable[..., Tuning]) -> None:
    """Nothing has an effect: single runs look like a gain, repeated runs do not."""
    options = {**SHORT, "evaluations": 40}
    single = tuning(World(noise=0.05), options={**options, "search_only": True}).go().quality
    assert single is not None
    assert not single.repeated
    second = tuning(World(noise=0.05), options=options)
    second.path = second.path.with_name("second.study")
    view = second.go()
    assert view.quality is not None
    assert view.quality.repeated
    assert tune_json(view)["front_quality"]["repeated"] is True
    assert view.quality.hypervolume - 0.01 < (single.hypervolume - 0.01) / 2
    assert "so optimistic" in quality_text(tuning(World(), options={**options, "search_only": True}).go())
