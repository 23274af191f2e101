"""Tests every Runner, on this machine and on a Dask cluster."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from heapwright.cluster.dask_runner import DaskMachines
from heapwright.cluster.settings import Settings
from heapwright.cluster.transport import needs_of, replays_recipe, restore
from heapwright.cluster.worker_pool import WorkerPool
from heapwright.errors import HeapwrightError
from heapwright.interleaving.replays import Replays
from heapwright.interleaving.runner import Job, JobResult, LocalMachine, Machines, Runner, Work
from heapwright.measure.host import this_host
from heapwright.measure.meter import MeterOptions
from heapwright.trace.program_memory import ProgramMemory
from heapwright.workload.execute import Executor
from heapwright.workload.model import Input, Workload, WorkloadFile

from ..processes import alive, wait_for
from .farm import Farm, none_left, pids_in

ONE = Input("one", args=["1"])
TWO = Input("two", args=["2"])
pytestmark = pytest.mark.xdist_group("farm")  # one cluster for all processes of pytest
Make = Callable[[str], Runner]


def shell(script: str, folder: Path) -> Executor:
    """Return a workload that runs `script` with the input's words as $1."""
    file = WorkloadFile(command=["sh", "-c", script, "sh"], input=[ONE, TWO])
    return Executor(Workload(file, folder, (ONE, TWO)), MeterOptions(timeout=60), folder / "references")


def job(config: int, input_: Input = ONE, block: int = 0, tries: int = 1) -> Job:
    return Job("search", block, input_, config, {"SETTING": str(config)}, 10 + config, tries)


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture(params=["here", "dask"])
def machines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machines]:
    if request.param == "here":
        yield LocalMachine()
        return
    farm: Farm = request.getfixturevalue("shared_farm")
    file = WorkloadFile(command=["sh"])
    needs = needs_of(Workload(file, tmp_path, (ONE,)), [], tmp_path)
    said: list[str] = []
    with WorkerPool(Settings(farm.address, patience_s=60), said.append, None) as pool:
        pool.start(needs, "sh", os.environ.get("PATH"))
        yield DaskMachines(pool, needs, 2)


@pytest.fixture
def make(machines: Machines, tmp_path: Path) -> Make:
    return lambda script: machines.for_program(shell(script, tmp_path), timed=False)


def results(runner: Runner, *works: Work) -> list[JobResult]:
    for work in works:
        runner.submit(work)
    with closing(runner.results()) as found:
        return list(found)


def test_every_job_of_every_block_once_and_in_order_within_it(make: Make) -> None:
    works = [Work((job(1, ONE, n), job(2, ONE, n), job(2, TWO, n), job(1, TWO, n))) for n in range(5)]
    found = results(make('echo "$SETTING $1 ${#HEAPWRIGHT_PAD}"'), *works)
    assert len(found) == 20
    for work in works:
        mine = [r for r in found if r.job.block == work.jobs[0].block]
        assert [r.job for r in mine] == list(work.jobs)
        assert [r.outcome.digest for r in mine] == [sha(t) for t in ("1 1 11\n", "2 1 12\n", "2 2 12\n", "1 2 11\n")]
        assert len({r.machine for r in mine}) == 1
    assert {r.host or this_host() for r in found} == {this_host()}


def test_a_configuration_that_fails_on_one_input_is_not_run_on_others(make: Make) -> None:
    runner = make('[ "$SETTING" != 2 ] || exit 3')
    found = results(runner, Work((job(1), job(2), job(1, TWO), job(2, TWO))))
    assert [(r.job.config, r.job.input.name, r.outcome.failure) for r in found] == [
        (1, "one", ""),
        (2, "one", "exit status 3"),
        (1, "two", ""),
    ]


def test_the_default_may_fail_now_and_then(make: Make, tmp_path: Path) -> None:
    runner = make(f"test -e {tmp_path}/been || {{ touch {tmp_path}/been; exit 1; }}")
    (found,) = results(runner, Work((job(1, tries=3),)))
    assert (found.outcome.failure, found.retried) == ("", ("exit status 1",))


def test_jobs_of_a_closed_runner_stop(make: Make, tmp_path: Path) -> None:
    log = tmp_path / "pids"
    runner = make(f"echo $$ >>{log}; [ $SETTING = 1 ] || exec sleep 1000")
    runner.submit(Work((job(1), job(2))))
    runner.submit(Work((job(1, block=1), job(2, block=1))))
    if runner.on_other_machines:  # a block comes back whole: Ctrl-C comes while both sleep
        with pytest.raises(InterruptedError), _interrupted_when(lambda: sum(map(alive, pids_in(log))) == 2):
            list(runner.results())
    else:
        with closing(runner.results()) as found:
            assert next(found).job.config == 1
    none_left(lambda: pids_in(log))
    runner.cancel()
    assert results(runner) == []


