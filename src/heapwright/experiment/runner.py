"""Who runs a block's jobs: the one small interface between a study and the machines it runs on.

    study ──submit(work)──►  Runner  ──results()──►  study, which alone writes the store
             ◄──cancel()──

A unit of work is a block: the default and its candidates, in this order, on one machine, so that the machine is the
same for what is compared. `LocalRunner` runs as many blocks at once as it has slots. With one slot a job runs in the
caller's thread when its result is asked for, so that nothing is measured that nobody stores.
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

TRIES = 3  # of the default: a candidate that fails once is out, a default that fails once may have had bad luck


@dataclass(frozen=True)
class Job:
    """One run to be made.

    Attributes:
        config: the configuration's number in the store; `env` is all there is to it.
        pad: see `execute.pad_environment`.
        tries: how often it may fail before that counts.
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
class Result:
    """A job that was run.

    Attributes:
        started: ISO time, UTC.
        retried: the failures before this outcome, for people.
        machine: where it was run, if not here.
        host: the fingerprint of that machine (`measure.host.fingerprint`); empty: this one's.
    """

    job: Job
    outcome: Outcome
    started: str
    elapsed_s: float
    retried: tuple[str, ...] = ()
    machine: str = ""
    host: str = ""


class RunsInputs(Protocol):
    """What runs the program, or what stands for it: `execute.Executor`, `proxy.Replays`."""

    def run(self, input_: Input, env: Mapping[str, str], pad: int, stop: threading.Event | None, /) -> Outcome:
        """One run; `stop` ends it early with `Stopped`."""
        ...


class Runner(Protocol):
    """Runs blocks, here or elsewhere.

    Attributes:
        slots: how many blocks at once a search should ask for; it stays the same for a study.
        elsewhere: blocks go to other machines: what is stored of half a block has no partner there.
    """

    slots: int
    elsewhere: bool

    def submit(self, work: Work) -> None:
        """Takes a block on; it may begin at once."""
        ...

    def results(self) -> Generator[Result]:
        """Every job's result as it comes, until nothing submitted is left."""
        ...

    def cancel(self) -> None:
        """Drops what has not begun and ends what is under way."""
        ...


def run_work(work: Work, executor: RunsInputs, stop: threading.Event | None = None) -> Generator[Result]:
    """Runs a block's jobs one after the other. What fails on one input is not run on the block's other inputs.

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
        yield Result(job, outcome, started, time.monotonic() - began, tuple(retried))


class LocalRunner:
    """Runs blocks on this machine.

    Args:
        executor: runs the program. It must bear to be used from `slots` threads at once.
        slots: how many blocks at once: 1 wherever time is measured.
    """

    elsewhere = False

    def __init__(self, executor: RunsInputs, slots: int = 1) -> None:
        self.executor = executor
        self.slots = slots
        self._waiting: deque[Work] = deque()

    def submit(self, work: Work) -> None:
        """See Runner."""
        self._waiting.append(work)

    def results(self) -> Generator[Result]:
        """See Runner."""
        if self.slots > 1 and len(self._waiting) > 1:
            yield from self._side_by_side()
        while self._waiting:
            yield from run_work(self._waiting.popleft(), self.executor)

    def cancel(self) -> None:
        """See Runner. What is under way ends with the iteration of `results`."""
        self._waiting.clear()

    def _side_by_side(self) -> Generator[Result]:
        stop = threading.Event()
        done: queue.SimpleQueue[Result | BaseException | None] = queue.SimpleQueue()
        works, taking = self._waiting, threading.Lock()

        def go() -> None:
            try:
                while not stop.is_set():
                    with taking:
                        if not works:
                            break
                        work = works.popleft()
                    for result in run_work(work, self.executor, stop):
                        done.put(result)
            except BaseException as error:  # handed to the caller's thread
                done.put(error)
            done.put(None)

        threads = [threading.Thread(target=go, daemon=True) for _ in range(min(self.slots, len(works)))]
        for thread in threads:
            thread.start()
        left = len(threads)
        try:
            while left:
                item = done.get()
                if item is None:
                    left -= 1
                elif isinstance(item, BaseException):
                    raise item
                else:
                    yield item
        finally:
            stop.set()
            works.clear()
            for thread in threads:
                thread.join()


class Machines(Protocol):
    """Where a study's blocks are run.

    `timed` says that time is an objective: then a machine runs one block at a time.

    Attributes:
        host: describes the machines (`measure.host.describe_host`), where they are not this one.
    """

    @property
    def host(self) -> dict[str, Any] | None:
        """See above."""
        ...

    def for_program(self, executor: RunsInputs, timed: bool) -> Runner:
        """Runs the program."""
        ...

    def for_replays(self, replays: RunsInputs, timed: bool) -> Runner:
        """Runs replays of its allocations."""
        ...


class Here:
    """This machine alone. The program runs alone on it, whatever is measured."""

    host = None

    def for_program(self, executor: RunsInputs, timed: bool) -> Runner:  # noqa: ARG002
        """See Machines."""
        return LocalRunner(executor)

    def for_replays(self, replays: RunsInputs, timed: bool) -> Runner:
        """See Machines."""
        return LocalRunner(replays, 1 if timed else len(os.sched_getaffinity(0)))
