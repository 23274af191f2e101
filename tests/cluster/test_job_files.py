"""Tests that plan, run-one and collect make the same study as a single machine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from heapwright.cluster.job_files import run_planned_block
from tests.system.conftest import Heapwright

from .test_losses import evaluations


@dataclass
class Shell:
    folder: Path

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        done = Heapwright(self.folder, forked=True)(*words)
        return subprocess.CompletedProcess(words, done.status, done.out, done.err)

    def count(self, *words: str) -> int:
        done = self(*words)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def sweep(program: Callable[..., Path], name: str) -> list[str]:
    words = ["landscape", "--param", "mmap_threshold", "--step", "8", "--metric", "peak_heap"]
    return [*words, "--study", name, "--", str(program("mapping_calls"))]


def test_a_sweep_through_job_files_equals_one_on_this_machine(shell: Shell, program: Callable[..., Path]) -> None:
    assert shell(*sweep(program, "here.study")).returncode == 0
    left, rounds = shell.count("plan", "jobs", *sweep(program, "files.study")), 0
    while left:
        rounds += 1
        for number in reversed(range(left)):
            if number:
                run_planned_block(shell.folder / "jobs", number)
            else:  # one by the command, which takes longer
                done = shell("run-one", "jobs", str(number))
                assert done.returncode == 0, done.stderr
        left = shell.count("collect", "jobs")
    assert rounds == 4  # the default once, the default again, the places, the lowest and the highest again
    assert evaluations(shell.folder / "files.study") == evaluations(shell.folder / "here.study")
    assert [p.name for p in (shell.folder / "jobs").iterdir()] == ["plan.json"]
    assert shell.count("collect", "jobs") == 0


@pytest.mark.long
def test_a_search_on_replays_through_files(shell: Shell, program: Callable[..., Path]) -> None:
    """The plan contains the traces; blocks without a result in one round are planned again."""
    words = ["tune", "--allocators", "glibc", "--minimize", "peak_heap", "--budget", "8", "--proxy", "replay"]
    words += ["--params", "mmap_threshold", "--pairs", "6:6", "--study", "s.study"]
    left = shell.count("plan", "--blocks", "4", "jobs", *words, "--", str(program("mapping_calls")))
    first, replayed = True, False
    while left:
        replayed = replayed or (shell.folder / "jobs/traces").exists()
        for number in range(left):
            if number or not first:
                run_planned_block(shell.folder / "jobs", number)
        first = False
        left = shell.count("collect", "jobs")
    assert replayed
    phases = {row[0] for row in evaluations(shell.folder / "s.study")}
    assert {"calibrate", "replay", "race"} <= phases
    assert (shell.folder / "s.html").exists()


def test_invalid_plans_and_blocks_are_one_line(shell: Shell, program: Callable[..., Path]) -> None:
    assert shell("run-one", "nowhere", "0").stderr.count("\n") == 1
    assert shell("plan", "jobs").returncode == 2
    assert shell.count("plan", "jobs", *sweep(program, "s.study")) == 1
    assert "already holds a plan" in shell("plan", "jobs", *sweep(program, "s.study")).stderr
    done = shell("run-one", "jobs", "7")
    assert (done.returncode, done.stderr) == (2, "heapwright: jobs has no block 7 (they go from 0 to 0)\n")
    plan = json.loads((shell.folder / "jobs/plan.json").read_text())
    plan["recipe"]["needs"]["version"] = "0.0.1"
    (shell.folder / "jobs/plan.json").write_text(json.dumps(plan))
    done = shell("run-one", "jobs", "0")
    assert done.returncode == 1
    assert done.stderr.startswith("heapwright: this machine cannot run the block: it has heapwright ")
