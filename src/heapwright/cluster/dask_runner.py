"""Runs a study's blocks on a Dask cluster: each block is one task on one worker, and completes or is run again.

A worker runs one block at a time. If time is an objective, a machine runs one block at a time, however many workers
it has. A block whose worker is lost runs again elsewhere. Every attempt has its own number, so a result that comes
twice counts once.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heapwright.cluster.transport import (
    MachineRequirements,
    Recipe,
    TransportedBlockResult,
    decode,
    encode,
    program_recipe,
    replays_recipe,
)
from heapwright.cluster.worker_pool import LostBlocks, PoolWorker, WorkerPool
from heapwright.errors import HeapwrightError
from heapwright.interleaving.replays import ReplayExecutor, Replays
from heapwright.interleaving.runner import JobResult, Runner, RunsInputs, Work
from heapwright.measure.host import differences
from heapwright.workload.execute import Executor
from heapwright.workload.model import Workload

_WAIT_S = 0.5  # seconds
_MAX_LOSSES = 20  # lost workers after which the block itself must be the cause
_MAX_ERRORS = 3  # failures of one block on different workers


@dataclass
class _Block:
    work: Work
    losses: int = 0
    errors: int = 0
    began: float = 0.0
    member: PoolWorker | None = None


class DaskRunner:
    """Runs blocks on a cluster; see interleaving.runner.Runner.

    Args:
        pool: the workers.
        recipe: how to run blocks.
        files: content hash → path of each trace.
        slots: number of blocks that a search should request at once.
        one_block_per_machine: a machine runs one block at a time.
        single: the whole cluster runs one block at a time.
        noted: called after each finished block.
    """

    on_other_machines = True

    def __init__(
        self,
        pool: WorkerPool,
        recipe: Recipe,
        files: Mapping[str, Path],
        slots: int,
        one_block_per_machine: bool,
        single: bool = False,
        noted: Callable[[], None] = lambda: None,
    ) -> None:
        self.slots = 1 if single else slots
        self.pool = pool
        self._needs, self._files = recipe.needs, files
        self._recipe = encode(recipe)
        self._id = hashlib.sha256(self._recipe.encode()).hexdigest()
        self._one_block_per_machine, self._single = one_block_per_machine, single
        self._noted = noted
        self._waiting: deque[tuple[int, _Block]] = deque()
        self._sent: dict[int, _Block] = {}

    def submit(self, work: Work) -> None:
        """See Runner."""
        self._waiting.append((_Numbers.next(), _Block(work)))

    def results(self) -> Generator[JobResult]:
        """See Runner.

        Raises:
            HeapwrightError: a block cannot be run anywhere, or there has been no worker for too long.
        """
        try:
            last_busy = time.monotonic()
            announced = False
            while self._waiting or self._sent:
                self._hand_out()
                if self._sent:
                    last_busy, announced = time.monotonic(), False
                elif time.monotonic() - last_busy > (patience_s := self.pool.settings.patience_s):
                    raise HeapwrightError(
                        f"there has been no usable worker at {self.pool.address} for {patience_s:g} s",
                        "all measurements are stored: run the same command again to continue",
                    )
                elif not announced and time.monotonic() - last_busy > 10:
                    announced = True
                    self.pool.note(f"waiting for a usable worker at {self.pool.address}")
                event = self.pool.look(self._needs, self._id, self._files, _WAIT_S)
                if isinstance(event, LostBlocks):
                    self._lost(event)
                elif event is not None and event["tag"] in self._sent:
                    yield from self._take(event["tag"], dict(event))
        finally:
            self.cancel()

    def cancel(self) -> None:
        """See Runner. Running blocks stop within a second."""
        self._waiting.clear()
        for number, block in self._sent.items():
            self.pool.drop(number)
            if block.member is not None:
                block.member.busy = None
        self._sent.clear()

    def _hand_out(self) -> None:
        for member in self._idle():
            if not self._waiting:
                return
            number, block = self._waiting.popleft()
            block.member, block.began, member.busy = member, time.monotonic(), number
            self._sent[number] = block
            self.pool.send(member, number, self._recipe, encode(block.work))

    def _idle(self) -> Iterator[PoolWorker]:
        if self._single and self._sent:
            return
        members = [m for m in self.pool.members.values() if m.fit == self._id and not m.refused]
        busy = {m.boot for m in members if m.busy is not None}
        for member in members:
            if member.busy is None and not (self._one_block_per_machine and member.boot in busy):
                busy.add(member.boot)
                yield member
                if self._single:
                    return

    def _requeue(self, number: int) -> None:
        """Put a block back into the queue under a new number, so that late results of this attempt are ignored."""
        block = self._sent.pop(number)
        if block.member is not None and block.member.busy == number:
            block.member.busy = None
        block.member = None
        self._waiting.appendleft((_Numbers.next(), block))

    def _lost(self, lost: LostBlocks) -> None:
        for number in [n for n in lost.blocks if n in self._sent]:
            block = self._sent[number]
            block.losses += 1
            if block.losses >= _MAX_LOSSES:
                first = block.work.jobs[0]
                raise HeapwrightError(
                    f"block {first.block} of phase {first.phase} was lost {_MAX_LOSSES} times: {lost.why}",
                    "check whether the program crashes its machine; the same command continues the study",
                )
            self._requeue(number)

    def _take(self, number: int, event: dict[str, str]) -> Generator[JobResult]:
        block = self._sent[number]
        member = block.member
        assert member is not None
        if "error" in event:
            self.pool.refuse(member, event["error"])
            block.errors += 1
            others = [m for m in self.pool.members.values() if m.fit == self._id and not m.refused]
            if block.errors >= _MAX_ERRORS or not others:
                raise HeapwrightError(event["error"], event["hint"])
            self._requeue(number)
            return
        finished = decode(event["finished"], TransportedBlockResult)
        if self.pool.kind is not None and differences(self.pool.kind, finished.host):
            self.pool.refuse(member, "its kind of machine has changed")
            self._requeue(number)
            return
        del self._sent[number]
        member.busy = None
        member.busy_s += time.monotonic() - block.began
        member.blocks += 1
        member.runs += len(finished.ran)
        self._noted()
        yield from finished.results(block.work)


class _Numbers:
    """Numbers that are unique in this process."""

    _last = 0

    @classmethod
    def next(cls) -> int:
        cls._last += 1
        return cls._last


class DaskMachines:
    """The machines of a cluster; see interleaving.runner.Machines.

    Args:
        pool: the workers.
        needs: requirements for every worker.
        slots: number of blocks that a search should request at once.
        noted: called after each finished block.
    """

    def __init__(
        self, pool: WorkerPool, needs: MachineRequirements, slots: int, noted: Callable[[], None] = lambda: None
    ) -> None:
        self.pool = pool
        self.needs = needs
        self.slots = slots
        self.noted = noted

    @property
    def host(self) -> dict[str, Any] | None:
        """See Machines."""
        return self.pool.kind

    def for_program(self, executor: RunsInputs, timed: bool) -> Runner:
        """See Machines.

        Runs of a server share one port on a machine, so a machine runs one block at a time. Programs that leave files
        share one folder on all machines, so the whole cluster runs one block at a time.
        """
        assert isinstance(executor, Executor)
        file = executor.workload.file
        single = bool(file.setup or file.cleanup or file.output.compare == "files")
        recipe = program_recipe(executor, self.needs, os.environ)
        return DaskRunner(self.pool, recipe, {}, self.slots, timed or file.server is not None, single, self.noted)

    def for_replays(self, replays: RunsInputs, timed: bool) -> Runner:
        """See Machines."""
        if isinstance(replays, ReplayExecutor):  # of a study of recordings
            replays = replays.replays
        assert isinstance(replays, Replays)
        recipe, files = replays_recipe(replays, self.needs, os.environ)
        return DaskRunner(self.pool, recipe, files, self.slots, timed, noted=self.noted)


def search_word(workload: Workload) -> str:
    """Return the program's name if it is searched on PATH; else empty."""
    word = workload.program()
    return "" if "/" in word else word
