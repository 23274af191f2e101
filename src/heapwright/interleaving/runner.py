"""Runs the jobs of a block: the interface between the pipeline and the machines that make its runs.

    pipeline ──submit(work)──►  Runner  ──results()──►  pipeline, which alone writes the store
             ──cancel()──────►

A unit of work is one block: the default and its candidates in a given order. One machine makes all runs of a block, so
that runs which are compared come from the same machine. `LocalRunner` runs as many blocks at once as it has slots. With
one slot, a job runs in the caller's thread when the caller asks for its result. So no run is made without being stored.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from heapwright.workload.execute import Outcome
from heapwright.workload.model import Input

# A candidate that fails once is infeasible. The default of a study and the reference of a
# comparison get so many tries in a block, because they are known to work.
TRIES = 3


@dataclass(frozen=True)
class Job:
    """One run to be made.

    Attributes:
        phase: the phase that the run belongs to.
        block: number of the block within the phase.
        input: the input that the program is run on.
        config: the configuration's id in the store, or another number by which the caller knows it.
        env: the environment variables that make the configuration; nothing else does.
        pad: bytes of padding (`execute.pad_environment`). Each further try adds a byte.
        tries: how often the job is tried until it succeeds.
    """

    phase: str
    block: int
    input: Input
    config: int
    env: Mapping[str, str]
    pad: int
    tries: int = 1


@dataclass(frozen=True)
class Work:
    """A block's jobs, in the order they are to be run."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class JobResult:
    """A job that was run.

    Attributes:
        job: the job.
        outcome: the outcome of its last try.
        started: when the last try began; ISO time, UTC.
        elapsed_s: seconds that the last try took, with set-up and measuring.
        retried: the failures of earlier tries, as sentences.
        machine: name of the machine that ran it; empty: this one.
        host: fingerprint of that machine (`measure.host.fingerprint`); empty: this one's.
    """

    job: Job
    outcome: Outcome
    started: str
    elapsed_s: float
    retried: tuple[str, ...] = ()
    machine: str = ""
    host: str = ""


class RunsInputs(Protocol):
    """Runs the program, or its replays: `execute.Executor`, `replays.Replays`."""

    def run(self, input_: Input, env: Mapping[str, str], pad: int, stop: threading.Event | None, /) -> Outcome:
        """Make one run.

        Args:
            input_: the input of the run.
            env: the environment variables that make the configuration.
            pad: bytes of padding (`pad_environment`).
            stop: ends the run early when another thread sets it.

        Raises:
            Stopped: `stop` was set.
        """
        ...


class Runner(Protocol):
    """Runs blocks, here or elsewhere.

    Attributes:
        slots: how many blocks a search should submit at once; it stays the same for a study.
        on_other_machines: whether blocks go to other machines. Then a block that is stored in part is made anew,
            because its other runs would come from another machine.
    """

    slots: int
    on_other_machines: bool

    def submit(self, work: Work) -> None:
        """Accept a block; it may begin at once."""
        ...

    def results(self) -> Generator[JobResult]:
        """Yield each job's result as soon as it is known, until no submitted block is left."""
        ...

    def cancel(self) -> None:
        """Drop blocks that have not begun and end those that have."""
        ...


def run_work(work: Work, executor: RunsInputs, stop: threading.Event | None = None) -> Generator[JobResult]:
    """Run a block's jobs one after the other. A configuration that fails on one input is not run on the others.

    Args:
        work: the block.
        executor: makes the runs.
        stop: no run begins after another thread has set it, and the present run ends early.

    Raises:
        HeapwrightError: the command could not be started or measured at all.
    """
    failed: set[int] = set()
    for job in work.jobs:
        if stop is not None and stop.is_set():
            return
        if job.config in failed:
            continue
        retried: list[str] = []
        while True:
            started, began = datetime.now(UTC).isoformat(timespec="milliseconds"), time.monotonic()
            outcome = executor.run(job.input, job.env, job.pad + len(retried), stop)
            if not outcome.failure or len(retried) + 1 >= job.tries:
                break
            retried.append(outcome.failure)
        if outcome.failure:
            failed.add(job.config)
        yield JobResult(job, outcome, started, time.monotonic() - began, tuple(retried))


class LocalRunner:
    """Runs blocks on this machine.

    Args:
        executor: runs the program; `slots` threads use it at the same time.
        slots: how many blocks run at once; 1 wherever time is measured.
    """

    on_other_machines = False

    def __init__(self, executor: RunsInputs, slots: int = 1) -> None:
        self.executor = executor
        self.slots = slots
        self._waiting: deque[Work] = deque()

    def submit(self, work: Work) -> None:
        """See Runner."""
        self._waiting.append(work)

    def results(self) -> Generator[JobResult]:
        """See Runner."""
        if self.slots > 1 and len(self._waiting) > 1:
            yield from self._run_in_threads()
        while self._waiting:
            yield from run_work(self._waiting.popleft(), self.executor)

    def cancel(self) -> None:
        """See Runner. Blocks that have begun end when the iterator of `results` is closed."""
        self._waiting.clear()

    def _run_in_threads(self) -> Generator[JobResult]:
        stop = threading.Event()
        done: queue.SimpleQueue[JobResult | BaseException | None] = queue.SimpleQueue()
        waiting, lock = self._waiting, threading.Lock()

        def run_blocks() -> None:
            try:
                while not stop.is_set():
                    with lock:
                        if not waiting:
                            break
                        work = waiting.popleft()
                    for result in run_work(work, self.executor, stop):
                        done.put(result)
            except BaseException as error:  # handed to the caller's thread
                done.put(error)
            done.put(None)

        threads = [threading.Thread(target=run_blocks, daemon=True) for _ in range(min(self.slots, len(waiting)))]
        for thread in threads:
            thread.start()
        running = len(threads)
        try:
            while running:
                item = done.get()
                if item is None:
                    running -= 1
                elif isinstance(item, BaseException):
                    raise item
                else:
                    yield item
        finally:
            stop.set()
            waiting.clear()
            for thread in threads:
                thread.join()


class Machines(Protocol):
    """Makes runners for the machines that run a study's blocks."""

    @property
    def host(self) -> dict[str, Any] | None:
        """Description of the machines (`measure.host.describe_host`); None for this machine."""
        ...

    def for_program(self, executor: RunsInputs, timed: bool) -> Runner:
        """Return a runner of the program. If time is an objective (`timed`), a machine runs one block at a time."""
        ...

    def for_replays(self, replays: RunsInputs, timed: bool) -> Runner:
        """Return a runner of replays of the program's allocations. See `for_program` for `timed`."""
        ...


class LocalMachine:
    """Runs everything on this machine. Runs of the program never overlap, even where time is not measured."""

    host = None

    def for_program(self, executor: RunsInputs, timed: bool) -> Runner:  # noqa: ARG002
        """See Machines."""
        return LocalRunner(executor)

    def for_replays(self, replays: RunsInputs, timed: bool) -> Runner:
        """See Machines."""
        return LocalRunner(replays, 1 if timed else len(os.sched_getaffinity(0)))
