"""Tests that a study completes after any loss: no run lost, none counted twice, no process left over.

`HEAPWRIGHT_KILLS=200 pytest tests/cluster/test_losses.py` is the long form.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from heapwright.cluster.dask_runner import DaskMachines
from heapwright.cluster.settings import Settings
from heapwright.cluster.transport import needs_of
from heapwright.cluster.worker_pool import WorkerPool
from heapwright.interleaving.runner import Job, Work
from heapwright.measure.meter import MeterOptions
from heapwright.workload.execute import Executor
from heapwright.workload.model import Input, Workload, WorkloadFile
from tests import needs

from ..processes import alive, runs, wait_for
from .farm import Farm, none_left, pids_in

KILLS = int(os.environ.get("HEAPWRIGHT_KILLS", "2"))
HEAPWRIGHT = str(Path(sys.executable).with_name("heapwright"))


def evaluations(study: Path) -> list[tuple[Any, ...]]:
    """Every run, sorted: its phase and block, its configuration, its measurements."""
    with contextlib.closing(sqlite3.connect(study)) as db:
        return db.execute(
            "SELECT phase, block, input, env, failure, digest, json_extract(metrics, '$.peak_heap_bytes')"
            " FROM run JOIN config ON config.id = run.config ORDER BY 1, 2, 3, 4"
        ).fetchall()


def blocks_of_two_machines(study: Path) -> int:
    with contextlib.closing(sqlite3.connect(study)) as db:
        query = "SELECT count(*) FROM (SELECT 1 FROM run WHERE json_extract(extra, '$.machine') IS NOT NULL"
        query += " GROUP BY phase, block HAVING count(DISTINCT json_extract(extra, '$.machine')) > 1)"
        return int(db.execute(query).fetchone()[0])


@pytest.mark.long
def test_workers_killed_and_the_scheduler_restarted(farm: Farm, program: Callable[..., Path], tmp_path: Path) -> None:
    """The study equals the one that a single machine makes."""
    log = tmp_path / "pids"
    words = [HEAPWRIGHT, "landscape", "--param", "mmap_threshold", "--metric", "peak_heap", "-n", "2"]
    command = ["--", "sh", "-c", 'echo $$ >>"$0"; exec "$1"', str(log), str(program("mapping_calls"))]
    done = subprocess.run([*words, "--study", "calm.study", *command], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = evaluations(tmp_path / "calm.study")
    assert len(expected) > 40

    farm.start_scheduler()
    farm.start_worker("one", nanny=True)
    farm.start_worker("two")
    study, moments = tmp_path / "killed.study", random.Random("kill")
    words += ["--cluster", farm.address, "--study", study.name]
    with (tmp_path / "err").open("wb") as err:
        sweep = subprocess.Popen([*words, *command], cwd=tmp_path, stderr=err, stdout=subprocess.DEVNULL)
    try:
        for kill in range(KILLS):
            # Kills are spread over the progress of the study and not over time, because a loaded
            # machine is slow.
            enough = len(expected) * (kill + moments.random()) / (KILLS + 1)
            wait_for(lambda enough=enough: sweep.poll() is not None or runs(study) >= enough)  # type: ignore[misc]
            if kill == KILLS // 2:
                farm.stop_scheduler()
                farm.start_scheduler()
            else:
                wait_for(lambda: bool(farm.worker_pids()))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(moments.choice(farm.worker_pids()), signal.SIGKILL)
        assert sweep.wait(timeout=240) == 0, (tmp_path / "err").read_text()
    finally:
        sweep.kill()
        sweep.wait()
    assert evaluations(study) == expected
    assert blocks_of_two_machines(study) == 0
    assert "is lost" in (tmp_path / "err").read_text()
    none_left(lambda: pids_in(log))


@pytest.mark.long
def test_a_lost_worker_takes_its_commands_along(farm: Farm, tmp_path: Path) -> None:
    farm.start_scheduler()
    farm.start_worker("one")
    log = tmp_path / "pids"
    command = ["--", "sh", "-c", f"echo $$ >>{log}; sleep 1000 & echo $! >>{log}; wait"]
    tune = subprocess.Popen(
        [HEAPWRIGHT, "tune", "--cluster", farm.address, *command], cwd=tmp_path,
        stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(lambda: len(pids_in(log)) == 2)
        first = pids_in(log)
        for pid in farm.worker_pids():
            os.kill(pid, signal.SIGKILL)
        none_left(lambda: first)
        wait_for(lambda: len(pids_in(log)) >= 4)  # it is run again
        tune.kill()  # the coordinator is lost: nobody wants the run any more
        tune.wait()
        none_left(lambda: pids_in(log))
    finally:
        tune.kill()
        tune.wait()


@pytest.mark.long
def test_the_scheduler_restarted_while_nothing_is_under_way(farm: Farm, tmp_path: Path) -> None:
    """The client reconnects to the new scheduler by itself, and results must still arrive."""
    input_ = Input("one")
    executor = Executor(
        Workload(WorkloadFile(command=["true"]), tmp_path, (input_,)), MeterOptions(timeout=60), tmp_path / "references"
    )
    farm.start_scheduler()
    farm.start_worker("one")
    needs = needs_of(executor.workload, [], tmp_path)
    with WorkerPool(Settings(farm.address, patience_s=60), lambda _: None, None) as pool:
        pool.start(needs, "true", None)
        runner = DaskMachines(pool, needs, 1).for_program(executor, timed=False)
        for block in range(2):
            runner.submit(Work((Job("search", block, input_, 1, {}, 0),)))
            assert [r.job.block for r in runner.results()] == [block]
            if not block:
                farm.stop_scheduler()
                farm.start_scheduler()
                wait_for(lambda: pool._client.status == "running" and pool._client.nthreads())


@pytest.fixture
def network() -> Iterator[tuple[str, str, str]]:
    """Another network namespace, connected by a virtual cable: its name, our end of the cable, our address."""
    name, here, there = f"hw{os.getpid()}", f"hwa{os.getpid() % 100000}", f"hwb{os.getpid() % 100000}"
    ip = needs.command("ip")
    if subprocess.run([ip, "netns", "add", name], capture_output=True).returncode:
        needs.machine_cannot("make network namespaces (root only)")
    net = f"10.{77 + os.getpid() % 100}.3"
    try:
        for words in (
            f"link add {here} type veth peer name {there}",
            f"link set {there} netns {name}",
            f"addr add {net}.1/24 dev {here}",
            f"link set {here} up",
            f"-n {name} addr add {net}.2/24 dev {there}",
            f"-n {name} link set {there} up",
            f"-n {name} link set lo up",
        ):
            done = subprocess.run([ip, *words.split()], capture_output=True, text=True)
            if done.returncode:
                needs.machine_cannot(f"lay a cable between network namespaces: {done.stderr.strip()}")
        yield name, here, f"{net}.1"
    finally:
        subprocess.run([ip, "link", "delete", here], capture_output=True)
        subprocess.run([ip, "netns", "delete", name], capture_output=True)


@pytest.mark.parametrize(
    "pause_s",
    [
        needs.long_unless(True, 2.0, id="short"),
        needs.long_unless(False, 8.0, id="so-long-that-the-worker-is-given-up"),
    ],
)
@pytest.mark.long
def test_a_study_survives_a_pause_of_the_network(pause_s: float, network: tuple[str, str, str], tmp_path: Path) -> None:
    name, cable, host = network
    farm, log, notes = Farm(tmp_path, host), tmp_path / "pids", list[str]()
    input_ = Input("one")
    file = WorkloadFile(command=["sh", "-c", f"echo $$ >>{log}; exec sleep 0.2"])
    executor = Executor(Workload(file, tmp_path, (input_,)), MeterOptions(timeout=60), tmp_path / "references")
    try:
        farm.start_scheduler()
        farm.start_worker("near")
        farm.start_worker("far", before=["ip", "netns", "exec", name])
        needs = needs_of(executor.workload, [], tmp_path)
        with WorkerPool(Settings(farm.address, patience_s=60), notes.append, None) as pool:
            wait_for(lambda: pool.start(needs, "sh", None) == 2)
            runner = DaskMachines(pool, needs, 2).for_program(executor, timed=False)
            blocks = int(10 + 3 * pause_s)
            for n in range(blocks):
                runner.submit(Work((Job("search", n, input_, 1, {}, 0), Job("search", n, input_, 2, {}, 0))))
            seen: list[tuple[int, int]] = []
            machines = set()
            cut = 0.0
            with closing(runner.results()) as found:
                for result in found:
                    seen.append((result.job.block, result.job.config))
                    machines.add(result.machine)
                    if not cut and len(machines) == 2:
                        cut = time.monotonic()
                        subprocess.run(["ip", "link", "set", cable, "down"], check=True)
                    elif cut > 0 and time.monotonic() - cut >= pause_s:
                        subprocess.run(["ip", "link", "set", cable, "up"], check=True)
                        cut = -1.0
        assert cut == -1.0
        assert sorted(seen) == [(n, config) for n in range(blocks) for config in (1, 2)]
        if pause_s < 5:
            assert not any("is lost" in note for note in notes)
        none_left(lambda: pids_in(log))
    finally:
        subprocess.run(["ip", "link", "set", cable, "up"], check=False)
        farm.close()
    assert not any(alive(pid) for pid in farm.worker_pids())
