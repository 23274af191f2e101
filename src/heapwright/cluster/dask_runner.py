"""Runs a study's blocks on a Dask cluster: one block, one task, one worker, in whole or not at all.

A worker runs one block at a time; where time is an objective a machine does, however many workers it has. A block
whose worker is lost is run again elsewhere. Results are known by a block's number, so that one that comes twice counts
once.
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

from heapwright.cluster.pool import Member, Pool, Trouble
from heapwright.cluster.transport import (
    Finished,
    Needs,
    Recipe,
    decode,
    encode,
    program_recipe,
    replays_recipe,
)
from heapwright.errors import HeapwrightError
from heapwright.experiment.replays import Replays
from heapwright.experiment.runner import Result, Runner, RunsInputs, Work
from heapwright.measure.host import differences
from heapwright.workload.execute import Executor
from heapwright.workload.model import Workload

_WAIT_S = 0.5
_LOSSES = 20  # a block that takes so many workers along is to blame itself
_ERRORS = 3


@dataclass
class _Block:
    work: Work
    losses: int = 0
    errors: int = 0
    began: float = 0.0
    member: Member | None = None


class DaskRunner:
    """See runner.Runner.

    Args:
        files: traces by content hash.
        slots: how many blocks at once a search should ask for.
        alone: a machine runs one block at a time.
        single: the whole cluster does.
        noted: called after each block that has come back.
    """

    elsewhere = True

    def __init__(
        self,
        pool: Pool,
        recipe: Recipe,
        files: Mapping[str, Path],
        slots: int,
        alone: bool,
        single: bool = False,
        noted: Callable[[], None] = lambda: None,
    ) -> None:
        self.slots = 1 if single else slots
        self.pool = pool
        self._needs, self._files = recipe.needs, files
        self._recipe = encode(recipe)
        self._id = hashlib.sha256(self._recipe.encode()).hexdigest()
        self._alone, self._single = alone, single
        self._noted = noted
        self._waiting: deque[tuple[int, _Block]] = deque()
        self._sent: dict[int, _Block] = {}

    def submit(self, work: Work) -> None:
        """See Runner."""
        self._waiting.append((_Numbers.next(), _Block(work)))

    def results(self) -> Generator[Result]:
        """See Runner.

        Raises:
            HeapwrightError: a block cannot be run anywhere, or there has been no worker for too long.
        """
        try:
            seen = time.monotonic()
            said = False
            while self._waiting or self._sent:
                self._hand_out()
                if self._sent:
                    seen, said = time.monotonic(), False
                elif time.monotonic() - seen > self.pool.settings.patience_s:
                    raise HeapwrightError(
                        f"there has been no worker at {self.pool.address} for {self.pool.settings.patience_s:g} s",
                        "everything measured is kept: the same command goes on",
                    )
                elif not said and time.monotonic() - seen > 10:
                    said = True
                    self.pool.note(f"no worker that can be used is at {self.pool.address}: waiting")
                found = self.pool.look(self._needs, self._id, self._files, _WAIT_S)
                if isinstance(found, Trouble):
                    self._lost(found)
                elif found is not None and found["tag"] in self._sent:
                    yield from self._take(found["tag"], dict(found))
        finally:
            self.cancel()

    def cancel(self) -> None:
        """See Runner. What is under way stops within a second."""
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

    def _idle(self) -> Iterator[Member]:
        if self._single and self._sent:
            return
        members = [m for m in self.pool.members.values() if m.fit == self._id and not m.refused]
        busy = {m.boot for m in members if m.busy is not None}
        for member in members:
            if member.busy is None and not (self._alone and member.boot in busy):
                busy.add(member.boot)
                yield member
                if self._single:
                    return

    def _again(self, number: int) -> None:
        """A block goes back to the others, under another number: what still comes of this one is not taken."""
        block = self._sent.pop(number)
        if block.member is not None and block.member.busy == number:
            block.member.busy = None
        block.member = None
        self._waiting.appendleft((_Numbers.next(), block))

    def _lost(self, trouble: Trouble) -> None:
        for number in [n for n in trouble.blocks if n in self._sent]:
            block = self._sent[number]
            block.losses += 1
            if block.losses >= _LOSSES:
                first = block.work.jobs[0]
                raise HeapwrightError(
                    f"block {first.block} of phase {first.phase} was lost {_LOSSES} times: {trouble.why}",
                    "does the program take its machine down? the same command goes on",
                )
            self._again(number)

    def _take(self, number: int, told: dict[str, str]) -> Generator[Result]:
        block = self._sent[number]
        member = block.member
        assert member is not None
        if "error" in told:
            self.pool.refuse(member, told["error"])
            block.errors += 1
            others = [m for m in self.pool.members.values() if m.fit == self._id and not m.refused]
            if block.errors >= _ERRORS or not others:
                raise HeapwrightError(told["error"], told["hint"])
            self._again(number)
            return
        finished = decode(told["finished"], Finished)
        if self.pool.kind is not None and differences(self.pool.kind, finished.host):
            self.pool.refuse(member, "it is not the kind of machine any more that it was")
            self._again(number)
            return
        del self._sent[number]
        member.busy = None
        member.busy_s += time.monotonic() - block.began
        member.blocks += 1
        member.runs += len(finished.ran)
        self._noted()
        yield from finished.results(block.work)


class _Numbers:
    """Numbers that are not used twice in this process."""

    _last = 0

    @classmethod
    def next(cls) -> int:
        cls._last += 1
        return cls._last


class DaskMachines:
    """See runner.Machines.

    Args:
        needs: what every worker must have.
        slots: how many blocks at once a search should ask for.
        noted: called after each block that has come back.
    """

    def __init__(self, pool: Pool, needs: Needs, slots: int, noted: Callable[[], None] = lambda: None) -> None:
        self.pool = pool
        self.needs = needs
        self.slots = slots
        self.noted = noted

    @property
    def host(self) -> dict[str, Any] | None:
        """See Machines."""
        return self.pool.kind

    def for_program(self, executor: RunsInputs, timed: bool) -> Runner:
        """See Machines. A server's port is one a machine; files that runs leave are in one folder for all of them."""
        assert isinstance(executor, Executor)
        file = executor.workload.file
        single = bool(file.setup or file.cleanup or file.output.compare == "files")
        recipe = program_recipe(executor, self.needs, os.environ)
        return DaskRunner(self.pool, recipe, {}, self.slots, timed or file.server is not None, single, self.noted)

    def for_replays(self, replays: RunsInputs, timed: bool) -> Runner:
        """See Machines."""
        assert isinstance(replays, Replays)
        recipe, files = replays_recipe(replays, self.needs, os.environ)
        return DaskRunner(self.pool, recipe, files, self.slots, timed, noted=self.noted)


def search_word(workload: Workload) -> str:
    """The program's name, where it is looked for on PATH; else empty."""
    word = workload.program()
    return "" if "/" in word else word
