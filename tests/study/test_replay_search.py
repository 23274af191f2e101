"""Tests the search on replays: when it is used, when it is given up, and which settings run on the program."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heapwright.allocators.space_spec import ParamSpec
from heapwright.errors import HeapwrightError
from heapwright.interleaving.candidates import Candidate
from heapwright.interleaving.configuration import Config
from heapwright.study import agreement
from heapwright.study.agreement import check
from heapwright.study.options import FRESH_REPLAYS
from heapwright.trace.record import nothing_recorded
from heapwright.tuning import proxy, replay_search
from heapwright.workload.execute import Outcome
from heapwright.workload.model import Input, Server, Workload, WorkloadFile
from tests.trace.test_pack import parse

from ..allocators.spaces import number
from . import fakes
from .conftest import Tuning, quick
from .fakes import Settings, World, toy_allocator

SHORT: dict[str, Any] = {"method": "sobol", "evaluations": 30, "pairs_min": 10, "pairs_max": 10, "proxy": "auto"}


def effect(settings: Settings, _input: str) -> dict[str, float]:
    """Small thresholds save memory, small caches cost time."""
    threshold, cache = int(settings.get("threshold", 1024)), int(settings.get("cache", 64))
    return {"peak_rss_bytes": 1 - 0.05 * math.log2(1024 / threshold), "cpu_s": 1 + 0.02 * math.log2(64 / max(1, cache))}


def upside_down(settings: Settings, input_: str) -> dict[str, float]:
    """A replay that ranks settings in the opposite order."""
    return {key: 1 / value for key, value in effect(settings, input_).items()}


def test_a_recording_must_account_for_the_programs_heap(tmp_path: Path) -> None:
    """Tiny blocks count with the allocator's overhead for each; file pages and address space do not count as heap."""
    big = parse(tmp_path, "0 0 malloc 0 30000000\n10 0 free 0\n")

    def why(live: int, rss: float, heap: float, trace: Path = big) -> str:
        told = {"default": {"peak_live_bytes": live, "share": 1.0}}
        program = {("default", "peak_rss_bytes"): rss, ("default", "peak_heap_bytes"): heap}
        return proxy.unaccounted(told, {"default": trace}, program)

    assert why(30_000_000, 60e6, 70e6) == ""
    assert why(30_000_000, 400e6, 60e6) == "", "the rest is file pages"
    assert why(30_000_000, 60e6, 1e9) == "", "the rest is address space"
    assert why(30_000_000, 200e6, 300e6) == (
        "the recording accounts for 28.6 MiB of the 190.7 MiB that the program has at its peak"
    )
    small = parse(tmp_path, "".join(f"{i} 0 malloc {i} 1\n" for i in range(400_000)))
    assert why(400_000, 16e6, 16e6, small) == "", "32 bytes each"
    assert why(400_000, 16e6, 16e6) == "", "a trace that holds more than was said"
    assert why(400_000, 80e6, 80e6, small) != ""
    assert proxy.unaccounted({"default": {"events": 1}}, {}, {("default", "peak_rss_bytes"): 1e9}) == "", "an old study"


