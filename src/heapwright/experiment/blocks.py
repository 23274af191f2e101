"""Blocks: the default (or another reference) and its candidates, in random order, side by side in time.

Every measurement of a study goes through `Blocks.measure`. It first looks into the store; only what is not
there is run, by a `Runner`, and committed as soon as its result is here. Order and environment padding come from the
seed and the block's place, never from a running generator, so they do not depend on what was run before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from heapwright.errors import HeapwrightError
from heapwright.experiment.budget import Budget, Typical
from heapwright.experiment.configuration import DEFAULT_ID, Config
from heapwright.experiment.interleave import random_order, random_pad, submitted
from heapwright.experiment.outputs import OutputCheck
from heapwright.experiment.phases import Phase
from heapwright.experiment.progress import Progress
from heapwright.experiment.records import PhaseStart, RunStore, StoredRun
from heapwright.experiment.runner import TRIES, Job, Result, Runner, Work
from heapwright.measure.host import this_host
from heapwright.workload.execute import advice
from heapwright.workload.model import Input

BLOCKS_APART = 1000  # blocks of a phase that begins anew are numbered from the next thousand
# Phases and blocks whose memory over time is stored.
_SERIES_OF = ((Phase.CONFIRM, 0), (Phase.CALIBRATE, 0), (Phase.CALIBRATE, 1))


class Blocks:
    """Measures blocks, from the store where it can.

    Args:
        runner: makes the runs that are not stored.
        budget: what the runs are charged to; no run begins after its deadline. None: no limit.

    Attributes:
        typical: what one of these runs costs at present.
    """

    def __init__(
        self, store: RunStore, runner: Runner, seed: int, progress: Progress, budget: Budget | None = None
    ) -> None:
        self.store = store
        self.runner = runner
        self.seed = seed
        self.progress = progress
        self.budget = budget or Budget()
        self.typical = Typical()
        self._outputs = OutputCheck()
        self.unusable: dict[int, str] = {}

    def phase(self, name: str, runs: int | None) -> None:
        """Say that a phase begins, with about so many runs to come, and how long it may take."""
        self.progress.phase(name, runs)
        if self.budget.limited:
            self.progress.limit(self.budget.limit_s - self.budget.spent_s)

    def first_block(self, phase: str, configs: Sequence[Config]) -> int:
        """The number of a phase's first block.

        A phase that compares other configurations than last time, because the budget grew, begins anew: runs of
        the default made days ago are no partners of fresh ones.
        """
        ids = [c.id for c in configs]
        start = self.store.phase_start(phase)
        if start is None or start.configs != ids:
            start = PhaseStart(ids, start.first + BLOCKS_APART if start else 0)
            self.store.set_phase_start(phase, start)
        return start.first

    def measure(self, phase: str, block: int, configs: Sequence[Config], inputs: Sequence[Input]) -> list[StoredRun]:
        """One block: every configuration on every input. The first configuration is the reference.

        A candidate that fails on one input is not run on the rest of the block's inputs. The deadline may cut a block
        short: the runs that were not made are missing from the result.

        Raises:
            HeapwrightError: the default itself fails, or nothing can be run or stored.
        """
        return self.measure_all(phase, block, [configs], inputs)

    def measure_all(
        self, phase: str, first: int, groups: Sequence[Sequence[Config]], inputs: Sequence[Input]
    ) -> list[StoredRun]:
        """Several blocks, numbered from `first`, at once where the runner can. See `measure`."""
        places = [
            place
            for number, configs in enumerate(groups, first)
            for place in self._places(phase, number, configs, inputs)
        ]
        self._forget_halves(phase, places)
        stored = {place.key: run for place in places if (run := self._stored_run(place)) is not None}
        for run in stored.values():
            self.budget.recall(run.charged_s(self.runner.slots))
            self._count(run, fresh=False)
        works = [
            self._work([p for p in places if p.block == number], stored) for number in range(first, first + len(groups))
        ]
        if any(work.jobs for work in works) and not self.budget.passed():
            self._run(works, stored)
        made = [stored[place.key] for place in places if place.key in stored]
        for run in made:  # in the order of their places: a resumed study must see the same
            if run.elapsed_s:
                self.typical.add(run.charged_s(self.runner.slots))
        return made

    def _run(self, works: Sequence[Work], stored: dict[tuple[int, str, int], StoredRun]) -> None:
        """Makes and stores the runs of these blocks, until the deadline."""
        with submitted(self.runner, works) as results:
            for result in results:
                run = self._kept(result)
                stored[run.block, run.input, run.config] = run
                if self.budget.passed():
                    break

    def _places(self, phase: str, block: int, configs: Sequence[Config], inputs: Sequence[Input]) -> Iterator[_RunKey]:
        for input_ in inputs:
            for config in random_order(configs, f"{self.seed}/{phase}/{block}/{input_.name}"):
                yield _RunKey(phase, block, input_, config)

    def _forget_halves(self, phase: str, places: Sequence[_RunKey]) -> None:
        """Removes what is stored of half a block, where its other half would be run on another machine.

        Blocks that go to other machines come back whole; only a coordinator killed while it stores one leaves a half.
        """
        for block in {p.block for p in places}:
            found = {
                p.key: self.store.find_run(phase, block, p.input.name, p.config.id) for p in places if p.block == block
            }
            real = [run for run in found.values() if run is not None and run.extra]
            failed = {run.config for run in real if run.failure} | self.unusable.keys()
            missing = [key for key, run in found.items() if run is None and key[2] not in failed]
            if real and missing and (self.runner.elsewhere or any(run.extra.get("machine") for run in real)):
                self.store.forget_block(phase, block)

    def _stored_run(self, place: _RunKey) -> StoredRun | None:
        run = self.store.find_run(place.phase, place.block, place.input.name, place.config.id)
        why = self.unusable.get(place.config.id)
        if run is None and why:  # known not to take effect: nothing to measure
            run = StoredRun(place.phase, place.block, place.input.name, place.config.id, 0.0, why, "", {}, {})
            self.store.add_run(run, _now())
        return run

    def _work(self, places: Sequence[_RunKey], stored: Mapping[tuple[int, str, int], StoredRun]) -> Work:
        failed = {p.config.id for p in places if p.key in stored and stored[p.key].failure}
        return Work(
            tuple(
                Job(
                    place.phase,
                    place.block,
                    place.input,
                    place.config.id,
                    place.config.env,
                    random_pad(f"{self.seed}/{place.phase}/{place.block}/{place.input.name}/{place.config.id}"),
                    TRIES if place.config.is_default else 1,
                )
                for place in places
                if place.key not in stored and place.config.id not in failed
            )
        )

    def _kept(self, result: Result) -> StoredRun:
        """A fresh result, judged and stored."""
        job, outcome = result.job, result.outcome
        default = job.config == DEFAULT_ID
        for failure in result.retried:
            self.progress.note(f"the default failed ({failure}); trying again")
        if default and outcome.failure:
            on = f" on input '{job.input.name}'" if job.input.name != "default" else ""
            raise HeapwrightError(
                f"the command fails by itself{on}, with nothing changed: {outcome.failure}",
                advice(outcome),
            )
        failure = outcome.failure
        if not failure and not default and self._outputs.changed(job.input.name, outcome.digest):
            failure = "its output differs from the default's"
        if self.runner.elsewhere:
            charged_s = self.budget.charge_elsewhere(result.elapsed_s / self.runner.slots)
        else:
            charged_s = self.budget.charge()
        run = _stored(result, failure, charged_s)
        self.store.add_run(run, result.started)
        self._count(run, fresh=True)
        return run

    def _count(self, run: StoredRun, fresh: bool) -> None:
        if run.config == DEFAULT_ID and self._outputs.learn(run.input, run.digest):
            self.progress.note("the default's output differs from run to run: equal output is not required")
        self.progress.ran(fresh)


@dataclass(frozen=True)
class _RunKey:
    """Where a run stands."""

    phase: str
    block: int
    input: Input
    config: Config

    @property
    def key(self) -> tuple[int, str, int]:
        return self.block, self.input.name, self.config.id


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _stored(result: Result, failure: str, charged_s: float) -> StoredRun:
    job, run = result.job, result.outcome.run
    keep_series = (job.phase, job.block % BLOCKS_APART) in _SERIES_OF and not failure
    extra = {
        "exit_code": run.exit_code,
        "meter": run.meter,
        "threads": run.max_threads,
        "maps": run.max_maps,
        "processes": run.max_processes,
        "warnings": run.warnings,
        "host": result.host or this_host(),
        "charged_s": charged_s,
    }
    if result.machine:
        extra["machine"] = result.machine
    if run.parts is not None:
        extra["parts"] = msgspec.to_builtins(run.parts)
    return StoredRun(
        job.phase,
        job.block,
        job.input.name,
        job.config,
        result.elapsed_s,
        failure,
        result.outcome.digest,
        {} if failure else run.metrics,
        extra,
        run.series if keep_series else None,
    )
