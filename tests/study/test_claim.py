"""Tests that claims state only proven results, the choice of the headline pick, and judging."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from heapwright.cli.common import write_json
from heapwright.errors import HeapwrightError
from heapwright.interleaving.configuration import DEFAULT_ID, Config
from heapwright.interleaving.records import StoredRun
from heapwright.interleaving.stats import Verdict, pairs_needed
from heapwright.report.study_json import tune_json
from heapwright.study.choose import chosen_config, chosen_pick, config_of, kept_choice
from heapwright.study.claim import (
    NOTHING,
    configuration_name,
    effect,
    is_proven,
    losses,
    pick_claim,
    recommended_pick,
    study_claim,
)
from heapwright.study.commands import measure_command
from heapwright.study.confirmation import judge_pairs
from heapwright.study.final_picks import final_picks
from heapwright.study.options import Options
from heapwright.study.policy import Aims
from heapwright.study.store import read_study, study_errors
from heapwright.study.view import Confirmation, Evaluation, Pick, PickName
from heapwright.trace.recordings import Recordings

from .conftest import Tuning
from .fakes import World

OBJECTIVES = ["peak_rss_bytes", "cpu_s"]
CONFIG = Config(2, "glibc", {"mxfast": "0"}, {"GLIBC_TUNABLES": "glibc.malloc.mxfast=0"})


def confirmed(metric: str, ratio: float, verdict: Verdict, p: float | None = 0.004) -> Confirmation:
    return Confirmation(metric, ratio, ratio - 0.012, ratio + 0.013, p, 12, verdict, 1e8, 1e8 * ratio)


def pick(name: PickName, memory: Confirmation, cpu: Confirmation) -> Pick:
    found = {c.metric: c for c in (memory, cpu)}
    searched = Evaluation(1, CONFIG, 1, {}, {}, True, "", True)
    return Pick(name, CONFIG, searched, [], found, pick_claim(found, OBJECTIVES, 1, 0.005))


def memory(ratio: float, verdict: Verdict) -> Confirmation:
    return confirmed("peak_rss_bytes", ratio, verdict)


def cpu(ratio: float, verdict: Verdict) -> Confirmation:
    return confirmed("cpu_s", ratio, verdict)


def test_effects_in_words() -> None:
    assert effect(cpu(0.828, "better")) == "CPU time 17.2% lower [15.9, 18.4]"
    assert effect(cpu(1.1, "worse")) == "CPU time 10.0% higher [8.8, 11.3]"
    assert effect(memory(1.001, "same")) == "peak resident memory unchanged (+0.1% [−1.1, +1.4])"
    assert effect(memory(0.98, "unproven")) == "peak resident memory not proven to change (−2.0% [−3.2, −0.7])"


def test_a_claim_names_gains_first_and_then_losses() -> None:
    found = {"peak_rss_bytes": memory(1.05, "worse"), "cpu_s": cpu(0.828, "better")}
    claim = pick_claim(found, OBJECTIVES, 1, 0.005)
    assert claim == (
        "CPU time 17.2% lower [15.9, 18.4]; peak resident memory 5.0% higher [3.8, 6.3];"
        " 95% intervals from 12 fresh interleaved pairs, Holm-adjusted p = 0.004, margin ±0.5%."
    )


def test_a_claim_without_a_gain_says_so_first() -> None:
    found = {"peak_rss_bytes": memory(1.05, "worse"), "cpu_s": cpu(0.99, "unproven")}
    assert pick_claim(found, OBJECTIVES, 3, 0.005).startswith("No proven improvement: peak resident memory 5.0% higher")
    assert "pairs on 3 inputs" in pick_claim(found, OBJECTIVES, 3, 0.005)
    assert pick_claim({}, OBJECTIVES, 1, 0.005) == "Not confirmed."


def test_only_objectives_prove_anything() -> None:
    bystander = pick("time", memory(1.0, "same"), cpu(0.8, "better"))
    assert is_proven(bystander, OBJECTIVES)
    assert not is_proven(bystander, ["peak_rss_bytes"])


def test_losses_are_those_of_a_pick_without_a_gain() -> None:
    assert [c.metric for c in losses(pick("memory", memory(0.997, "same"), cpu(1.4, "worse")), OBJECTIVES)] == ["cpu_s"]
    assert losses(pick("memory", memory(0.9, "better"), cpu(1.4, "worse")), OBJECTIVES) == []
    assert losses(pick("memory", memory(0.9, "unproven"), cpu(1.4, "unproven")), OBJECTIVES) == []


def test_a_pick_that_only_loses_is_none(tuning: Callable[..., Tuning]) -> None:
    """Fresh runs decide, not the results of the search."""
    study = tuning(World(effect=faster), options=SHORT)
    before = study.go()
    (config,) = {p.config.id for p in before.picks.values()}
    with contextlib.closing(sqlite3.connect(study.path)) as db:
        slower = "json_set(metrics, '$.cpu_s', json_extract(metrics, '$.cpu_s') * 3)"
        db.execute(f"UPDATE run SET metrics = {slower} WHERE phase = 'confirm' AND config = ?", (config,))
        db.commit()
    view = study.view()
    assert view.picks == {}
    assert view.claim == NOTHING
    [text] = [text for text in view.warnings if " proved no gain, and a loss: CPU time" in text]
    assert all(name in text for name in before.picks)


@pytest.mark.parametrize("kept", ['"all"', '{"": 77}', '{"": "1"}'])
def test_a_spoilt_choice_is_one_line(tuning: Callable[..., Tuning], kept: str) -> None:
    study = tuning(World(effect=faster), options=SHORT)
    study.go()
    with contextlib.closing(sqlite3.connect(study.path)) as db:
        db.execute("INSERT OR REPLACE INTO meta VALUES ('choice', ?)", (kept,))
        db.commit()
    with read_study(study.path) as store, pytest.raises(HeapwrightError), study_errors(study.path):
        kept_choice(store, None)


def test_the_study_speaks_for_the_gain_that_most_outweighs_its_loss() -> None:
    costly = pick("time", memory(1.10, "worse"), cpu(0.80, "better"))
    even = pick("balanced", memory(1.0, "same"), cpu(0.85, "better"))
    cheap = pick("time", memory(1.01, "worse"), cpu(0.80, "better"))
    unproven = pick("memory", memory(0.5, "unproven"), cpu(0.5, "unproven"))
    for others, best in ((costly, "balanced"), (cheap, "time"), (unproven, "balanced")):
        found, _ = final_picks({others.name: others, "balanced": even}, {}, Aims(tuple(OBJECTIVES)))
        spoken = recommended_pick(found, OBJECTIVES)
        assert spoken is not None
        assert spoken.name == best


def test_a_gain_at_a_steep_price_is_shipped_by_name_only() -> None:
    steep = pick("memory", memory(0.972, "better"), cpu(1.657, "worse"))
    found, gone = final_picks({"memory": steep}, {}, Aims(tuple(OBJECTIVES)))
    assert (list(found), gone) == (["memory"], [])
    assert recommended_pick(found, OBJECTIVES) is None
    assert study_claim(found, OBJECTIVES, confirmed=True) == (
        f"Keep the default, not {configuration_name(steep.config)}: CPU time +65.7% costs too much for peak resident"
        " memory −2.8%. 'heapwright apply STUDY --pick memory' prints it all the same."
    )


def test_the_claim_of_a_study_names_its_best_pick() -> None:
    good = pick("time", memory(1.0, "same"), cpu(0.8, "better"))
    assert study_claim({"time": good}, OBJECTIVES, confirmed=True).startswith(
        "With glibc's mxfast=0: CPU time 20.0% lower"
    )
    small = pick("memory", memory(0.9, "better"), cpu(1.0, "same"))
    assert "mxfast=0: peak resident memory 10.0% lower" in study_claim({"memory": small}, OBJECTIVES, confirmed=True)
    assert study_claim({}, OBJECTIVES, confirmed=True) == NOTHING
    assert study_claim({"time": good}, OBJECTIVES, confirmed=False).startswith("Nothing is proven yet")


# judging stored runs


def run(block: int, config: int, failure: str = "", **metrics: float) -> StoredRun:
    return StoredRun("confirm", block, "default", config, 1.0, failure, "d", dict(metrics), {})


CONFIGS = {1: Config(1, "toy", {}, {}), 2: CONFIG}


def test_judging_pairs_by_block() -> None:
    """The machine doubles its speed with each block; within a block the pick always takes 0.9 of the default."""
    runs = [run(b, c, cpu_s=2.0**b * (0.9 if c == 2 else 1.0), wall_s=1.0) for b in range(10) for c in (2, 1)]
    found = judge_pairs(runs, CONFIGS, 1, Options(objectives=("cpu_s",)))[2]
    assert list(found) == ["cpu_s", "wall_s"]
    assert found["cpu_s"].ratio == pytest.approx(0.9)
    assert found["cpu_s"].high == pytest.approx(0.9)
    assert (found["cpu_s"].verdict, found["cpu_s"].pairs) == ("better", 10)
    assert (found["wall_s"].verdict, found["wall_s"].p) == ("same", None)


def test_a_pick_that_failed_once_has_no_confirmation() -> None:
    runs = [run(b, c, cpu_s=0.5 if c == 2 else 1.0) for b in range(10) for c in (1, 2)]
    runs[7] = run(3, 2, failure="killed by SIGSEGV")
    assert judge_pairs(runs, CONFIGS, 1, Options(objectives=("cpu_s",))) == {}


def test_a_metric_that_is_mostly_zero_has_no_interval(tmp_path: Path) -> None:
    """One pair with a ratio, nine without: its interval would be from 0 to infinity, and JSON has no infinity."""
    faults = {(0, 1): 2.0, (0, 2): 3.0}
    runs = [run(b, c, cpu_s=1.0, major_faults=faults.get((b, c), 4.0 * (c == 1))) for b in range(10) for c in (1, 2)]
    found = judge_pairs(runs, CONFIGS, 1, Options(objectives=("cpu_s",)))[2]
    assert list(found) == ["cpu_s"]
    write_json(str(tmp_path / "j"), {"pairs": [vars(c) for c in found.values()]})


def test_how_many_pairs_can_prove_anything() -> None:
    assert pairs_needed(1, 1) == 6  # 2/64
    assert pairs_needed(1, 2) == 7
    assert pairs_needed(1, 6) == 8
    assert pairs_needed(4, 6) == 2


def test_too_few_pairs_are_made_more_or_said(tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(effect=faster), options={**SHORT, "pairs_min": 6, "pairs_max": 40})
    assert study.go().picks["time"].confirmed["cpu_s"].verdict == "better"
    assert {r.block for r in study.runs("confirm")} == set(range(7))
    study = tuning(World(effect=faster), options={**SHORT, "pairs_min": 6, "pairs_max": 6})
    study.path = study.path.with_name("short.study")
    assert study.go().claim == NOTHING
    said = "6 pairs can prove nothing here: it takes at least 7 (--pairs)"
    assert said in study.notes.notes
    assert f"{said}." in study.view().warnings


# the shipped pick


def faster(settings: dict[str, str], _input: str) -> dict[str, float]:
    return {"cpu_s": 0.8 if settings.get("cache") == "0" else 1.0}


SHORT = {"method": "sobol", "evaluations": 12, "pairs_min": 6, "pairs_max": 10}


def test_a_finished_study_ships_its_recommended_pick(tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(effect=faster), options=SHORT)
    view = study.go()
    assert chosen_config(view, None).settings == {"cache": "0"}
    assert chosen_pick(view, "time") is view.picks["time"]
    found = json.loads(json.dumps(tune_json(view), allow_nan=False))
    assert found["picks"]["time"]["confirmed"]["cpu_s"]["verdict"] == "better"
    assert found["picks"]["time"]["env"] == {"TOY": "toy.cache=0"}
    assert found["evaluations"] == len(view.evaluations)
    assert found["baseline"]["p99_ms"] is None, "null where a value cannot be had, as in measure --json"


def test_each_look_with_more_runs_doubles_p(tuning: Callable[..., Tuning]) -> None:
    def noisy() -> Tuning:
        return tuning(World(effect=faster, noise=0.12), options=SHORT)

    study = noisy()
    first = study.go(pairs_max=6).picks["time"].confirmed["cpu_s"]
    assert study.go().picks["time"].confirmed["cpu_s"].p == first.p, "a second look at the same runs is none"
    again = study.go(pairs_max=20).picks["time"]
    assert again.confirmed["cpu_s"].pairs > first.pairs
    assert "(with 1 earlier look at results)" in again.claim
    study.path.unlink()
    once = noisy().go(pairs_max=20).picks["time"].confirmed["cpu_s"]
    assert once.p is not None
    assert again.confirmed["cpu_s"].p == pytest.approx(2 * once.p)


def test_without_a_gain_the_default_is_shipped(tuning: Callable[..., Tuning]) -> None:
    view = tuning(World(), options=SHORT).go()
    assert chosen_pick(view, None) is None
    assert chosen_config(view, None).is_default
    with pytest.raises(HeapwrightError, match="has no 'time' pick") as caught:
        chosen_pick(view, "time")
    assert caught.value.hint == "nothing beat the default"


def test_the_default_of_recordings_ships_nothing(tuning: Callable[..., Tuning]) -> None:
    """Replays preload the recorded malloc as their default; the program has it anyway."""
    view = tuning(World(), options=SHORT).go()
    preloads = replace(view.default, env={"LD_PRELOAD": "/usr/lib/libc.so.6"})
    of_program = replace(view, default=preloads)
    of_recordings = replace(of_program, recordings=Recordings({}))
    assert config_of(of_program, None) == preloads
    assert config_of(of_recordings, None).env == {}
    other = replace(preloads, id=DEFAULT_ID + 1)
    picked = replace(pick("memory", memory(0.8, "better"), cpu(1, "same")), config=other)
    assert config_of(of_recordings, picked) == picked.config


def test_an_unfinished_study_ships_nothing(tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(effect=faster), options=SHORT)
    study.go_until_interrupted(20)
    with pytest.raises(HeapwrightError, match=r"is not finished \(it is in phase 'search'\)") as caught:
        chosen_pick(study.view(), None)
    assert "give its tune command again" in caught.value.hint


def test_the_line_that_measures_a_configuration_by_hand(tuning: Callable[..., Tuning]) -> None:
    view = replace(tuning(World(), options=SHORT).go(), command=["./a b", "$x"], workload={"cwd": "/d"})
    assert measure_command(CONFIG, view) == (
        "env GLIBC_TUNABLES=glibc.malloc.mxfast=0 heapwright measure -n 10 -- './a b' '$x'"
    )
    plain = replace(view, command=["true"])
    assert measure_command(CONFIGS[1], plain, 3) == "heapwright measure -n 3 -- true"
    fed = replace(plain, workload={"cwd": "/d", "stdin": "/my data/in", "success": [0, 1]})
    assert measure_command(CONFIGS[1], fed, 3) == (
        "heapwright measure -n 3 --success 0,1 --stdin '/my data/in' -- true"
    )
    inside = replace(plain, workload={"container": {"image": "app:1", "args": ["--memory", "1g"]}})
    assert measure_command(CONFIG, inside, 3) == (
        "heapwright measure --container app:1 '--container-args=--memory 1g' --env GLIBC_TUNABLES=glibc.malloc.mxfast=0"
        " -n 3 -- true"
    )


def test_the_line_of_a_workload_file_names_it_and_its_test_input(tuning: Callable[..., Tuning]) -> None:
    """Settings apply to the command alone: `env` before it would also set them for set-up and a server's load."""
    small = {"name": "small", "split": "train", "args": ["small"]}
    large = {"name": "my large", "split": "test", "args": ["-l", "a b"]}
    view = replace(
        tuning(World(), options=SHORT).go(),
        workload={"cwd": "/my data", "env": {"OMP_NUM_THREADS": "2"}, "input": [small, large]},
        workload_file="/my data/w.toml",
    )
    assert measure_command(CONFIG, view) == (
        "heapwright measure --workload '/my data/w.toml' --input 'my large' -n 10"
        " --env GLIBC_TUNABLES=glibc.malloc.mxfast=0"
    )
    only = replace(view, workload={"input": [small]})
    assert measure_command(CONFIGS[1], only) == ("heapwright measure --workload '/my data/w.toml' --input small -n 10")
    none = replace(view, workload={"input": [], "server": {"load": ["x"]}})
    assert measure_command(CONFIGS[1], none) == "heapwright measure --workload '/my data/w.toml' -n 10"