def test_a_program_that_another_process_starts_is_not_searched(
    tuning: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: only srun itself was measured, and `keep the default` was the claim for a program of 125 MiB."""
    told: dict[str, Any] = {"resident_program": "solver", "resident_bytes": 5 << 30}
    told |= {"measured_bytes": 9e6, "elapsed_s": 1.0}
    monkeypatch.setattr(proxy, "record_inputs", lambda *_: ({}, {"default": told}))
    study = tuning(World(effect=effect, noise=0.002), options=SHORT)
    view = study.go()
    assert view.claim.startswith("Nothing can be said about this command: solver has 5.00 GiB of resident memory, but")
    assert "as a daemon does for srun" in view.claim
    assert (view.phase, view.picks, study.runs("search")) == ("done", {}, [])
    for measured in (4e9, None):  # of the same run: memory may grow because recording slows the program
        proxy.check_measured({"default": told | {"measured_bytes": measured}})
    proxy.check_measured({"default": {}})


def test_replays_take_the_programs_pace_only_if_its_process_is_the_whole_run(tmp_path: Path) -> None:
    recorded = {"alone": {"processes": 1}, "several": {"processes": 2}, "old": {}}
    program = {(name, "wall_s"): 3.0 for name in recorded}
    plain = Workload(WorkloadFile(command=["prog"]), tmp_path, ())
    assert proxy.program_seconds(plain, recorded, program) == {"alone": 3.0}
    server = Workload(WorkloadFile(command=["prog"], server=Server(load=["load"])), tmp_path, ())
    assert proxy.program_seconds(server, recorded, program) == {}


@pytest.mark.parametrize("mallocs", [True, False])
def test_a_program_without_a_call_of_malloc_is_not_searched(
    mallocs: bool, tuning: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: studies of such programs claimed chance differences. A user's own space may not be malloc's."""

    def nothing(*_: object) -> Any:
        raise nothing_recorded("/bin/true")

    monkeypatch.setattr(proxy, "record_inputs", nothing)
    monkeypatch.setattr(replay_search, "searches_malloc", lambda _store: mallocs)
    study = tuning(World(effect=effect, noise=0.002), options=SHORT)
    view = study.go()
    assert view.phase == "done"
    assert bool(study.runs("search")) is not mallocs
    if mallocs:
        assert view.claim == ("No call of malloc was seen in true, so no malloc or setting can help: keep the default.")
        assert (view.picks, study.go().claim) == ({}, view.claim)


def test_the_search_is_on_replays_and_its_front_runs_on_the_program(
    tuning: Callable[..., Tuning], replays: Callable[[World], None]
) -> None:
    program = World(effect=effect, noise=0.002)
    stand_in = quick(World(effect=effect), program)
    replays(stand_in)
    study = tuning(program, options=SHORT)
    view = study.go()
    assert view.proxy is not None
    assert view.proxy.used
    assert not view.proxy.why
    assert {a.metric: (a.rank or 0) > 0.8 for a in view.proxy.agreement} == {"peak_rss_bytes": True, "cpu_s": True}
    assert {a.verdict for a in view.proxy.agreement} <= {"holds", "unclear"}, "five settings are few"
    assert not study.runs("search")
    assert len({r.config for r in study.runs("replay")}) >= 25
    assert len({r.config for r in study.runs("race")}) > 1
    assert len({r.config for r in study.runs("check")} | {r.config for r in study.runs("race")}) < 25
    assert view.picks["memory"].confirmed["peak_rss_bytes"].verdict == "better"
    assert [e.number for e in view.evaluations if e.replayed]
    assert not any(e.replayed for e in view.evaluations if e.on_front)


@pytest.mark.parametrize("gains", [True, False])
def test_a_prediction_is_that_of_fresh_replays(
    tuning: Callable[..., Tuning], replays: Callable[[World], None], gains: bool
) -> None:
    """Of many equal settings the luckiest replay gains several per cent. Fresh replays show that it gains nothing."""
    changes = effect if gains else lambda _settings, _input: {}
    program = World(effect=changes, noise=0.002, seconds=95.0)
    replays(quick(World(effect=changes, noise=0.03, seed="2"), program))  # with some seeds chance looks like a gain
    study = tuning(program, options={"proxy": "auto"})
    view = study.go(budget_s=900.0)
    assert not view.picks
    assert len({r.config for r in study.runs("replay")}) > 20
    assert FRESH_REPLAYS <= len(study.runs("replay pick")) <= 2 * FRESH_REPLAYS
    assert ("Replays of the recorded allocations predict peak resident memory" in view.claim) == gains
    tried = f"Nothing is proven. {len({r.config for r in study.runs('replay')}) - 1} settings were tried on replays"
    none = " of the recorded allocations; none is predicted to gain anything beyond chance. A proof needs --budget "
    assert view.claim.startswith(tried + none) == (not gains), view.claim


def test_proportional_memory_is_searched_on_replays_too(
    tuning: Callable[..., Tuning], replays: Callable[[World], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fakes.BASE, "peak_pss_bytes", 9e7)

    def shared(settings: Settings, input_: str) -> dict[str, float]:
        found = effect(settings, input_)
        return {"peak_pss_bytes": found["peak_rss_bytes"], "cpu_s": found["cpu_s"]}

    program = World(effect=shared, noise=0.002)
    replays(quick(World(effect=shared), program))
    study = tuning(program, options={**SHORT, "objectives": ("peak_pss_bytes", "cpu_s")})
    view = study.go()
    assert view.proxy is not None
    assert view.proxy.used
    assert {a.metric: (a.rank or 0) > 0.8 for a in view.proxy.agreement} == {"peak_pss_bytes": True, "cpu_s": True}
    assert {a.verdict for a in view.proxy.agreement} <= {"holds", "unclear"}, "five settings are few"
    assert view.picks["memory"].confirmed["peak_pss_bytes"].verdict == "better"


def test_address_space_is_searched_on_replays_too(
    tuning: Callable[..., Tuning], replays: Callable[[World], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for metric in ("massif_peak_bytes", "peak_heap_bytes", "peak_vm_bytes"):
        monkeypatch.setitem(fakes.BASE, metric, 9e7)

        def mapped(settings: Settings, input_: str, metric: str = metric) -> dict[str, float]:
            return {metric: effect(settings, input_)["peak_rss_bytes"]}

        program = World(effect=mapped)
        replays(quick(World(effect=mapped), program))
        study = tuning(program, options={**SHORT, "objectives": (metric,)})
        view = study.go()
        assert view.proxy is not None, metric
        assert view.proxy.used, metric
        assert not view.proxy.why, metric
        assert [(a.rank or 0) > 0.9 for a in view.proxy.agreement] == [True], metric
        assert not study.runs("search"), metric
        study.path.unlink()


def test_replays_that_tell_address_space_otherwise_are_given_up(
    tuning: Callable[..., Tuning], replays: Callable[[World], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that peaks while it is loaded, before any setting has an effect, for example."""
    monkeypatch.setitem(fakes.BASE, "massif_peak_bytes", 9e7)

    def mapped(settings: Settings, input_: str) -> dict[str, float]:
        return {"massif_peak_bytes": effect(settings, input_)["peak_rss_bytes"]}

    program = World(effect=mapped)
    replays(quick(World(effect=lambda *told: {m: 1 / v for m, v in mapped(*told).items()}), program))
    study = tuning(program, options={**SHORT, "objectives": ("massif_peak_bytes",)})
    view = study.go()
    assert view.proxy is not None
    assert "replays rank Massif peak in another order than the program" in view.proxy.why
    assert study.runs("search")


def test_a_page_of_address_space_is_nothing_to_rank() -> None:
    """Two pages of 240 MB, in any order, neither refute a replay nor confirm it."""

    def candidate(number: int, pages: int) -> Candidate:
        cost = math.log1p(pages * 4096 / 240e6)
        logs = {"massif_peak_bytes": {"default": [cost]}}
        values = {"massif_peak_bytes": {"default": [240e6 + pages * 4096]}}
        return Candidate(Config(number, "glibc", {"x": str(number)}, {}), "", 1, logs, values)

    program = {n: candidate(n, n % 3) for n in range(12)}
    replayed = {n: candidate(n, (n + 1) % 3) for n in range(12)}
    found = check(program, replayed, ["massif_peak_bytes"], {"massif_peak_bytes": 0.0})
    assert [a.verdict for a in found.by_objective] == ["flat"]
    assert found.fails == ""


def test_a_setting_whose_effect_a_replay_does_not_show_runs_on_the_program(
    tuning: Callable[..., Tuning], replays: Callable[[World], None]
) -> None:
    def purging(settings: Settings, input_: str) -> dict[str, float]:
        found = effect(settings, input_)
        return {**found, "peak_rss_bytes": found["peak_rss_bytes"] * (0.7 if "purger" in settings else 1.0)}

    program = World(effect=purging, noise=0.002)
    replayed: list[Settings] = []

    def hidden(settings: Settings, input_: str) -> dict[str, float]:
        replayed.append(settings)
        return effect(settings, input_)

    replays(quick(World(effect=hidden), program))
    purger = ParamSpec("purger", "explained", type="bool", replayable=False)
    toy = toy_allocator(number("threshold", 32, 1024), number("cache", 1, 64, specials=[0]), purger)
    study = tuning(program, options=SHORT, allocator=toy)
    view = study.go()
    assert view.proxy is not None
    assert view.proxy.used
    assert not any("purger" in settings for settings in replayed)
    assert "purger" in view.picks["memory"].config.settings


def test_a_replay_that_ranks_otherwise_is_given_up(
    tuning: Callable[..., Tuning], replays: Callable[[World], None]
) -> None:
    program = World(effect=effect, noise=0.002)
    replays(quick(World(effect=upside_down), program))
    study = tuning(program, options=SHORT)
    view = study.go()
    assert view.proxy is not None
    assert "in another order than the program" in view.proxy.why
    assert len({r.config for r in study.runs("search")}) > 15
    assert any("goes on with the program itself" in note for note in study.notes.notes)
    assert view.picks["memory"].confirmed["peak_rss_bytes"].verdict == "better"


def test_a_replay_that_is_hardly_faster_is_not_used(
    tuning: Callable[..., Tuning], replays: Callable[[World], None]
) -> None:
    program = World(effect=effect)
    slow = World(effect=effect)
    slow.seconds = 8.0
    run = slow.run

    def run_slowly(input_: Input, settings: Settings, pad: int) -> Outcome:
        program.clock += 8.0
        return run(input_, settings, pad)

    slow.run = run_slowly  # type: ignore[method-assign]
    replays(slow)
    study = tuning(program, options=SHORT)
    view = study.go()
    assert view.proxy is not None
    assert re.match(r"a replay takes 8\S* s, more than half of the program's \S+ s$", view.proxy.why)
    assert len(slow.made) <= 20
    assert study.runs("search")


def test_replays_asked_for_are_used_whatever_they_tell(
    tuning: Callable[..., Tuning], replays: Callable[[World], None]
) -> None:
    program = World(effect=effect)
    replays(quick(World(effect=upside_down), program))
    study = tuning(program, options={**SHORT, "proxy": "replay"})
    view = study.go()
    assert not study.runs("search")
    assert view.proxy is not None
    assert "fails" in {a.verdict for a in view.proxy.agreement}, "and it is said"


def test_objectives_that_replays_do_not_measure_are_searched_on_the_program(tuning: Callable[..., Tuning]) -> None:
    study = tuning(
        World(effect=effect, extra={"major_faults": 3.0}), options={**SHORT, "objectives": ("major_faults",)}
    )
    view = study.go()
    assert view.proxy is not None
    assert not view.proxy.used
    assert "does not measure" in view.proxy.why
    study.path.unlink()
    with pytest.raises(HeapwrightError, match="does not measure"):
        study.go(proxy="replay")


def test_a_program_that_cannot_be_recorded_is_searched_itself(tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(effect=effect), options=SHORT)  # `true` as its executor runs it leaves no recording
    view = study.go()
    assert view.proxy is not None
    assert not view.proxy.used
    assert "nothing was recorded" in view.proxy.why
    assert study.runs("search")


@pytest.mark.parametrize("after", [3, 15, 24, 40, 60])
def test_interrupted_it_ends_as_undisturbed(
    after: int, tuning: Callable[..., Tuning], replays: Callable[[World], None]
) -> None:
    def one() -> Tuning:
        program = World(effect=effect, noise=0.002)
        replays(quick(World(effect=effect), program))
        return tuning(program, options=SHORT)

    whole = one()
    whole.go()
    course = whole.course()
    whole.path.unlink()
    disturbed = one()
    if disturbed.go_until_interrupted(after):
        disturbed.go()
    assert disturbed.course() == course


def candidates(costs: list[float], runs: int = 1) -> dict[int, Candidate]:
    return {
        i: Candidate(Config(i, "toy", {"cache": str(i)}, {}), runs=runs, logs={"cpu_s": {"default": [c] * runs}})
        for i, c in enumerate(costs, 2)
    }


def test_the_agreement_of_replays_and_program_is_judged_by_rank() -> None:
    straight = candidates([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    few = check(straight, candidates([0.1, 0.2]), ["cpu_s"], {})
    assert (few.by_objective[0].verdict, few.fails) == ("few", "")
    same = check(straight, candidates([0.2, 0.3, 0.4, 0.5, 0.6, 0.7]), ["cpu_s"], {"cpu_s": 0.01})
    assert same.by_objective[0].verdict == "unclear", "a perfect order of six settings can be chance"
    assert same.by_objective[0].rank == pytest.approx(1.0)
    many = candidates([k / 10 for k in range(12)])
    assert check(many, many, ["cpu_s"], {"cpu_s": 0.01}).by_objective[0].verdict == "holds"
    swapped = candidates([k / 10 + (0.25 if k % 2 else -0.25) for k in range(12)])
    noisy = check(many, swapped, ["cpu_s"], {"cpu_s": 0.28}).by_objective[0]
    assert noisy.rank is not None
    assert noisy.rank < 0.9
    assert noisy.verdict == "unclear", "the correction for noise is no evidence for the replays"
    thin = check(straight, candidates([0.1, 0.2, 0.4, 0.3, 0.6, 0.5]), ["cpu_s"], {"cpu_s": 0.01})
    assert (thin.by_objective[0].verdict, thin.fails) == ("unclear", ""), "rank 0.83 of 6 settings can be chance"
    other = check(straight, candidates([0.6, 0.5, 0.4, 0.3, 0.2, 0.1]), ["cpu_s"], {"cpu_s": 0.01})
    assert other.by_objective[0].verdict == "fails"
    assert "CPU time in another order than the program (rank correlation −1.00 over 6 settings)" in other.fails
    flat = check(
        candidates([0.0, 0.01, -0.01, 0.0, 0.01]), candidates([0.001, -0.001, 0, 0, 0]), ["cpu_s"], {"cpu_s": 0.01}
    )
    assert flat.by_objective[0].verdict == "flat", "nothing but noise on either side"
    loud = check(
        candidates([0.0, 0.01, -0.01, 0.0, 0.01]), candidates([0.3, -0.3, 0.2, 0, 0.1]), ["cpu_s"], {"cpu_s": 0.01}
    )
    assert loud.by_objective[0].verdict == "fails", "a replay that tells of gains the program does not show"


def test_a_failed_configuration_is_no_pair() -> None:
    program, predicted = candidates([0.1, 0.2, 0.3, 0.4, 0.5]), candidates([0.1, 0.2, 0.3, 0.4, 0.5])
    program[2].failure = "killed by SIGSEGV"
    assert check(program, predicted, ["cpu_s"], {}).by_objective[0].verdict == "few"


def test_predictions_begin_at_what_the_program_showed() -> None:
    """At its defaults the replay saw -0.1 and the program -0.4; so a setting predicted -0.15 is at -0.45."""
    at_defaults = Config(2, "fast", {}, {})
    program = {2: Candidate(at_defaults, runs=2, logs={"cpu_s": {"default": [-0.5, -0.3]}})}
    predicted = {
        2: Candidate(at_defaults, runs=1, logs={"cpu_s": {"default": [-0.1]}}),
        3: Candidate(Config(3, "fast", {"cache": "1"}, {}), runs=1, logs={"cpu_s": {"default": [-0.15]}}),
        4: Candidate(Config(4, "other", {"cache": "1"}, {}), runs=1, logs={"cpu_s": {"default": [-0.15]}}),
    }
    found = {id_: c.cost("cpu_s") for id_, c in agreement.anchored(predicted, program).items()}
    assert found == {2: pytest.approx(-0.4), 3: pytest.approx(-0.45), 4: pytest.approx(-0.15)}
    assert check(program, predicted, ["cpu_s"], {}).by_objective[0].pairs == [], (
        "an allocator at its defaults shows nothing"
    )
