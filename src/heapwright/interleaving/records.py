"""Defines the record of a run, and the protocol by which blocks find and store their runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec


@dataclass(frozen=True)
class StoredRun:
    """One run as stored. A run is identified by (phase, block, input, config).

    Attributes:
        phase: a `Phase`, or a phase of one pick or metric such as 'minify.PICK'.
        block: number within the phase; runs of one block are compared with each other.
        input: name of the input.
        config: id of the configuration.
        elapsed_s: wall time in seconds, with set-up and measuring; 0 where nothing was run.
        failure: why the run does not count, or empty.
        digest: stands for the run's output; equal digests mean equal outputs. Empty where outputs are not compared.
        metrics: metric key → value in the metric's unit; None where it was not measured. Empty for a failed run.
        extra: meter, threads, mappings (maps), processes, warnings, exit code, kind of machine (host), the machine
            if another one made the run (machine), memory by holder (parts), and the seconds of the study's time that
            the run cost (charged_s).
        series: memory over time: name of a column → its values; None where it is not kept.
    """

    phase: str
    block: int
    input: str
    config: int
    elapsed_s: float
    failure: str
    digest: str
    metrics: dict[str, float | None]
    extra: dict[str, Any]
    series: dict[str, list[float]] | None = None

    def charged_s(self, slots: int = 1) -> float:
        """Return the seconds of the study's time that the run cost (`interleaving.budget`).

        Studies of older versions store no charge. Then it is the run's own time divided by `slots`, the number of
        blocks that ran at once.
        """
        return float(self.extra.get("charged_s", self.elapsed_s / slots))


def by_block(runs: Sequence[StoredRun]) -> list[StoredRun]:
    """Return runs in the order of their blocks, within the order in which the stages began.

    Several blocks may run at once, and their runs end in another order each time. The order of blocks, and within a
    block, follows from the seed.
    """
    stages = {phase: number for number, phase in enumerate(dict.fromkeys(run.phase for run in runs))}
    return sorted(runs, key=lambda run: (stages[run.phase], run.block))


def metrics_by_input(runs: Iterable[StoredRun]) -> list[list[dict[str, float | None]]]:
    """Return the metrics of the runs that count, in one list for each input."""
    found: dict[str, list[dict[str, float | None]]] = {}
    for run in runs:
        if not run.failure:
            found.setdefault(run.input, []).append(run.metrics)
    return list(found.values())


class PhaseStart(msgspec.Struct, frozen=True):
    """The configurations that the blocks of a phase compare, and the number of its first block.

    Attributes:
        configs: ids of the configurations, the reference first.
        first: number of the phase's first block.
    """

    configs: list[int]
    first: int


class RunStore(Protocol):
    """Finds and stores the runs of blocks. `study.store.Store` is one."""

    def find_run(self, phase: str, block: int, input_: str, config: int, /) -> StoredRun | None:
        """Find a stored run.

        Args:
            phase: the run's phase.
            block: number of its block within the phase.
            input_: name of its input.
            config: id of its configuration.

        Returns:
            The run, or None if it is not stored.
        """
        ...

    def add_run(self, run: StoredRun, started: str, /) -> None:
        """Store a run that began at `started` (ISO time, UTC); on return it survives a crash of this process."""
        ...

    def forget_block(self, phase: str, block: int, /) -> None:
        """Remove the runs of a block."""
        ...

    def phase_start(self, phase: str, /) -> PhaseStart | None:
        """Return where the blocks of this phase begin; None if that was never stored."""
        ...

    def set_phase_start(self, phase: str, start: PhaseStart, /) -> None:
        """Store where the blocks of this phase begin."""
        ...
