"""Blocks: the default (or another reference) and its candidates, in random order, side by side in time.

Every measurement of a study goes through `Blocks.measure`. It first looks into the store; only what is not
there is run, and it is committed before the next run starts. Order and environment padding come from the
seed and the block's place, never from a running generator, so they do not depend on what was run before.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from heapwright.errors import HeapwrightError
from heapwright.study.options import BLOCKS_APART
from heapwright.study.stats import log_ratio
from heapwright.study.store import Store, StoredRun
from heapwright.study.view import Config
from heapwright.workload.execute import Executor, Outcome
from heapwright.workload.model import Input

_DEFAULT_TRIES = 3
_PAD = 4096  # a page: covers every alignment of the stack


class Progress(Protocol):
    """What a study tells whoever watches. Called from the measuring thread."""

    def phase(self, name: str, runs: int | None) -> None:
        """A phase begins, with about so many runs to come (None: unknown)."""
        ...

    def ran(self, fresh: bool) -> None:
        """A run ended (or was found in the store: not fresh)."""
        ...

    def best(self, text: str) -> None:
        """The best so far, in a few words."""
        ...

    def note(self, text: str) -> None:
        """Something the user should know."""
        ...


@dataclass
class Candidate:
    """What is known of one configuration against the default: log ratios by metric and input."""

    config: Config
    failure: str = ""
    runs: int = 0
    logs: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, run: StoredRun, reference: StoredRun) -> None:
        """Takes in a run and the reference run of its block and input."""
        if run.failure:
            self.failure = self.failure or run.failure
            return
        self.runs += 1
        for metric, value in run.metrics.items():
            ratio = log_ratio(value, reference.metrics.get(metric))
            if ratio is not None:
                self.logs.setdefault(metric, {}).setdefault(run.input, []).append(ratio)

    def cost(self, metric: str) -> float | None:
        """The mean over inputs of the mean log ratio; None where the metric was not measured."""
        groups = self.logs.get(metric)
        if not groups:
            return None
        return sum(sum(g) / len(g) for g in groups.values()) / len(groups)

    def costs(self, metrics: Sequence[str]) -> tuple[float, ...] | None:
        """All objectives, or None for what is infeasible."""
        values = [self.cost(m) for m in metrics]
        if self.failure or any(v is None for v in values):
            return None
        return tuple(v for v in values if v is not None)


class Blocks:
    """Measures blocks, from the store where it can."""

    def __init__(self, store: Store, executor: Executor, seed: int, progress: Progress) -> None:
        self.store = store
        self.executor = executor
        self.seed = seed
        self.progress = progress
        self._reference_digests: dict[str, str] = {}
        self._unstable_output: set[str] = set()
        self.spent_s = 0.0
        self.unusable: dict[int, str] = {}

    def first_block(self, phase: str, configs: Sequence[Config]) -> int:
        """The number of a phase's first block.

        A phase that compares other configurations than last time, because the budget grew, begins anew: runs of
        the default made days ago are no partners of fresh ones.
        """
        ids = [c.id for c in configs]
        begun = self.store.get(f"begun.{phase}")
        if begun is None or begun["configs"] != ids:
            begun = {"configs": ids, "first": begun["first"] + BLOCKS_APART if begun else 0}
            self.store.put({f"begun.{phase}": begun})
        return int(begun["first"])

    def measure(self, phase: str, block: int, configs: Sequence[Config], inputs: Sequence[Input]) -> list[StoredRun]:
        """One block: every configuration on every input. The first configuration is the reference.

        A candidate that fails on one input is not run on the rest of the block's inputs.

        Raises:
            HeapwrightError: the default itself fails, or nothing can be run or stored.
        """
        runs: list[StoredRun] = []
        failed: set[int] = set()
        for input_ in inputs:
            place = random.Random(f"{self.seed}/{phase}/{block}/{input_.name}")
            order = list(configs)
            place.shuffle(order)
            for config in order:
                if config.id in failed:
                    continue
                pad = random.Random(f"{self.seed}/{phase}/{block}/{input_.name}/{config.id}").randrange(_PAD)
                run = self._one(phase, block, input_, config, pad)
                runs.append(run)
                if run.failure:
                    failed.add(config.id)
        return runs

    def _one(self, phase: str, block: int, input_: Input, config: Config, pad: int) -> StoredRun:
        run = self.store.find_run(phase, block, input_.name, config.id)
        fresh = run is None
        if run is None:
            run, started = self._fresh(phase, block, input_, config, pad)
            self.store.add_run(run, started)
        if config.is_default:
            self._learn_output(run)
        self.spent_s += run.elapsed_s
        self.progress.ran(fresh)
        return run

    def _fresh(self, phase: str, block: int, input_: Input, config: Config, pad: int) -> tuple[StoredRun, str]:
        failure = self.unusable.get(config.id, "")
        for attempt in range(_DEFAULT_TRIES if config.is_default else 1):
            started, began = datetime.now(UTC).isoformat(timespec="milliseconds"), time.monotonic()
            if failure:  # known not to take effect: nothing to measure
                return _stored(phase, block, input_, config, None, 0.0, failure), started
            outcome = self.executor.run(input_, config.env, pad + attempt)
            failure = outcome.failure or self._changed_output(input_, config, outcome)
            run = _stored(phase, block, input_, config, outcome, time.monotonic() - began, failure)
            if not failure or not config.is_default:
                return run, started
            if attempt + 1 < _DEFAULT_TRIES:
                self.progress.note(f"the default failed ({failure}); trying again")
                failure = ""
        last = outcome.run.stderr_tail.strip().splitlines()[-1:]
        on = f" on input '{input_.name}'" if input_.name != "default" else ""
        raise HeapwrightError(
            f"the command fails by itself{on}, with nothing changed: {failure}",
            f"its last words: {last[0][:200]}" if last else "run it by hand first; it must succeed and end",
        )

    def _learn_output(self, run: StoredRun) -> None:
        """The default's first output is the reference; one that changes by itself cannot be compared."""
        reference = self._reference_digests.setdefault(run.input, run.digest)
        if run.digest != reference and run.input not in self._unstable_output:
            self._unstable_output.add(run.input)
            self.progress.note("the default's output differs from run to run: equal output is not required")

    def _changed_output(self, input_: Input, config: Config, outcome: Outcome) -> str:
        if config.is_default or input_.name in self._unstable_output:
            return ""
        same = outcome.digest == self._reference_digests.get(input_.name, outcome.digest)
        return "" if same else "its output differs from the default's"


