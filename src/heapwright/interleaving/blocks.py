"""Measures blocks: the default (or another reference) and its candidates, in random order, close together in time.

Every measurement of a study goes through `Blocks`. A run that the store has is not made again. All others are made by a
`Runner`, and each is stored as soon as its result is known. Order and padding of a run follow from the seed and from
the run's phase, block, input and configuration (`interleaving.interleave`). So they do not depend on earlier runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from heapwright.errors import HeapwrightError
from heapwright.interleaving.budget import Budget, TypicalCost
from heapwright.interleaving.configuration import DEFAULT_ID, Config
from heapwright.interleaving.interleave import random_order, random_pad, submitted
from heapwright.interleaving.outputs import OutputCheck
from heapwright.interleaving.phases import Phase
from heapwright.interleaving.progress import Progress
from heapwright.interleaving.records import PhaseStart, RunStore, StoredRun
from heapwright.interleaving.runner import TRIES, Job, JobResult, Runner, Work
from heapwright.interruption import raise_if_interrupted
from heapwright.measure.host import this_host
from heapwright.units import is_plausible
from heapwright.workload.execute import advice, how_it_fails
from heapwright.workload.model import Input
from heapwright.workload.score import NO_OBJECTIVE

BLOCKS_APART = 1000  # blocks of a phase that begins anew are numbered from the next thousand
# Phases and blocks whose memory over time is stored.
_SERIES_OF = ((Phase.CONFIRM, 0), (Phase.CALIBRATE, 0), (Phase.CALIBRATE, 1))


class Blocks:
    """Measures blocks. Takes stored runs from the store and makes the others.

    Args:
        store: finds and keeps the runs.
        runner: makes the runs that are not stored.
        seed: determines order and padding.
        progress: is told of every run.
        budget: is charged for every run; no run begins after its deadline. None: no limit.

    Attributes:
        typical: the cost of one of these runs at present, in seconds.
        padded: whether runs get padding. Padding moves the stack, so that one place does not decide a timing. It also
            moves address space by a page, so runs that are only compared in address space have none.
        unusable: configuration id → why its settings do not take effect. Such a configuration is not run; its runs are
            stored as failures.
    """

    def __init__(
        self, store: RunStore, runner: Runner, seed: int, progress: Progress, budget: Budget | None = None
    ) -> None:
        self.store = store
        self.runner = runner
        self.seed = seed
        self.progress = progress
        self.budget = budget or Budget()
        self.typical = TypicalCost()
        self._outputs = OutputCheck()
        self._counted: set[tuple[str, int, str, int]] = set()  # runs that were charged: phase, block, input, config
        self.unusable: dict[int, str] = {}
        self.padded = True

    def phase(self, name: str, runs: int | None) -> None:
        """Report that a phase begins, with about `runs` runs to come (None: unknown), and how long it may take."""
        self.progress.phase(name, runs)
        if self.budget.limited:
            self.progress.limit(self.budget.limit_s - self.budget.spent_s)

    def seconds_of(self, configs: Sequence[Config]) -> float:
        """The cost of one run of each of these configurations, in seconds."""
        return sum(self.typical.of(config.id) for config in configs)

    def first_block(self, phase: str, configs: Sequence[Config]) -> int:
        """Return the number of a phase's first block.

        A phase begins anew, BLOCKS_APART further on, if it compares other configurations than last time because the
        budget grew. Runs of the default that were made days ago cannot be paired with fresh runs.
        """
        ids = [c.id for c in configs]
        start = self.store.phase_start(phase)
        if start is None or start.configs != ids:
            start = PhaseStart(ids, start.first + BLOCKS_APART if start else 0)
            self.store.set_phase_start(phase, start)
        return start.first

    def measure(self, phase: str, block: int, configs: Sequence[Config], inputs: Sequence[Input]) -> list[StoredRun]:
        """Measure one block: every configuration on every input.

        A candidate that fails on one input is not run on the block's other inputs. The deadline may cut a block short.

        Args:
            phase: the phase that the runs belong to.
            block: number of the block within the phase.
            configs: the configurations, the reference first.
            inputs: the inputs of the program.

        Returns:
            The block's runs. Those that were not made are missing.

        Raises:
            HeapwrightError: the default itself fails, or nothing can be run or stored.
        """
        return self.measure_all(phase, block, [configs], inputs)

    def measure_all(
        self, phase: str, first: int, groups: Sequence[Sequence[Config]], inputs: Sequence[Input]
    ) -> list[StoredRun]:
        """Measure several blocks, at the same time if the runner has several slots. See `measure`.

        Args:
            phase: the phase that the runs belong to.
            first: number of the first block within the phase; the others follow it.
            groups: the configurations of each block, the reference first.
            inputs: the inputs of the program.
        """
        raise_if_interrupted()
        planned = [
            plan for number, configs in enumerate(groups, first) for plan in self._plan(phase, number, configs, inputs)
        ]
        self._forget_partial_blocks(phase, planned)
        stored = {plan.key: run for plan in planned if (run := self._stored_run(plan)) is not None}
        for key, run in stored.items():
            if (phase, *key) not in self._counted:
                self.budget.recall(run.charged_s(self.runner.slots))
                self._count(run, fresh=False)
        works = [
            self._work([plan for plan in planned if plan.block == number], stored)
            for number in range(first, first + len(groups))
        ]
        if any(work.jobs for work in works) and not self.budget.passed():
            self._run(works, stored)
        made = [stored[plan.key] for plan in planned if plan.key in stored]
        for plan in planned:  # in the planned order, so that a resumed study sees the same
            if plan.key in stored and (phase, *plan.key) not in self._counted:
                self._counted.add((phase, *plan.key))
                if stored[plan.key].elapsed_s:
                    self.typical.add(stored[plan.key].charged_s(self.runner.slots), plan.config.id)
        return made

    def _run(self, works: Sequence[Work], stored: dict[tuple[int, str, int], StoredRun]) -> None:
        """Make and store the runs of these blocks, until the deadline. Adds them to `stored`."""
        with submitted(self.runner, works) as results:
            for result in results:
                run = self._store(result)
                stored[run.block, run.input, run.config] = run
                if self.budget.passed():
                    break

    def _plan(
        self, phase: str, block: int, configs: Sequence[Config], inputs: Sequence[Input]
    ) -> Iterator[_PlannedRun]:
        for input_ in inputs:
            for config in self._order(phase, block, configs, input_):
                yield _PlannedRun(phase, block, input_, config)

    def _order(self, phase: str, block: int, configs: Sequence[Config], input_: Input) -> list[Config]:
        """Return the order of a block: random, and in every second block the reverse of the one before.

        A run may leave cold pages, evicted files or heat for the next one. With two configurations the sequence is A B,
        B A, A B …, so each follows itself as often as the other. A new random order in each block would make three of
        four runs follow the other configuration.
        """
        drawn = 0 if len(configs) == 2 else block // 2
        order = random_order(configs, f"{self.seed}/{phase}/{drawn}/{input_.name}")
        return order[::-1] if block % 2 else order

    def _forget_partial_blocks(self, phase: str, planned: Sequence[_PlannedRun]) -> None:
        """Forget blocks that are stored in part, if the missing runs would be made on another machine.

        Other machines return whole blocks. A part of a block is left only by a coordinator that was killed while it
        stored the block.
        """
        for block in {plan.block for plan in planned}:
            found = {
                plan.key: self.store.find_run(phase, block, plan.input.name, plan.config.id)
                for plan in planned
                if plan.block == block
            }
            real = [run for run in found.values() if run is not None and run.extra]
            failed = {run.config for run in real if run.failure} | self.unusable.keys()
            missing = [key for key, run in found.items() if run is None and key[2] not in failed]
            if real and missing and (self.runner.on_other_machines or any(run.extra.get("machine") for run in real)):
                self.store.forget_block(phase, block)

    def _stored_run(self, plan: _PlannedRun) -> StoredRun | None:
        run = self.store.find_run(plan.phase, plan.block, plan.input.name, plan.config.id)
        why = self.unusable.get(plan.config.id)
        if run is None and why:  # its settings do not take effect, so there is nothing to measure
            run = StoredRun(plan.phase, plan.block, plan.input.name, plan.config.id, 0.0, why, "", {}, {})
            self.store.add_run(run, _now())
        return run

    def _pad(self, plan: _PlannedRun) -> int:
        if not self.padded:
            return 0
        return random_pad(f"{self.seed}/{plan.phase}/{plan.block}/{plan.input.name}/{plan.config.id}")

    def _work(self, planned: Sequence[_PlannedRun], stored: Mapping[tuple[int, str, int], StoredRun]) -> Work:
        failed = {plan.config.id for plan in planned if plan.key in stored and stored[plan.key].failure}
        return Work(
            tuple(
                Job(
                    plan.phase,
                    plan.block,
                    plan.input,
                    plan.config.id,
                    plan.config.env,
                    self._pad(plan),
                    TRIES if plan.config.is_default else 1,
                )
                for plan in planned
                if plan.key not in stored and plan.config.id not in failed
            )
        )

    def _store(self, result: JobResult) -> StoredRun:
        """Judge, charge and store a fresh result."""
        job, outcome = result.job, result.outcome
        default = job.config == DEFAULT_ID
        for failure in result.retried:
            self.progress.note(f"the default failed ({failure}); trying again")
        if default and outcome.failure:
            on = f" on input '{job.input.name}'" if job.input.name != "default" else ""
            what = "the objective" if outcome.failure.startswith(NO_OBJECTIVE) else "the command"
            succeeded = self._outputs.seen(job.input.name) > 0
            why = outcome.failure.removeprefix(NO_OBJECTIVE)
            raise HeapwrightError(
                f"{what} {how_it_fails(succeeded)}{on}, with nothing changed: {why}", advice(outcome, succeeded)
            )
        failure = outcome.failure
        if not failure and not default:
            failure = self._outputs.difference(job.input.name, outcome.digest, outcome.run.metrics, "the default")
        if self.runner.on_other_machines:
            charged_s = self.budget.charge_elsewhere(result.elapsed_s / self.runner.slots)
        else:
            charged_s = self.budget.charge()
        run = _stored(result, failure, charged_s)
        self.store.add_run(run, result.started)
        self._count(run, fresh=True)
        return run

    def _count(self, run: StoredRun, fresh: bool) -> None:
        if run.config == DEFAULT_ID and self._outputs.learn(run.input, run.digest, run.metrics):
            self.progress.note("the default's output differs from run to run: equal output is not required")
        self.progress.ran(fresh)


@dataclass(frozen=True)
class _PlannedRun:
    """A run that a block consists of, whether it is stored or not."""

    phase: str
    block: int
    input: Input
    config: Config

    @property
    def key(self) -> tuple[int, str, int]:
        return self.block, self.input.name, self.config.id


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _stored(result: JobResult, failure: str, charged_s: float) -> StoredRun:
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
        {} if failure else {key: v if v is None or is_plausible(v) else None for key, v in run.metrics.items()},
        extra,
        run.series if keep_series else None,
    )
