"""Which allocators a study searches: those that take over in the program, each at its defaults first.

    does it take over?  ──►  at its defaults, in blocks with the program as it is  ──►  best first
        └─ no: reported, not searched          └─ fails: reported, not searched

The choice of the allocator moves memory and time more than most settings do, and asking costs a run each. The best one
is index 0, which a Sobol sequence draws half of the time. Under a time budget the allocators are asked in groups, and
those that the stage's time does not reach are not searched.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from heapwright.allocators.program_file import read_program
from heapwright.allocators.reach import find_barrier, has_allocator
from heapwright.allocators.registry import Allocator, find_allocators
from heapwright.allocators.space import Space
from heapwright.allocators.takeover import bindings, judge, others_than, verdict, watch_environment
from heapwright.measure.meter import Stopped
from heapwright.study.blocks import Blocks, Candidate, gather
from heapwright.study.budget import Budget
from heapwright.study.options import BLOCK
from heapwright.study.register import Register
from heapwright.study.store import Store, StoredRun
from heapwright.study.view import Config
from heapwright.workload.execute import Executor
from heapwright.workload.model import Input, Workload

ROUNDS = 2
PHASE = "allocators"
NO_TIME = "there was no time to measure it"
_ENOUGH_S = 5.0  # a program that runs longer is stopped as soon as the loader has bound its malloc
_LOOK_S = 0.1


@dataclass(frozen=True)
class Entrant:
    """An allocator that takes over: as it must be run, what can be set, and its configuration with nothing set."""

    allocator: Allocator
    space: Space
    config: Config


@dataclass
class Entered:
    """The entrants by name, their runs at their defaults, and why other allocators are not searched."""

    entrants: dict[str, Entrant] = field(default_factory=dict)
    runs: list[StoredRun] = field(default_factory=list)
    out: dict[str, str] = field(default_factory=dict)


def enter(
    store: Store,
    executor: Executor,
    allocators: Sequence[Allocator],
    blocks: Blocks,
    register: Register,
    space_of: Callable[[Allocator], Space],
    workload: Workload,
) -> Entered:
    """Find out which allocators take over, and measure each at its defaults in blocks with the default.

    Args:
        space_of: what can be searched of an allocator.
    """
    found, default = Entered(), register.default
    budget, inputs = blocks.budget, workload.train
    blocks.phase(PHASE, round(ROUNDS * len(allocators) * (1 + 1 / BLOCK)) * len(inputs))
    chunks: list[list[Config]] = []

    def measure(new: Sequence[Sequence[Config]], first: int) -> None:
        """Measure chunks, numbered from `first`, as far as the stage's time allows."""
        together = 1 if budget.limited else max(1, len(new))
        for at in range(0, len(new), together):
            groups = [[default, *chunk] for chunk in new[at : at + together]]
            if not budget.over(sum(map(len, groups)) * len(inputs) * blocks.typical.seconds):
                found.runs += blocks.measure_all(PHASE, first + at, groups, inputs)

    def fitting() -> int:
        """How many allocators there is time to ask and to measure once."""
        if not budget.limited:
            return len(allocators)
        runs = (budget.limit_s - budget.spent_s) / max(blocks.typical.seconds, 1e-9)
        return max(0, min(BLOCK, int((runs - len(inputs)) / (1 + len(inputs)))))

    waiting = list(allocators)
    while waiting and (size := fitting()):
        configs = []
        for allocator in waiting[:size]:
            able, why = take_over(store, executor, allocator, register.base, workload, budget)
            if able is None:
                found.out[allocator.name] = why
                continue
            space = space_of(able)
            entrant = found.entrants[allocator.name] = Entrant(able, space, register.config(space, {}))
            configs += [entrant.config] if entrant.config.id != default.id else []
        new = [configs[at : at + BLOCK] for at in range(0, len(configs), BLOCK)]
        measure(new, len(chunks))
        chunks, waiting = [*chunks, *new], waiting[size:]
    if not found.entrants and waiting:  # no time to ask any: the first may be the program as it is
        space = space_of(waiting[0])
        found.entrants[waiting[0].name] = Entrant(waiting[0], space, register.config(space, {}))
    found.out |= {allocator.name: NO_TIME for allocator in waiting if allocator.name not in found.entrants}
    for again in range(1, ROUNDS):
        measure(chunks, again * len(allocators))
    reached = {run.config for run in found.runs} | {default.id}
    for name in [name for name, entrant in found.entrants.items() if entrant.config.id not in reached]:
        del found.entrants[name]
        found.out[name] = NO_TIME
    return found


