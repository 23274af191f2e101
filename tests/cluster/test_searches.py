"""Tests `experiment --cluster`: whole searches on real workers, equal to those of one machine, after losses too."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heapwright.cluster.searches import requirements_of_experiment
from heapwright.experiment.definition import load_definition
from heapwright.experiment.run import is_done

from ..processes import runs, wait_for
from .farm import Farm, free_port
from .test_losses import evaluations

pytestmark = pytest.mark.xdist_group("farm")  # one cluster for all processes of pytest
HEAPWRIGHT = str(Path(sys.executable).with_name("heapwright"))
TEXT = """
methods = METHODS
seeds = 2
budgets = [BUDGET]
minimize = ["peak_heap"]
allocators = ["glibc"]
[[program]]
name = "calls"
command = ["./prog"]
options = ["--proxy", "none", "--no-runtime"]
[[program]]
name = "recorded"
trace = "a.hwt"
"""
METHODS = ["random", "sobol"]


def prepare(folder: Path, program: Callable[..., Path], budget: int, methods: list[str] = METHODS) -> list[Path]:
    """Make the definition, its program and recording; return the studies in the folder 'e'."""
    (folder / "prog").symlink_to(program("mapping_calls"))
    words = [HEAPWRIGHT, "record", "-q", "-o", "a.hwt", "--", "./prog"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    (folder / "e.toml").write_text(TEXT.replace("BUDGET", str(budget)).replace("METHODS", json.dumps(methods)))
    names = [f"{p}-{m}-{budget}-{s}" for s in (1, 2) for p in ("calls", "recorded") for m in methods]
    return [folder / "e" / f"{name}.study" for name in names]


def experiment(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [HEAPWRIGHT, "experiment", "e.toml", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def searched(study: Path) -> set[tuple[Any, ...]]:
    """Every evaluation: input, configuration, failure and output. The heap's peak varies by a page."""
    return {run[2:6] for run in evaluations(study) if run[0] == "search"}


def title(study: Path) -> str:
    """The words by which messages name a search."""
    program, method, budget, seed = study.stem.split("-")
    return f"{program}, {method}, seed {seed}, budget {budget}"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_searches_on_workers_are_those_of_one_machine(
    shared_farm: Farm, program: Callable[..., Path], tmp_path: Path
) -> None:
    studies = prepare(tmp_path, program, 6, METHODS)
    done = experiment(tmp_path, "--cluster", shared_farm.address)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "e/searches.csv").open()))
    assert [(r["evaluations"], r["infeasible"]) for r in rows] == [("6", "0")] * len(studies)
    machines = [r["machines"] for r in rows]
    assert all(len(m.split()) == 1 for m in machines), "one worker makes a whole search"
    assert len(set(machines)) == 2, "both workers are used"
    every = list(csv.DictReader((tmp_path / "e/runs.csv").open()))
    assert {r["machine"] for r in every} == set(machines)

    done = experiment(tmp_path, "-o", "here")
    assert done.returncode == 0, done.stderr
    for study in studies:
        assert searched(study) == searched(tmp_path / "here" / study.name), study.name
    before = {study: study.read_bytes() for study in studies}
    done = experiment(tmp_path, "--cluster", shared_farm.address)
    assert (done.returncode, done.stderr) == (0, ""), "nothing is run again"
    assert {study: study.read_bytes() for study in studies} == before


@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_experiment_goes_on_after_losses(farm: Farm, program: Callable[..., Path], tmp_path: Path) -> None:
    studies = prepare(tmp_path, program, 30)
    farm.start_scheduler()
    farm.start_worker("one")
    farm.start_worker("two")
    words = [HEAPWRIGHT, "experiment", "e.toml", "--cluster", farm.address]
    with (tmp_path / "err").open("w") as err:
        running = subprocess.Popen(words, cwd=tmp_path, stderr=err, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: runs(studies[0]) > 12 and runs(studies[1]) > 12)
        os.kill(farm.worker_pids()[0], signal.SIGKILL)  # another takes its place
        wait_for(lambda: "is lost" in (tmp_path / "err").read_text())
        wait_for(lambda: any(runs(s) > 12 for s in studies[3:]) and any(map(is_done, studies)))
    finally:
        running.kill()
        running.wait()
    finished = [study for study in studies if is_done(study)]
    before = {study: runs(study) for study in studies}

    def silent() -> bool:
        now = {study: runs(study) for study in studies}
        time.sleep(1)
        return now == {study: runs(study) for study in studies}

    wait_for(silent)  # the searches end with the experiment
    done = experiment(tmp_path, "--cluster", farm.address)
    assert done.returncode == 0, done.stderr
    assert [title(study) for study in finished if title(study) in done.stderr] == [], "none is run again"
    assert all(title(study) in done.stderr for study in studies if study not in finished)
    assert all(runs(study) >= before[study] for study in studies)
    done = experiment(tmp_path, "-o", "here")
    assert done.returncode == 0, done.stderr
    for study in studies:
        assert searched(study) == searched(tmp_path / "here" / study.name), study.name


def test_a_cluster_without_a_scheduler_is_one_line(tmp_path: Path, program: Callable[..., Path]) -> None:
    prepare(tmp_path, program, 3)
    (tmp_path / "c.toml").write_text(f'scheduler = "tcp://127.0.0.1:{free_port()}"\npatience = 0.1\n')
    done = experiment(tmp_path, "-q", "--cluster", "c.toml")
    assert done.returncode == 1
    assert "there is no Dask scheduler at tcp://127.0.0.1:" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("objective", "more", "one_search_per_machine", "single"),
    [
        ("peak_heap", "", False, set()),
        ("wall", "", True, set()),
        ("peak_heap", '[server]\nready_port = 1\nload = ["true"]', False, {"b"}),
        ("peak_heap", 'setup = ["true"]', False, {"b"}),
    ],
)
def test_searches_that_would_disturb_each_other_do_not_overlap(
    objective: str, more: str, one_search_per_machine: bool, single: set[str], tmp_path: Path
) -> None:
    (tmp_path / "b.toml").write_text(f'command = ["cat"]\n{more}\n')
    programs = '[[program]]\nname = "a"\ncommand = ["true"]\n[[program]]\nname = "b"\nworkload = "b.toml"\n'
    head = f'methods = ["random"]\nbudgets = [3]\nminimize = ["{objective}"]\nallocators = ["glibc"]\n'
    (tmp_path / "e.toml").write_text(head + programs)
    found = requirements_of_experiment(load_definition(tmp_path / "e.toml"), tmp_path, tmp_path / "e")
    assert (found.one_search_per_machine, set(found.single)) == (one_search_per_machine, single)
    assert found.needs.programs == ["true", "cat"]
    assert str(tmp_path) in found.needs.paths
