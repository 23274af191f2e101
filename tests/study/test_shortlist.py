"""Tests the shortlist: the front is computed again after every round, so lucky candidates drop out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

from heapwright.interleaving.blocks import Blocks
from heapwright.interleaving.candidates import Candidate
from heapwright.interleaving.configuration import Config
from heapwright.interleaving.records import StoredRun
from heapwright.study.policy import Aims
from heapwright.tuning.shortlist import choose_picks, measure_again
from heapwright.workload.model import Input

from .conftest import Tuning
from .fakes import Settings, World

SHORT: dict[str, Any] = {"method": "sobol", "evaluations": 24, "pairs_min": 8, "pairs_max": 8}


def effect(settings: Settings, _input: str) -> Mapping[str, float]:
    return {"cpu_s": 0.95 if settings.get("cache") == "0" else 1.0}


def lucky(world: World, settings: Settings, phase_of: Callable[[], bool]) -> None:
    """Makes one setting look far better than it is while `phase_of` says so."""
    plain = world.effect

    def shown(found: Settings, input_: str) -> Mapping[str, float]:
        if phase_of() and all(found.get(k) == v for k, v in settings.items()):
            return {"cpu_s": 0.5, "peak_rss_bytes": 0.5}
        return plain(found, input_)

    world.effect = shown


def test_a_lucky_single_run_hides_nothing(tuning: Callable[..., Tuning]) -> None:
    """Settings with trim=1 look twice as good in the search. Later they fall back, and the hidden ones come up."""
    study = tuning(World(effect=effect, noise=0.001), options=SHORT)
    searching = True
    lucky(study.world, {"trim": "1"}, lambda: searching)
    run = study.world.run

    def count(*words: Any) -> Any:
        nonlocal searching
        searching = len(study.world.made) < 6 + 29
        return run(*words)

    study.world.run = count  # type: ignore[assignment, method-assign]
    view = study.go()
    again = {r.config for r in study.runs("shortlist")} - {1}
    assert len(again) >= 2
    assert view.picks["time"].config.settings == {"cache": "0"}


def test_two_candidates_at_least_are_measured_again(tuning: Callable[..., Tuning]) -> None:
    """One candidate dominates all others."""
    study = tuning(World(effect=effect), options={**SHORT, "params": ("cache",)})
    study.go()
    assert len({r.config for r in study.runs("shortlist")} - {1}) >= 2


class OneRound:
    """Blocks that measure what `truth` says, and whose time ends with the first round."""

    typical = SimpleNamespace(seconds=1.0)

    def __init__(self, truth: Mapping[int, tuple[float, float]]) -> None:
        self.truth = truth
        self.rounds = 0
        self.budget = SimpleNamespace(over=lambda _seconds: self.rounds > 0)

    def first_block(self, *_of: object) -> int:
        return 0

    def phase(self, *_of: object) -> None:
        pass

    def measure_all(self, phase: str, block: int, groups: list[list[Config]], _inputs: object) -> list[StoredRun]:
        self.rounds += 1
        return [stored(phase, block, c.id, self.truth[c.id]) for c in groups[0]]


def stored(phase: str, block: int, config: int, found: tuple[float, float]) -> StoredRun:
    return StoredRun(phase, block, "default", config, 1.0, "", "", {"peak_rss_bytes": found[0], "cpu_s": found[1]}, {})


def test_a_single_run_does_not_exclude_candidates_that_were_measured_again() -> None:
    """Candidates 2 and 4 are alike. Candidate 2 was luckier in the search, falls back, and no time is left for 4."""
    search = {1: (1.0, 1.0), 2: (0.70, 1.0), 3: (1.0, 0.70), 4: (0.72, 1.0)}
    configs = {number: Config(number, "toy", {}, {}) for number in search}
    blocks = OneRound({1: (1.0, 1.0), 2: (0.80, 1.0), 3: (1.0, 0.70)})
    runs = [stored("search", 0, number, found) for number, found in search.items()]
    aims = Aims(("peak_rss_bytes", "cpu_s"))
    found = measure_again(runs, cast("Blocks", blocks), configs, configs[1], [Input("default")], aims)
    assert blocks.rounds == 1
    assert {c.config.id for c in found} == {2, 3}
    assert choose_picks(found, aims)["memory"].config.id == 2


def candidate(number: int, memory: float, cpu: float) -> Candidate:
    logs = {"peak_rss_bytes": {"default": [memory]}, "cpu_s": {"default": [cpu]}}
    return Candidate(Config(number, "toy", {}, {}), "", 1, logs)


def test_the_most_important_pick_comes_first() -> None:
    candidates = [candidate(2, -0.01, 0.0), candidate(3, 0.001, -0.3), candidate(4, -0.3, 0.2)]
    picks = choose_picks(candidates, Aims(("peak_rss_bytes", "cpu_s")))
    assert {name: c.config.id for name, c in picks.items()} == {"memory": 4, "time": 3, "balanced": 3}
    assert next(iter(picks)) in ("time", "balanced")


def test_the_time_pick_saves_time_though_a_count_is_named_first() -> None:
    fewer_calls, faster = candidate(2, 0.0, 0.5), candidate(3, 0.0, -0.3)
    fewer_calls.logs["mapping_calls"] = {"default": [-2.0]}
    faster.logs["mapping_calls"] = {"default": [-0.1]}
    named_first = choose_picks([fewer_calls, faster], Aims(("peak_rss_bytes", "mapping_calls", "cpu_s")))
    assert named_first["time"].config.id == 3
    alone = choose_picks([fewer_calls, faster], Aims(("peak_rss_bytes", "mapping_calls")))
    assert alone["time"].config.id == 2
