"""Screens allocators: which ones a study searches, and in which order.

    does it take over?  ──►  measure it at its defaults, in blocks with the program as it is  ──►  sort, best first
        └─ no: reported, not searched          └─ fails: reported, not searched

The choice of the allocator changes memory and time more than most settings do, and screening costs one run for each
allocator. The best allocator has index 0, which a Sobol sequence draws half of the time. Under a time budget the
allocators are screened in groups; allocators for which the stage has no time left are not searched. The stage's time is
planned in runs. A test whether an allocator takes over costs more than a run of a short program, because the loader is
asked first: the rest of its cost extends the stage's time, up to a share of the study's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from heapwright.allocators.registry import Allocator
from heapwright.allocators.space import Space
from heapwright.interleaving.blocks import Blocks
from heapwright.interleaving.candidates import Candidate, gather
from heapwright.interleaving.configuration import Config
from heapwright.interleaving.phases import Phase
from heapwright.interleaving.records import StoredRun
from heapwright.study.options import BLOCK
from heapwright.study.store import Store
from heapwright.tuning.config_cache import ConfigCache
from heapwright.tuning.takeover_check import NO_TIME, take_over
from heapwright.workload.execute import Executor
from heapwright.workload.model import Workload

ROUNDS = 2
_MAX_EXTENSION = 0.2  # of the study's time that is left when the stage begins


@dataclass(frozen=True)
class ScreenedAllocator:
    """An allocator that takes over: the allocator as it must be preloaded, its space and its default configuration."""

    allocator: Allocator
    space: Space
    config: Config


@dataclass
class ScreeningResult:
    """The result of screening.

    Attributes:
        accepted: allocators that take over, by name.
        runs: their runs at their defaults.
        rejected: allocators that are not searched → why.
    """

    accepted: dict[str, ScreenedAllocator] = field(default_factory=dict)
    runs: list[StoredRun] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)


def screen_allocators(
    store: Store,
    executor: Executor,
    allocators: Sequence[Allocator],
    blocks: Blocks,
    config_cache: ConfigCache,
    space_of: Callable[[Allocator], Space],
    workload: Workload,
) -> ScreeningResult:
    """Test which allocators take over, and measure each of them at its defaults, in blocks with the default.

    Args:
        store: the study; it keeps the answers.
        executor: runs the program.
        allocators: the candidates, in the user's order.
        blocks: measures; its budget limits the stage.
        config_cache: makes configurations.
        space_of: returns the parameter space of an allocator.
        workload: the program and its inputs.
    """
    found, default = ScreeningResult(), config_cache.default
    budget, inputs = blocks.budget, workload.train
    blocks.phase(Phase.ALLOCATORS, round(ROUNDS * len(allocators) * (1 + 1 / BLOCK)) * len(inputs))
    chunks: list[list[Config]] = []

    def measure(new: Sequence[Sequence[Config]], first: int) -> None:
        """Measure chunks, numbered from `first`, as far as the stage's time allows."""
        together = 1 if budget.limited else max(1, len(new))
        for at in range(0, len(new), together):
            groups = [[default, *chunk] for chunk in new[at : at + together]]
            if not budget.over(sum(map(len, groups)) * len(inputs) * blocks.typical.seconds):
                found.runs += blocks.measure_all(Phase.ALLOCATORS, first + at, groups, inputs)

    def fitting() -> int:
        """The number of allocators that can be tested and measured once in the time left."""
        if not budget.limited:
            return len(allocators)
        runs = (budget.limit_s - budget.spent_s) / max(blocks.typical.seconds, 1e-9)
        return max(0, min(BLOCK, int((runs - len(inputs)) / (1 + len(inputs)))))

    extension_s = _MAX_EXTENSION * budget.left_s
    waiting = list(allocators)
    while waiting and (size := fitting()):
        configs = []
        for allocator in waiting[:size]:
            before_s = budget.spent_s
            able, why = take_over(store, executor, allocator, config_cache.base, workload, budget)
            beyond_s = min(extension_s, max(0.0, budget.spent_s - before_s - blocks.typical.seconds))
            extension_s -= beyond_s
            budget.extend(beyond_s)
            if able is None:
                found.rejected[allocator.name] = why
                continue
            space = space_of(able)
            screened = found.accepted[allocator.name] = ScreenedAllocator(able, space, config_cache.config(space, {}))
            configs += [screened.config] if screened.config.id != default.id else []
        new = [configs[at : at + BLOCK] for at in range(0, len(configs), BLOCK)]
        measure(new, len(chunks))
        chunks, waiting = [*chunks, *new], waiting[size:]
    if not found.accepted and waiting:  # no time to test any: the first one may be the program as it is
        space = space_of(waiting[0])
        found.accepted[waiting[0].name] = ScreenedAllocator(waiting[0], space, config_cache.config(space, {}))
    found.rejected |= {allocator.name: NO_TIME for allocator in waiting if allocator.name not in found.accepted}
    for again in range(1, ROUNDS):
        measure(chunks, again * len(allocators))
    reached = {run.config for run in found.runs} | {default.id}
    for name in [name for name, screened in found.accepted.items() if screened.config.id not in reached]:
        del found.accepted[name]
        found.rejected[name] = NO_TIME
    return found


def rank_allocators(
    runs: Sequence[StoredRun], default: Config, configs: Mapping[str, Config], objectives: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """Sort the allocators that work, lowest sum of costs first.

    Args:
        runs: the runs of the screening.
        default: the configuration that ratios refer to.
        configs: configuration of each allocator at its defaults, by name.
        objectives: metric keys.

    Returns:
        Names in order, and why other allocators fail. Of equal allocators, the default's comes first, then the one
        named earlier.
    """
    found = gather(runs, {c.id: c for c in configs.values()}, default.id)
    failures: dict[str, str] = {}
    costs: dict[str, float] = {}
    for name, config in configs.items():
        candidate = found.get(config.id, Candidate(config))
        cost = (0.0,) if config.id == default.id else candidate.costs(objectives)
        if cost is None:
            failures[name] = candidate.failure or "an objective could not be measured"
        else:
            costs[name] = sum(cost)
    order = sorted(costs, key=lambda name: (costs[name], configs[name].id != default.id))
    return order, failures
