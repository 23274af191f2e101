"""Decides after the first run which allocators can reach the study's program, and says so in one sentence.

    malloc embedded in the program, or nothing special    all allocators of the study
    static, with glibc's tunables                         glibc alone
    static without tunables, Go, set-user-ID              none: the study ends, unless a runtime is searched
    Java, Node.js, .NET …                                 all, for native memory

A static program may start other programs that can be reached. So one run with a preloaded allocator decides; the study
keeps its result as for any other allocator.

A shell or a script may start the program that uses the memory. Then this module inspects that program's file, too, and
one run with a preloaded allocator shows whether the program gets the environment.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from heapwright.allocators.memory_manager import SEARCHED, MemoryManager, find_memory_manager
from heapwright.allocators.preload_obstacles import GLIBC
from heapwright.allocators.program_file import read_program
from heapwright.allocators.registry import Allocator
from heapwright.interleaving.budget import Budget
from heapwright.interleaving.reach import StartedProgram
from heapwright.study.store import Store
from heapwright.tuning.takeover_check import NO_TIME, take_over
from heapwright.workload.execute import Executor
from heapwright.workload.model import Workload

_ENVIRONMENT = "environment"  # the name of this test among those of the study
_MIN_RUNS = 20  # a study with time for fewer makes no run for it


def reachable_allocators(
    store: Store,
    executor: Executor,
    allocators: Sequence[Allocator],
    base: Mapping[str, str],
    workload: Workload,
    budget: Budget,
    busiest: str,
    runtime_searched: bool = False,
    run_s: float = 0.0,
) -> tuple[tuple[Allocator, ...], MemoryManager | None]:
    """Find the allocators that can reach the study's program, and store who manages its memory.

    Args:
        store: the study.
        executor: runs the program.
        allocators: the allocators of the study.
        base: the program's environment before any setting.
        workload: the program and its inputs.
        budget: the study's time.
        busiest: path of the program that used most of the memory, if that is not the command itself; else empty.
        runtime_searched: whether the study searches the settings of the program's runtime.
        run_s: seconds that a run of the default takes.

    Returns:
        The allocators that can reach it; if empty, nothing can be searched. And who manages the memory; None for plain
        malloc.
    """
    everyone = tuple(allocators)
    program = workload.program(workload.train[0])
    found = find_memory_manager(program)
    started = found is None and bool(busiest)
    if started:
        found = _manager_of_busiest(busiest, program) or _without_environment(
            store, executor, everyone, base, workload, budget, busiest, run_s
        )
    # A user's own space file may set variables of any library.
    if found is None or (len(everyone) == 1 and not everyone[0].preload and everyone[0].name != GLIBC and not
                         everyone[0].embedded):  # fmt: skip
        return everyone, None
    able = everyone
    if started and found.reach == "none":
        able = ()
    elif found.reach in ("none", "glibc"):
        # The started program decides, even if the shell that starts it can load a library.
        preloaded = None if started else next((a for a in everyone if a.preload), None)
        if preloaded is not None:
            loaded, why = take_over(store, executor, preloaded, base, workload, budget)
            if loaded is not None:  # by a program that this one starts
                return everyone, None
            if why == NO_TIME:
                return everyone, None
        able = tuple(a for a in everyone if found.reach == GLIBC and not a.preload)
    if runtime_searched:
        found = found._replace(sentence=found.sentence.replace(SEARCHED, ""))
    store.update(managed=found._asdict())
    return able, found


def _manager_of_busiest(busiest: str, program: str) -> MemoryManager | None:
    """The memory manager of `busiest`, a program that the command `program` starts."""
    found, name = find_memory_manager(busiest), Path(busiest).name
    if found is None or Path(busiest) == Path(shutil.which(program) or program).resolve():
        return None
    sentence = f"Most memory of this command is of {name}, which it starts. {found.sentence}"
    if found.reach == "embedded":
        return MemoryManager("", "none", f"{sentence} To tune it, run it alone: heapwright tune -- {busiest} …")
    return found._replace(sentence=sentence)


def _without_environment(
    store: Store,
    executor: Executor,
    allocators: Sequence[Allocator],
    base: Mapping[str, str],
    workload: Workload,
    budget: Budget,
    busiest: str,
    run_s: float,
) -> MemoryManager | None:
    """The finding that nothing reaches `busiest`, because the command starts it without the environment; or None.

    The study keeps the answer. Without time for it, the environment counts as passed on.
    """
    preloaded = next((allocator for allocator in allocators if allocator.preload), None)
    own = read_program(workload.program(workload.train[0]))
    if preloaded is None or (own is not None and os.path.realpath(own.path) == os.path.realpath(busiest)):
        return None
    kept = dict(store.meta.takeover)
    if _ENVIRONMENT in kept:
        budget.recall(float(kept[_ENVIRONMENT]["charged_s"]), _ENVIRONMENT)
    elif budget.passed() or budget.over(_MIN_RUNS * run_s):
        return None
    else:
        program = StartedProgram(executor, workload.train[0], busiest)
        passed = program.has_environment(preloaded.preload, preloaded.environment(base))
        kept[_ENVIRONMENT] = {"cleared": passed is False, "charged_s": budget.charge(_ENVIRONMENT)}
        store.update(takeover=kept)
    if not environment_cleared(store):
        return None
    name = Path(busiest).name
    return MemoryManager(
        "",
        "none",
        f"Most memory of this command is of {name}, which it starts without passing its environment on. So neither"
        f" another malloc nor a setting reaches {name}. To tune it, run it alone: heapwright tune -- {busiest} …",
    )


def environment_cleared(store: Store) -> bool:
    """Whether the study found that the program with most of the memory does not get the command's environment."""
    return bool(store.meta.takeover.get(_ENVIRONMENT, {}).get("cleared"))
