"""Log ratios of configurations to the default, gathered from the runs of blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from heapwright.experiment.configuration import Config
from heapwright.experiment.records import StoredRun
from heapwright.experiment.stats import log_ratio

# (input, metric) → what the program as it is measures.
Program = Mapping[tuple[str, str], float]


@dataclass
class Candidate:
    """What is known of one configuration against the default: log ratios by metric and input."""

    config: Config
    failure: str = ""
    runs: int = 0
    logs: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, run: StoredRun, reference: StoredRun, program: Program | None = None) -> None:
        """Takes in a run and the reference run of its block and input; see `gather` for `program`."""
        if run.failure:
            self.failure = self.failure or run.failure
            return
        self.runs += 1
        for metric, value in run.metrics.items():
            then = reference.metrics.get(metric)
            if program is not None:
                value, then = _predicted(value, then, program.get((run.input, metric)))
            ratio = log_ratio(value, then)
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


def gather(
    runs: Sequence[StoredRun], configs: Mapping[int, Config], reference: int, program: Program | None = None
) -> dict[int, Candidate]:
    """Runs of any number of blocks as candidates, each against the reference run of its block and input.

    Args:
        program: the runs are replays, and this is what the program itself measures as it is: ratios are then those
            predicted for the program.
    """
    base = {(r.phase, r.block, r.input): r for r in runs if r.config == reference and not r.failure}
    found: dict[int, Candidate] = {}
    for run in runs:
        if run.config == reference:
            continue
        candidate = found.setdefault(run.config, Candidate(configs[run.config]))
        against = base.get((run.phase, run.block, run.input))
        if against is not None and not _same_kind(run, against):
            against = None
        if run.failure or against is not None:
            candidate.add(run, against or run, program)
    return found


def _same_kind(one: StoredRun, other: StoredRun) -> bool:
    """Whether two runs are of one kind of machine; those of a study of before are."""
    kinds = {one.extra.get("host"), other.extra.get("host")} - {None}
    return len(kinds) < 2


def _predicted(
    value: float | None, reference: float | None, program: float | None
) -> tuple[float | None, float | None]:
    """What a replay and its reference say of the program: it changes by as much, in the metric's own unit.

    A program is more than its allocations: 10 ms less in a replay are 10 ms less of the program's time too. What a
    replay cannot tell is never taken for a gain of more than nineteen twentieths.
    """
    if value is None or reference is None or not program:
        return None, None
    return max(program + value - reference, program / 20), program