def take_over(
    store: Store,
    executor: Executor,
    allocator: Allocator,
    base: Mapping[str, str],
    workload: Workload,
    budget: Budget,
) -> tuple[Allocator | None, str]:
    """The allocator as it must be run in this program; or None and why it cannot be.

    Asked once and kept in the study. It costs a run of the program, or the first seconds of one.
    """
    kept: dict[str, dict[str, Any]] = store.get("takeover") or {}
    work = f"takeover.{allocator.name}"
    if allocator.name in kept:
        budget.recall(float(kept[allocator.name].get("charged_s", 0.0)), work)
    else:
        if budget.over() or budget.passed():
            return None, NO_TIME
        judged, why = _judged(executor, allocator, base, workload)
        kept[allocator.name] = {"preload": judged.preload, "why": why, "charged_s": budget.charge(work)}
        store.put({"takeover": kept})
    found = kept[allocator.name]
    return (None, found["why"]) if found["why"] else (_preloading(allocator, found["preload"]), "")


def check_reach(executor: Executor, allocator: Allocator, base: Mapping[str, str], program: str, input_: Input) -> str:
    """Why an allocator's settings do not reach the program, and what to do, in one line; empty if they do.

    The program's file is looked at first. Where that shows nothing for certain, one run, or the first seconds of a
    long one, tells whose malloc its processes have. A run that fails tells nothing: what is wrong with the program is
    better said by its own failure.

    Args:
        allocator: whose settings are to be searched, as it would be run.
        base: the environment before any setting.
        program: see `Workload.program`.
    """
    barrier = find_barrier(program, allocator.name, allocator.preload)
    if barrier is not None and barrier.certain:
        return str(barrier)
    library = allocator.preload or allocator.path
    if not library or has_allocator(program, allocator.name):
        return ""
    with tempfile.TemporaryDirectory(prefix="heapwright-") as name:
        env, failure = {**allocator.environment(base), **watch_environment(Path(name))}, ""
        with suppress(Stopped), until_bound(library, program, Path(name)) as bound:
            failure = executor.run(input_, env, 0, bound).failure
        found = bindings(Path(name))
    if failure:
        return ""
    if not found:
        return str(barrier) if barrier is not None else ""
    others = others_than(library, found)
    if not others:
        return ""
    known = {os.path.realpath(a.path): a.name for a in reversed(find_allocators().values()) if a.path}
    who, instead = Path(others[0]).name, f"the malloc it has can be used: --allocator {known.get(others[0], others[0])}"
    itself = read_program(others[0])
    if itself is not None and itself.loader:
        who, instead = "a program", "'heapwright compare' shows which allocators can be used"
    return f"{allocator.name}'s settings do not reach {Path(program).name}: its malloc is that of {who} ({instead})"


def _preloading(allocator: Allocator, library: str) -> Allocator:
    """The allocator with this library preloaded: the C library too, where the program is linked to another malloc."""
    if library == allocator.preload:
        return allocator
    spec = msgspec.structs.replace(allocator.file.allocator, preload=library)
    return dataclasses.replace(allocator, preload=library, file=msgspec.structs.replace(allocator.file, allocator=spec))


def _judged(
    executor: Executor, allocator: Allocator, base: Mapping[str, str], workload: Workload
) -> tuple[Allocator, str]:
    program = workload.program()
    for _ in range(2):  # the system's malloc may have to be preloaded, and then must be judged again
        with tempfile.TemporaryDirectory(prefix="heapwright-") as name:
            env = {**allocator.environment(base), **watch_environment(Path(name))}
            failure = ""
            library = allocator.preload or allocator.path or ""
            with suppress(Stopped), until_bound(library, program, Path(name)) as bound:
                failure = executor.run(workload.train[0], env, 0, bound).failure
            judged, why = judge(allocator, program, Path(name))
        if why or judged is allocator:
            return judged, why or (failure if allocator.preload else "")
        allocator = judged
    return allocator, ""


def not_loaded(executor: Executor, env: Mapping[str, str], workload: Workload) -> str:
    """Why the library that these variables preload does not become the program's malloc, or empty.

    It costs a run of the program, or the first seconds of one.
    """
    library, program = env.get("LD_PRELOAD", "").partition(":")[0], workload.program()
    if not library:
        return ""
    with tempfile.TemporaryDirectory(prefix="heapwright-") as name:
        folder = Path(name)
        with suppress(Stopped), until_bound(library, program, folder) as bound:
            executor.run(workload.train[0], {**env, **watch_environment(folder)}, 0, bound)
        return verdict(library, program, bindings(folder))


@contextmanager
def until_bound(library: str, program: str, folder: Path) -> Iterator[threading.Event]:
    """An event that is set when a long run has shown that its malloc is this library's: it need not run to its end.

    Args:
        folder: where the loader writes its bindings (`watch_environment`).
    """
    bound, done = threading.Event(), threading.Event()

    def look() -> None:
        began = time.monotonic()
        size = -1
        while not done.wait(_LOOK_S):
            now = sum(path.stat().st_size for path in folder.glob("bindings.*"))
            settled, size = now == size, now
            if time.monotonic() - began < _ENOUGH_S or not settled or not library:
                continue
            if not verdict(library, program, bindings(folder)):
                bound.set()
                return

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield bound
    finally:
        done.set()
        watcher.join()


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