def _stored(
    phase: str,
    block: int,
    input_: Input,
    config: Config,
    outcome: Outcome | None,
    elapsed: float,
    failure: str,
) -> StoredRun:
    if outcome is None:
        return StoredRun(phase, block, input_.name, config.id, elapsed, failure, "", {}, {})
    run = outcome.run
    keep_series = (phase, block % BLOCKS_APART) in (("confirm", 0), ("calibrate", 1)) and not failure
    extra = {
        "exit_code": run.exit_code,
        "meter": run.meter,
        "threads": run.max_threads,
        "maps": run.max_maps,
        "warnings": run.warnings,
    }
    return StoredRun(
        phase,
        block,
        input_.name,
        config.id,
        elapsed,
        failure,
        outcome.digest,
        {} if failure else run.metrics,
        extra,
        run.series if keep_series else None,
    )


def gather(runs: Sequence[StoredRun], configs: dict[int, Config], reference: int) -> dict[int, Candidate]:
    """Runs of any number of blocks as candidates, each against the reference run of its block and input."""
    base = {(r.phase, r.block, r.input): r for r in runs if r.config == reference and not r.failure}
    found: dict[int, Candidate] = {}
    for run in runs:
        if run.config == reference:
            continue
        candidate = found.setdefault(run.config, Candidate(configs[run.config]))
        against = base.get((run.phase, run.block, run.input))
        if run.failure or against is not None:
            candidate.add(run, against or run)
    return found
