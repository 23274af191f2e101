"""Tests that a study killed at random moments loses no run, repeats none, and ends as an undisturbed one."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import needs

from ..processes import alive, runs, wait_for
from .conftest import Heapwright

# The program maps the same memory in every run under the same settings, so even an adaptive search
# must take the same course again.
OPTIONS = [
    "--allocators",
    "glibc",
    "--minimize",
    "peak_heap,mapping_calls",
    "--budget",
    "30",
    "--pairs",
    "6:6",
    "--seed",
    "7",
    "--proxy",
    "none",
]
FEW = ["--budget", "8", "--no-minify"]  # the last value of an option counts
KILLS = needs.repeats(6, 3)
# The grid has two parameters. `local` and the replays do not search top_pad, because under some of
# its values the peak differs from run to run. Replays of this program are not faster than it, so
# `--proxy replay` forces them; otherwise measured times would decide.
ON_REPLAYS = ["--method", "sobol", "--proxy", "replay"]
# Under `hugetlb`, the heap's size depends on the address where the kernel places it.
PARAMS = {"grid": "mmap_threshold,top_pad", "local": "mmap_threshold,tcache_count,mxfast"}
OTHER_PARAMS = "mmap_threshold,top_pad,trim_threshold,tcache_count,mxfast"


def evaluations(study: Path) -> list[tuple[Any, ...]]:
    """All runs of a study in order: position in the study, configuration, measured values."""
    with contextlib.closing(sqlite3.connect(study)) as db:
        return db.execute(
            "SELECT phase, block, input, env, settings, failure, digest,"
            " json_extract(metrics, '$.peak_heap_bytes'), json_extract(metrics, '$.mapping_calls')"
            " FROM run JOIN config ON config.id = run.config ORDER BY run.id"
        ).fetchall()


def counting(program: str, log: Path) -> list[str]:
    """A command that runs the program and adds a line to the log at each start."""
    return ["sh", "-c", 'echo >>"$0"; exec "$1"', str(log), program]


def starts(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.mark.parametrize("method", ["nsga2", *map(needs.long, ("grid", "gp", "cmaes", "local"))])
@pytest.mark.long
def test_killed_again_and_again_it_ends_as_if_undisturbed(
    method: str, heapwright: Heapwright, program: Callable[..., Path]
) -> None:
    log = heapwright.folder / "starts"
    command = ["--", *counting(str(program("mapping_calls")), log)]
    words = ["tune", "--method", method, *OPTIONS, "--params", PARAMS.get(method, OTHER_PARAMS)]
    undisturbed = heapwright(*words, "--study", "undisturbed.study", *command)
    assert undisturbed.status == 0, undisturbed.err
    expected = evaluations(heapwright.folder / "undisturbed.study")
    assert len(expected) == starts(log)
    log.unlink()
    kill_again_and_again(heapwright, [*words, "--study", "killed.study", *command], len(expected))
    assert evaluations(heapwright.folder / "killed.study") == expected
    # For each kill, at most the run in progress was repeated.
    assert len(expected) <= starts(log) <= len(expected) + KILLS


@pytest.mark.long  # in the short form test_tune_trace.py kills a study whose runs are all replays
def test_killed_on_replays_it_makes_the_same_ones(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    log = heapwright.folder / "starts"
    command = ["--", *counting(str(program("mapping_calls")), log)]
    words = ["tune", *OPTIONS, *ON_REPLAYS, "--params", OTHER_PARAMS]
    undisturbed = heapwright(*words, "--study", "undisturbed.study", *command)
    assert undisturbed.status == 0, undisturbed.err
    whole = evaluations(heapwright.folder / "undisturbed.study")
    log.unlink()
    kill_again_and_again(heapwright, [*words, "--study", "killed.study", *command], len(whole))
    found = evaluations(heapwright.folder / "killed.study")
    # Two blocks of replays may run at once, so their order may differ; their measurements may
    # differ by a page.
    replays = [sorted(run[:5] for run in runs if run[0] == "replay") for runs in (whole, found)]
    assert len(replays[0]) > 30
    assert replays[0] == replays[1]
    on_the_program = sum(run[0] != "replay" for run in found)
    assert on_the_program + 1 <= starts(log) <= on_the_program + 1 + KILLS, "one of them was the recording"


def kill_again_and_again(heapwright: Heapwright, words: list[str], length: int) -> None:
    """Starts a study, kills and restarts it several times, and runs it to its end.

    The kills are spread over all phases of the study. Their moments are chosen by the number of runs, not by time,
    because a loaded machine makes less progress in a given time.

    Args:
        heapwright: the installed command.
        words: the arguments that start and resume the study.
        length: the number of runs of an undisturbed study.
    """
    moments = random.Random(repr(words[:4]))
    for kill in range(KILLS):
        process = heapwright.start(*words)
        enough = length * (kill + moments.random()) / KILLS
        while process.poll() is None and runs(heapwright.folder / "killed.study") < enough:
            time.sleep(0.005)
        process.kill()
        process.communicate()
    assert heapwright(*words).status == 0


def test_a_kill_takes_the_target_along(heapwright: Heapwright) -> None:
    pid_file = heapwright.folder / "pid"
    process = heapwright.start("tune", "--", "sh", "-c", f"echo $$ >{pid_file}; sleep 1000")
    wait_for(lambda: pid_file.exists() and pid_file.read_text().strip() != "")
    target = int(pid_file.read_text())
    process.kill()
    process.communicate()
    wait_for(lambda: not alive(target))


def test_ctrl_c_keeps_everything(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    command = ["tune", *OPTIONS, *FEW, "--study", "s.study", "--", str(program("mapping_calls"))]
    study = heapwright.folder / "s.study"
    process = heapwright.start(*command)
    wait_for(lambda: study.exists() and runs(study) >= 20)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert err.splitlines()[-1] == (
        "heapwright: interrupted; s.study holds all runs so far, and the same command continues it"
    )
    before = evaluations(study)
    assert len(before) >= 20
    assert heapwright(*command).status == 0
    assert evaluations(study)[: len(before)] == before


@pytest.mark.long
def test_a_finished_study_measures_nothing_again(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    log = heapwright.folder / "starts"
    command = [
        "tune",
        *OPTIONS,
        *FEW,
        "--study",
        "s.study",
        "--json",
        "-",
        "--",
        *counting(str(program("mapping_calls")), log),
    ]
    first = heapwright(*command)
    assert first.status == 0, first.err
    made = starts(log)
    again = heapwright(*command)
    assert (again.status, again.out, starts(log)) == (0, first.out, made)