def test_a_study_that_does_not_know_its_workload_file_has_no_line(tuning: Callable[..., Tuning]) -> None:
    view = tuning(World(), options=SHORT).go()
    for key in ("input", "env", "setup", "cleanup", "server"):
        assert measure_command(CONFIG, replace(view, workload={"cwd": "/d", key: ["x"]})) == ""


def test_a_claim_names_what_grows_beside_its_objectives() -> None:
    found = {
        "mean_rss_bytes": Confirmation("mean_rss_bytes", 0.9, 0.88, 0.92, 0.001, 10, "better", 1.0, 0.9),
        "p99_ms": Confirmation("p99_ms", 4.0, 3.0, 5.0, None, 10, "unproven", 1.0, 4.0),
        "wall_s": Confirmation("wall_s", 2.0, 1.9, 2.1, None, 10, "unproven", 1.0, 2.0),
        "time_per_op_s": Confirmation("time_per_op_s", 2.0, 1.9, 2.1, None, 10, "unproven", 1.0, 2.0),
        "cpu_s": Confirmation("cpu_s", 1.1, 0.9, 1.3, None, 10, "unproven", 1.0, 1.1),
    }
    claim = pick_claim(found, ["mean_rss_bytes"], 1, 0.005)
    assert claim.endswith(
        " Not an objective, but higher: 99th percentile latency 300.0% higher [200.0, 400.0];"
        " time per operation 100.0% higher [90.0, 110.0]."
    )
    assert "dearer" not in pick_claim(found, list(found), 1, 0.005)
    assert "dearer" not in pick_claim(found, ["mean_rss_bytes"], 1, 0.005, replays=True)


def test_a_search_that_only_replays_had_time_for_is_one() -> None:
    """Runs may become slower after the replays, so that none of the program is left in the budget."""
    needs = {"searched": 0.0, "run_s": 1.2, "pairs": 7.0, "seconds": 17.0}
    none = study_claim({}, ["cpu_s"], True, needs)
    assert none == (
        "Nothing is proven: the time budget left no time to search (one run takes about 1.20 s)."
        " Give a larger --budget."
    )
    recordings = study_claim({}, ["cpu_s"], True, {**needs, "enough_s": 60.0}, replays=True)
    assert recordings == (
        "Nothing is predicted: the time budget left no time to search (one replay takes about 1.20 s)."
        " A prediction needs --budget 1m."
    )
    some = study_claim({}, ["cpu_s"], True, {**needs, "unmeasured": 6.0})
    assert some == (
        "Nothing is proven: the time budget left no time to run the program with the best of 6 settings tried on"
        " replays (one run takes about 1.20 s). Give a larger --budget."
    )
