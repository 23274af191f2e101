"""Tests predictions for commands of several processes, of which a study replays one."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from heapwright.interleaving.candidates import Program, gather
from heapwright.interleaving.configuration import Config
from heapwright.interleaving.phases import Phase
from heapwright.interleaving.records import StoredRun
from heapwright.measure.memory_parts import Breakdown, MemoryParts
from heapwright.measure.meter import MeterOptions
from heapwright.study.replayed_share import values_of_one_process
from heapwright.tuning import proxy
from heapwright.workload.execute import Executor
from heapwright.workload.model import from_command

MIB = 1 << 20
RANK = "/opt/mpi"
PROGRAM: Program = {("default", "peak_pss_bytes"): 100.0 * MIB, ("default", "cpu_s"): 4.0, ("default", "wall_s"): 2.0}
FOUR = {"default": {"similar": 4, "alike_share": 0.25, "executable": RANK}}


def run(config: int, peak: float, cpu_s: float, wall_s: float = 1.0, phase: Phase = Phase.REPLAY) -> StoredRun:
    """A run of one process."""
    metrics: dict[str, float | None] = {"peak_pss_bytes": peak * MIB, "cpu_s": cpu_s, "wall_s": wall_s}
    return StoredRun(phase, 0, "default", config, 0.1, "", "", metrics, {})


def calibrated(largest: float, path: str = RANK) -> list[StoredRun]:
    """A run of the default whose largest process has this share of the memory."""
    parts = MemoryParts(10.0 * MIB, 0.0, 0.0, 90.0 * MIB, 0.0)
    extra: dict[str, Any] = {"parts": msgspec.to_builtins(Breakdown(parts, parts, 5, path, largest * 100 * MIB))}
    return [StoredRun(Phase.CALIBRATE, 0, "default", 1, 0.1, "", "", {}, extra)]


def test_a_prediction_counts_every_process_that_the_replay_stands_for() -> None:
    """Regression: replays of one of four ranks predicted +1.6% and −8.1%, where +5.4% and −36.4% were true."""
    program = values_of_one_process(PROGRAM, FOUR, calibrated(0.22))
    configs = {1: Config(1, "glibc", {}, {}), 2: Config(2, "exgen", {}, {})}
    pick = gather([run(1, 20, 0.5), run(2, 22, 0.2, 0.9)], configs, 1, program)[2]
    assert pick.cost("peak_pss_bytes") == pytest.approx(math.log(1 + 4 * 2 / 100))
    assert pick.cost("cpu_s") == pytest.approx(math.log(1 - 4 * 0.3 / 4))
    assert pick.cost("wall_s") == pytest.approx(math.log(1 - 0.1 / 2)), "the ranks run side by side"


def test_memory_of_processes_that_run_in_turn_counts_once() -> None:
    divided = values_of_one_process(PROGRAM, FOUR, calibrated(0.8))
    assert divided["default", "peak_pss_bytes"] == PROGRAM["default", "peak_pss_bytes"]
    assert divided["default", "cpu_s"] == 1.0


@pytest.mark.parametrize(
    ("facts", "runs"),
    [
        ({}, calibrated(0.22)),
        ({"default": {"events": 1000, "share": 0.25}}, calibrated(0.22)),
        ({"default": {"similar": 1, "alike_share": 1.0, "executable": RANK}}, calibrated(0.22)),
    ],
)
def test_a_single_process_and_an_older_study_are_not_divided(facts: dict[str, Any], runs: list[StoredRun]) -> None:
    assert values_of_one_process(PROGRAM, facts, runs) == PROGRAM


def test_memory_is_not_divided_if_the_largest_process_runs_another_program_or_is_unknown() -> None:
    for runs in (calibrated(0.22, "/usr/bin/python3.11"), []):
        divided = values_of_one_process(PROGRAM, FOUR, runs)
        assert divided["default", "peak_pss_bytes"] == PROGRAM["default", "peak_pss_bytes"]
        assert divided["default", "cpu_s"] == 1.0


def test_a_recording_counts_processes_threads_and_aligned_allocations(
    program: Callable[..., Path], tmp_path: Path
) -> None:
    workload = from_command([str(program("several_ranks", "-pthread"))])
    executor = Executor(workload, MeterOptions(backend="poll"), tmp_path / "references")
    facts = proxy.record_input(workload, executor, workload.train[0], tmp_path / "t.hwt")
    assert facts["similar"] == 3
    assert facts["alike_share"] == pytest.approx(1 / 3, rel=0.02)
    assert facts["heap"]["aligned"] == 50
    most, *others = facts["heap"]["thread_calls"]
    assert most >= 3 * 2 * 20_000 - 3 * 100
    assert 3 * 3 <= sum(others) < 200, "the second threads of all three processes"
    assert not list(tmp_path.glob("*.processes"))
