"""Tests confirmations of metrics with few values, and of programs with two speeds."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping

from heapwright.interleaving.blocks import Blocks
from heapwright.interleaving.candidates import gather
from heapwright.interleaving.configuration import Config
from heapwright.interleaving.records import StoredRun
from heapwright.report.progress import SilentProgress
from heapwright.study.confirmation import judge_pairs
from heapwright.study.options import Options
from heapwright.tuning.confirm import Rows, confirm, settled
from heapwright.workload.model import Input

from ..interleaving.fakes import FakeProgram, FakeRunner, MemoryStore, outcome
from .conftest import Tuning
from .fakes import Settings, World

CONFIGS = {1: Config(1, "glibc", {}, {}), 2: Config(2, "glibc", {"k": "1"}, {"K": "1"})}


def run(block: int, config: int, **metrics: float) -> StoredRun:
    return StoredRun("confirm", block, "default", config, 0.1, "", "", dict(metrics), {})


def test_a_count_that_is_mostly_zero_has_no_ratio() -> None:
    """Major faults happened in one pair only; in the others one side was zero."""
    runs = []
    for block in range(10):
        faults = 3.0 if block == 4 else 0.0
        runs.append(run(block, 1, peak_rss_bytes=100.0 + block, cpu_s=1.0, major_faults=faults))
        runs.append(run(block, 2, peak_rss_bytes=90.0 + block, cpu_s=1.0, major_faults=faults + 1.0))
    (found,) = judge_pairs(runs, CONFIGS, 1, Options()).values()
    assert set(found) == {"peak_rss_bytes", "cpu_s"}
    assert found["peak_rss_bytes"].verdict == "better"
    assert found["cpu_s"].verdict == "same"
    json.dumps([c.high for c in found.values()], allow_nan=False)


def test_a_default_of_zero_has_no_ratio_although_some_pairs_are_equal() -> None:
    """The setting takes huge pages in four of six pairs; the two pairs without any are not all there is to say."""
    runs = []
    for block in range(6):
        runs.append(run(block, 1, cpu_s=1.0, huge_bytes=0.0, major_faults=0.0))
        runs.append(run(block, 2, cpu_s=1.0, huge_bytes=0.0 if block in (1, 4) else 2.0e7, major_faults=0.0))
    (found,) = judge_pairs(runs, CONFIGS, 1, Options()).values()
    assert "huge_bytes" not in found
    assert found["major_faults"].verdict == "same", "it is 0 everywhere"
    (candidate,) = gather(runs, CONFIGS, 1).values()
    assert candidate.cost("huge_bytes") is None
    assert candidate.costs(["cpu_s"]) == (0.0,)


def test_few_large_values_are_above_though_most_are_below() -> None:
    """Regression: 24 pairs with 1,000 faults more and 26 with none were shown to be below the default."""
    runs = []
    for block in range(50):
        runs.append(run(block, 1, major_faults=3.0))
        runs.append(run(block, 2, major_faults=1000.0 if block % 2 and block < 48 else 0.0))
    (candidate,) = gather(runs, CONFIGS, 1).values()
    assert candidate.is_above("major_faults", 1.0) is True


# programs with two speeds


def pairs(slow: int, n: int = 40) -> list[StoredRun]:
    """The pick is 10% faster, but the first runs of the default take 60% longer."""
    runs = []
    for block in range(n):
        wobble = 1 + 0.001 * (block * 7 % 10)
        runs.append(run(block, 1, peak_rss_bytes=1e8, cpu_s=wobble * (1.6 if block % 5 < slow / 8 else 1.0)))
        runs.append(run(block, 2, peak_rss_bytes=1e8, cpu_s=0.9))
    return runs


def test_a_confirmation_says_that_runs_fall_into_groups() -> None:
    found = judge_pairs(pairs(slow=16), CONFIGS, 1, Options())[2]
    assert (
        "runs of the default fall into two groups: 24 of 40 around 1.00 s, 16 of 40 around 1.61 s"
        in found["cpu_s"].note
    )
    assert found["peak_rss_bytes"].note == ""
    assert judge_pairs(pairs(slow=0), CONFIGS, 1, Options())[2]["cpu_s"].note == ""


def test_a_configuration_that_fails_in_the_first_block_is_not_run_again() -> None:
    program = FakeProgram(lambda who, _: outcome(failure="killed by SIGSEGV") if who in "bc" else outcome())
    default, *others = (Config(id_, "toy", {}, {"WHO": who}) for id_, who in enumerate("dabc", 1))
    store = MemoryStore()
    made = Blocks(store, FakeRunner(program), 7, SilentProgress())
    rows = Rows(tuple(others[:2]), tuple(others[2:]), 6)
    assert confirm(default, rows, made, [Input("default")], Options(pairs_min=6, pairs_max=8)) >= 6
    who = [name for name, _, _ in program.made]
    assert (who.count("b"), who.count("c")) == (1, 1), "a crash costs time, and its pick has no result any more"
    assert who.count("d") == who.count("a") >= 6
    assert sorted(r.config for r in store.runs.values() if r.failure) == [3, 4]


def test_regular_pairs_settle_and_irregular_ones_go_on() -> None:
    options = Options()
    regular = [-0.1 + 0.001 * (i * 7 % 10) for i in range(15)]
    assert settled({"": regular}, options)
    assert not settled({"": [*regular[:13], -0.11, -0.14]}, options)  # the interval is narrow, but a pair is far off
    assert not settled({"": sorted(regular)}, options)  # the pairs drift
    assert settled({"": [x / 20 for x in sorted(regular)]}, options)  # by less than the margin
    assert not settled({"": [10 * x + 0.9 for x in regular]}, options)  # the interval is wide
    assert settled({"a": regular, "b": regular}, options)
    assert not settled({"a": regular, "b": sorted(regular)}, options)


def test_a_program_with_two_speeds_is_measured_to_the_end_and_its_report_says_so(
    tuning: Callable[..., Tuning],
) -> None:
    """Every fifth run of the default takes 60% longer; the interval would be narrow enough after 15 pairs."""
    count = itertools.count()

    def effect(settings: Settings, _input: str) -> Mapping[str, float]:
        if settings:
            return {"cpu_s": 0.4} if settings.get("cache") == "0" else {}
        return {"cpu_s": 1.6 if next(count) % 5 == 0 else 1.0}

    options = {"method": "sobol", "evaluations": 12, "objectives": ("cpu_s",)}
    view = tuning(World(effect=effect, noise=0.002), options=options).go()
    confirmed = view.picks["time"].confirmed["cpu_s"]
    assert (confirmed.pairs, confirmed.verdict) == (40, "better")
    (warning,) = (w for w in view.warnings if "groups" in w)
    assert warning.startswith("CPU time of the time pick: runs of the default fall into two groups: 32 of 40 around")


def test_a_steady_program_settles(tuning: Callable[..., Tuning]) -> None:
    options = {"method": "sobol", "evaluations": 12, "objectives": ("cpu_s",)}
    effect = {"0": {"cpu_s": 0.4}}
    view = tuning(World(effect=lambda s, _: effect.get(s.get("cache", ""), {}), noise=0.002), options=options).go()
    assert view.picks["time"].confirmed["cpu_s"].pairs == Options().pairs_min
    assert not any("groups" in w for w in view.warnings)