@contextmanager
def _interrupted_when(condition: Callable[[], bool]) -> Iterator[None]:
    def look(*_: object) -> None:
        if condition():
            raise InterruptedError

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_command_that_cannot_be_started_is_one_line(machines: Machines, tmp_path: Path) -> None:
    file = WorkloadFile(command=[str(tmp_path / "not-there")])
    executor = Executor(Workload(file, tmp_path, (ONE,)), MeterOptions(), tmp_path / "references")
    with pytest.raises(HeapwrightError) as failure:
        results(machines.for_program(executor, timed=False), Work((job(1),)))
    assert "\n" not in failure.value.message
    assert "not-there" in failure.value.message


def test_the_environment_is_the_study_s(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OURS", "yes")
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)  # a Dask nanny sets it
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    found = results(
        make('echo "$OURS $MALLOC_TRIM_THRESHOLD_ $OMP_NUM_THREADS"'),
        *(Work((job(1, block=n),)) for n in range(4)),
    )
    assert {r.outcome.digest for r in found} == {sha("yes  \n")}


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory, program: Callable[..., Path]) -> Path:
    path = tmp_path_factory.mktemp("trace") / "t.hwt"
    heapwright = str(Path(sys.executable).with_name("heapwright"))
    words = [heapwright, "record", "-o", str(path), "--", str(program("mapping_calls"))]
    subprocess.run(words, check=True, capture_output=True)
    return path


def test_replays_and_their_traces(
    machines: Machines, trace: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    workload = Workload(WorkloadFile(command=["sh"]), tmp_path, (ONE, TWO))
    with ExitStack() as files:
        traces, memory = {"one": trace, "two": trace}, {"two": ProgramMemory(1 << 30)}
        replays = files.enter_context(Replays(workload, traces, MeterOptions(), program_memory=memory))
        runner = machines.for_replays(replays, timed=False)
        found = results(runner, *(Work((job(1, ONE, n), job(1, TWO, n))) for n in range(6)))
    assert [r.outcome.failure for r in found] == [""] * 12
    assert len({r.outcome.run.metrics["peak_heap_bytes"] for r in found}) == 1
    assert {r.job.input.name for r in found if (r.outcome.run.metrics["peak_rss_bytes"] or 0) > 1 << 29} == {"two"}
    if isinstance(machines, DaskMachines):
        caches = list(request.getfixturevalue("shared_farm").cache.glob("*.hwt"))
        assert [p.read_bytes() == trace.read_bytes() for p in caches] == [True]
        assert not list(caches[0].parent.glob(".*"))


def test_replays_on_another_machine_take_the_programs_pace(trace: Path, tmp_path: Path) -> None:
    workload = Workload(WorkloadFile(command=["sh"]), tmp_path, (ONE,))
    with Replays(workload, {"one": trace}, MeterOptions(), program_s={"one": 3.0}) as replays:
        recipe, _ = replays_recipe(replays, needs_of(workload, [], tmp_path), None)
    restored = restore(recipe, tmp_path)
    assert isinstance(restored, Replays)
    assert restored.program_s == {"one": 3.0}


def test_one_block_at_a_time_on_a_machine_where_time_counts(machines: Machines, tmp_path: Path) -> None:
    log = tmp_path / "log"
    executor = shell(f"echo begin >>{log}; sleep 0.1; echo end >>{log}", tmp_path)
    runner = machines.for_program(executor, timed=True)
    results(runner, *(Work((job(1, block=n), job(2, block=n))) for n in range(4)))
    assert log.read_text().split() == ["begin", "end"] * 8


def test_memory_alone_uses_every_worker(shared_farm: Farm, tmp_path: Path) -> None:
    """Two blocks run at once: each ends only after the other has begun."""
    script = f"touch {tmp_path}/$SETTING; until [ -e {tmp_path}/1 ] && [ -e {tmp_path}/2 ]; do sleep 0.02; done"
    needs = needs_of(Workload(WorkloadFile(command=["sh"]), tmp_path, (ONE,)), [], tmp_path)
    with WorkerPool(Settings(shared_farm.address, patience_s=60), lambda _: None, None) as pool:
        wait_for(lambda: pool.start(needs, "sh", None) == 2)
        runner = DaskMachines(pool, needs, 2).for_program(shell(script, tmp_path), timed=False)
        found = results(runner, Work((job(1, block=0),)), Work((job(2, block=1),)))
    assert [r.outcome.failure for r in found] == ["", ""]
    assert len({r.machine for r in found}) == 2
