"""Which allocators a study searches: those that take over in the program, each at its defaults first.

    take over?  ──►  at its defaults, in blocks with the program as it is  ──►  best first: the order of the coordinate
        └─ no: reported, not searched          └─ fails: reported, not searched

Which allocator it is moves memory and time more than most settings do, and asking costs a run each. The one that did
best stands at 0, where half of an even cover looks.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from heapwright.allocators.registry import Allocator
from heapwright.allocators.takeover import judge, watch_environment
from heapwright.study.blocks import Blocks, Candidate, gather
from heapwright.study.options import BLOCK
from heapwright.study.store import Store, StoredRun
from heapwright.study.view import Config
from heapwright.workload.execute import Executor
from heapwright.workload.model import Input

ROUNDS = 2
PHASE = "allocators"


def take_over(
    store: Store,
    executor: Executor,
    allocators: Sequence[Allocator],
    base: Mapping[str, str],
    program: str,
    input_: Input,
) -> tuple[list[Allocator], dict[str, str]]:
    """The allocators as they must be run in this program, and why the others cannot be: name → reason.

    Asked once and kept in the study; each costs a run of the program.
    """
    kept: dict[str, dict[str, str]] = store.get("takeover") or {}
    for allocator in allocators:
        if allocator.name not in kept:
            judged, why = _judged(executor, allocator, base, program, input_)
            kept[allocator.name] = {"preload": judged.preload, "why": why}
            store.put({"takeover": kept})
    able = [_preloading(a, kept[a.name]["preload"]) for a in allocators if not kept[a.name]["why"]]
    return able, {name: found["why"] for name, found in kept.items() if found["why"]}


def _preloading(allocator: Allocator, library: str) -> Allocator:
    """The allocator with this library preloaded: the C library too, where the program is linked to another malloc."""
    if library == allocator.preload:
        return allocator
    spec = msgspec.structs.replace(allocator.file.allocator, preload=library)
    return dataclasses.replace(allocator, preload=library, file=msgspec.structs.replace(allocator.file, allocator=spec))


def _judged(
    executor: Executor, allocator: Allocator, base: Mapping[str, str], program: str, input_: Input
) -> tuple[Allocator, str]:
    for _ in range(2):  # the system's malloc may have to be preloaded, and then must be judged again
        with tempfile.TemporaryDirectory(prefix="heapwright-") as name:
            env = {**allocator.environment(base), **watch_environment(Path(name))}
            outcome = executor.run(input_, env)
            judged, why = judge(allocator, program, Path(name))
        if why or judged is allocator:
            return judged, why or (outcome.failure if allocator.preload else "")
        allocator = judged
    return allocator, ""


def at_defaults(
    blocks: Blocks, default: Config, entrants: Mapping[str, Config], inputs: Sequence[Input]
) -> list[StoredRun]:
    """Runs of every allocator at its defaults, in blocks with the default.

    Args:
        entrants: allocator name → its configuration with nothing set.
    """
    others = [config for config in entrants.values() if config.id != default.id]
    chunks = [others[at : at + BLOCK] for at in range(0, len(others), BLOCK)]
    blocks.progress.phase(PHASE, ROUNDS * (len(others) + len(chunks)) * len(inputs))
    groups = [[default, *chunk] for chunk in chunks for _ in range(ROUNDS)]
    return blocks.measure_all(PHASE, 0, groups, inputs)


def ranked(
    runs: Sequence[StoredRun], default: Config, entrants: Mapping[str, Config], objectives: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """The names of the allocators that work, best first (by the sum of their costs), and why others do not.

    Of equals the one that is the default's, or that was named earlier, comes first.
    """
    found = gather(runs, {c.id: c for c in entrants.values()}, default.id)
    failures: dict[str, str] = {}
    costs: dict[str, float] = {}
    for name, config in entrants.items():
        candidate = found.get(config.id, Candidate(config))
        cost = (0.0,) if config.id == default.id else candidate.costs(objectives)
        if cost is None:
            failures[name] = candidate.failure or "an objective could not be measured"
        else:
            costs[name] = sum(cost)
    order = sorted(costs, key=lambda name: (costs[name], entrants[name].id != default.id))
    return order, failures
