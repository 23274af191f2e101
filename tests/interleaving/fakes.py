"""A program that is not run, a store in memory, and a runner with several slots."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field

from heapwright.interleaving.records import PhaseStart, StoredRun
from heapwright.interleaving.runner import JobResult, Work, run_work
from heapwright.measure.meter import Run
from heapwright.metrics import NUMERIC
from heapwright.workload.execute import Outcome
from heapwright.workload.model import Input


def outcome(digest: str = "same", failure: str = "", **more: float) -> Outcome:
    """A run that took half a second; `more` are further metrics."""
    metrics: dict[str, float | None] = {**dict.fromkeys(NUMERIC), "wall_s": 0.5, "cpu_s": 0.4, **more}
    return Outcome(Run(metrics, int(bool(failure)), False, digest, "fake"), digest, failure)


@dataclass
class FakeProgram:
    """Stands for an executor. Notes each run: the variable WHO, the input's name, the padding in bytes.

    Attributes:
        answer: WHO and the number of earlier runs → the outcome.
        made: the runs, in order.
    """

    answer: Callable[[str, int], Outcome] = lambda _who, _count: outcome()
    made: list[tuple[str, str, int]] = field(default_factory=list)

    def run(
        self, input_: Input, env: Mapping[str, str], pad: int = 0, _stop: threading.Event | None = None, /
    ) -> Outcome:
        """See `RunsInputs`."""
        who = env.get("WHO", "")
        count = len(self.made)
        self.made.append((who, input_.name, pad))
        return self.answer(who, count)

    def fingerprint(self) -> str:
        """Stands for all runs in their order, with their padding."""
        return hashlib.sha256(repr(self.made).encode()).hexdigest()[:16]


class MemoryStore:
    """A `RunStore` without a file."""

    def __init__(self) -> None:
        self.runs: dict[tuple[str, int, str, int], StoredRun] = {}
        self.starts: dict[str, PhaseStart] = {}

    def find_run(self, phase: str, block: int, input_: str, config: int) -> StoredRun | None:
        """See `RunStore`."""
        return self.runs.get((phase, block, input_, config))

    def add_run(self, run: StoredRun, _started: str) -> None:
        """See `RunStore`."""
        key = run.phase, run.block, run.input, run.config
        assert key not in self.runs
        self.runs[key] = run

    def forget_block(self, phase: str, block: int) -> None:
        """See `RunStore`."""
        self.runs = {key: run for key, run in self.runs.items() if key[:2] != (phase, block)}

    def phase_start(self, phase: str) -> PhaseStart | None:
        """See `RunStore`."""
        return self.starts.get(phase)

    def set_phase_start(self, phase: str, start: PhaseStart) -> None:
        """See `RunStore`."""
        self.starts[phase] = start


class FakeRunner:
    """Runs blocks one after the other and notes batches and cancellations."""

    def __init__(self, program: FakeProgram, slots: int = 1, on_other_machines: bool = False) -> None:
        self.program = program
        self.slots = slots
        self.on_other_machines = on_other_machines
        self.batches: list[list[Work]] = [[]]
        self.cancelled = 0

    def submit(self, work: Work) -> None:
        """See `Runner`."""
        self.batches[-1].append(work)

    def results(self) -> Generator[JobResult]:
        """See `Runner`."""
        for work in self.batches[-1]:
            yield from run_work(work, self.program)

    def cancel(self) -> None:
        """See `Runner`."""
        self.batches.append([])
        self.cancelled += 1
