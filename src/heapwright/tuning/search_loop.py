"""Searches a parameter space with one evaluator: the program itself, or replays of its allocations.

The loop is ask, evaluate, tell. The strategy proposes points. Each rendered environment is evaluated once, in blocks
with the default. The strategy receives the costs; on replays these are the costs predicted for the program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from heapwright.allocators.space import Point, Space
from heapwright.interleaving.blocks import Blocks
from heapwright.interleaving.budget import Budget
from heapwright.interleaving.candidates import Candidate, gather
from heapwright.interleaving.configuration import Config
from heapwright.interleaving.records import StoredRun
from heapwright.metrics import METRICS
from heapwright.search.protocol import Observation, Setup, Strategy
from heapwright.study import options as opt
from heapwright.study.options import Options
from heapwright.study.policy import aims_of
from heapwright.tuning.config_cache import ConfigCache
from heapwright.units import percent
from heapwright.workload.model import Input

_STALE_BATCHES = 20  # batches in a row without a new configuration: the space is exhausted


@dataclass(frozen=True)
class Evaluator:
    """Measures the points of a search.

    Attributes:
        phase: the phase under which its runs are stored.
        blocks: measures configurations in blocks with the default.
        to_candidates: turns runs of this evaluator into candidates of the program; None: the program makes the runs.
        noise: standard deviation of one cost, by objective; empty if unknown.
    """

    phase: str
    blocks: Blocks
    to_candidates: Callable[[Sequence[StoredRun]], dict[int, Candidate]] | None = None
    noise: tuple[float, ...] = ()


class Search:
    """One search.

    Args:
        space: the parameter space.
        evaluator: measures points.
        config_cache: turns settings into configurations.
        options: the study's options.
        inputs: the inputs to run.
        budget: the study's time; the limit of its present stage bounds the search.
        initial_runs: runs of this evaluator that count already.
        keep: receives `generations` after each batch with new configurations.

    Attributes:
        not_repeated: configurations that the strategy proposed before an interruption and does not propose again. This
            happens if it is not deterministic, or if its code or the budget changed. They count for the budget.
        generations: configuration → the batch that first proposed it; 0 for those tried before the strategy began.
        runs: all runs of this search.
        known: candidates by configuration; no environment runs twice.
    """

    def __init__(
        self,
        space: Space,
        evaluator: Evaluator,
        config_cache: ConfigCache,
        options: Options,
        inputs: Sequence[Input],
        budget: Budget,
        initial_runs: Sequence[StoredRun] = (),
        keep: Callable[[dict[int, int]], None] = lambda _: None,
    ) -> None:
        self.not_repeated: set[int] = set()
        self._earlier: dict[int, list[StoredRun]] = {}  # block → its stored runs of candidates
        self._stored_configs: set[int] = set()  # their configurations
        self.generations: dict[int, int] = {}
        self._keep = keep
        self._generation = 0
        self.space = space
        self.evaluator = evaluator
        self.config_cache = config_cache
        self.options = options
        self.inputs = inputs
        self.budget = budget
        self.runs = list(initial_runs)
        self.known: dict[int, Candidate] = {}
        self._block = 0
        self._gather()

    def note_stored_runs(self, earlier: Sequence[StoredRun]) -> None:
        """Take note of the stored runs of this search, from before an interruption."""
        for run in earlier:
            if run.config != self.config_cache.default.id:
                self._earlier.setdefault(run.block, []).append(run)
                self._stored_configs.add(run.config)

    def run(
        self,
        begin: Sequence[Point],
        make: Callable[[Setup], Strategy],
        watch: Callable[[], bool] = lambda: True,
    ) -> None:
        """Search until the budget is spent, the strategy ends, or no new configuration comes.

        Args:
            begin: points to evaluate first.
            make: makes the strategy, which starts from these evaluations.
            watch: called after every batch; False ends the search.
        """
        options = self.options
        blocks = (opt.BLOCK + 1) / opt.BLOCK
        expected = round(options.evaluations * blocks * len(self.inputs)) if options.evaluations else None
        self.evaluator.blocks.phase(self.evaluator.phase, expected)
        known = self._evaluate(begin)
        strategy = make(
            Setup(
                self.space,
                len(options.objectives),
                options.evaluations,
                options.seed,
                tuple(known),
                self.evaluator.noise,
            )
        )
        stale = 0
        while stale < _STALE_BATCHES and not self.enough() and watch():
            points = strategy.ask()
            if not points:
                stale = _STALE_BATCHES
                break
            before = len(self.known)
            self._generation += 1
            observed = self._evaluate(points)
            if len(observed) < len(points):  # the budget ended within the batch
                break
            stale = 0 if len(self.known) > before else stale + 1
            strategy.tell(observed)
        if stale == _STALE_BATCHES and self.known and not self.enough() and options.evaluations:
            count = f"{len(self.known)} of {options.evaluations} configurations"
            why = "because the method proposes nothing new"
            self.evaluator.blocks.progress.note(f"the search ends after {count}, {why}")
        if self.not_repeated:
            for number in self.not_repeated:
                self.config_cache.recall(number)
            self.runs += [run for runs in self._earlier.values() for run in runs if run.config in self.not_repeated]
            self._gather()

    def enough(self) -> bool:
        """Whether the search's budget is spent."""
        evaluations = self.options.evaluations
        return self._no_time_for(2) or (bool(evaluations) and len(self.known) >= evaluations)

    def _no_time_for(self, runs: int) -> bool:
        """Whether a block with so many runs of each input would exceed the search's time."""
        return self.budget.over(runs * len(self.inputs) * self.evaluator.blocks.typical.seconds)

    def measure(self, configs: Sequence[Config]) -> None:
        """Measure configurations in blocks with the default, as far as the time allows."""
        default, slots = self.config_cache.default, self.evaluator.blocks.runner.slots
        size = min(opt.BLOCK, math.ceil(len(configs) / slots)) or 1
        groups = [[default, *configs[at : at + size]] for at in range(0, len(configs), size)]
        for start in range(0, len(groups), slots):
            now = groups[start : start + slots]
            if self._no_time_for(sum(map(len, now))):
                now = self._first_that_fit(now[0])
            if not now:
                break
            fresh = self.evaluator.blocks.measure_all(self.evaluator.phase, self._block, now, self.inputs)
            self.runs += fresh
            self._find_not_repeated(now)
            self._block += len(now)
            self._gather(fresh)

    def _find_not_repeated(self, groups: Sequence[Sequence[Config]]) -> None:
        """Compare the next blocks with the stored runs of the same blocks."""
        for number, group in enumerate(groups, self._block):
            planned = {config.id for config in group}
            self.not_repeated |= {run.config for run in self._earlier.get(number, ()) if run.config not in planned}

    def _affordable(self, configs: Sequence[Config]) -> list[Config]:
        """Return the configurations that the budget of evaluations holds, besides those that it has paid for."""
        if not self.options.evaluations:
            return list(configs)
        left = self.options.evaluations - len(self.known.keys() | self._stored_configs)
        found = []
        for config in configs:
            if config.id not in self._stored_configs:
                left -= 1
            if config.id in self._stored_configs or left >= 0:
                found.append(config)
        return found

    def _first_that_fit(self, group: Sequence[Config]) -> list[list[Config]]:
        """A block of as many of these as the time holds: none of the search's time is left over."""
        size = len(group)
        while size > 1 and self._no_time_for(size):
            size -= 1
        return [list(group[:size])] if size > 1 else []

    def feasible(self) -> list[Candidate]:
        """The candidates that did not fail and have all objectives."""
        return [c for c in self.known.values() if c.costs(self.options.objectives) is not None]

    def _gather(self, fresh: Sequence[StoredRun] | None = None) -> None:
        """Update `known`.

        Blocks of new configurations are gathered alone, because a search of thousands would otherwise spend its time
        on gathering all its runs after each block.

        Args:
            fresh: the runs of whole blocks that are new; None: all runs are.
        """
        config_cache, default = self.config_cache, self.config_cache.default.id
        self.evaluator.blocks.unusable = config_cache.unusable
        if self.evaluator.to_candidates is not None:
            self.known = self.evaluator.to_candidates(self.runs)
        elif fresh is None or any(run.config in self.known for run in fresh):
            self.known = gather(self.runs, config_cache.configs, default)
        else:
            self.known |= gather(fresh, config_cache.configs, default)

    def _evaluate(self, points: Sequence[Point]) -> list[Observation]:
        """Evaluate points; points that the budget does not reach are left out of the result."""
        options, default = self.options, self.config_cache.default
        asked = [self.config_cache.config(self.space, self.space.settings(p)) for p in points]
        unknown = {c.id: c for c in asked if c.id not in self.known and c.id != default.id}
        new = self._affordable(list(unknown.values()))
        if new:
            for config in new:
                self.generations.setdefault(config.id, self._generation)
            self._keep(self.generations)
        self.measure(new)
        self._report_best()
        for config in new:
            candidate = self.known.get(config.id)
            costs = candidate.costs(options.objectives) if candidate else None
            if costs is not None:
                ratios = {key: math.exp(cost) for key, cost in zip(options.objectives, costs, strict=True)}
                self.evaluator.blocks.progress.tried(config, ratios)
        zero, aims = (0.0,) * len(options.objectives), aims_of(options)
        return [
            Observation(p, zero if c.id == default.id else aims.costs(self.known[c.id]))
            for p, c in zip(points, asked, strict=True)
            if c.id in self.known or c.id == default.id
        ]

    def _report_best(self) -> None:
        parts = []
        feasible = self.feasible()
        for metric in self.options.objectives:
            costs = [cost for c in feasible if (cost := c.cost(metric)) is not None]
            if costs:
                parts.append(f"{METRICS[metric].label} {percent(math.exp(min(costs)))}")
        if parts:
            what = "best predicted" if self.evaluator.to_candidates else "best single runs"
            self.evaluator.blocks.progress.best(f"{what}: {', '.join(parts)}")
