"""Decides, after the first run, which allocators of a study can reach its program at all, and says so in one sentence.

    embedded in the program, or nothing special   all that the study has
    static, glibc's tunables in it                glibc alone
    static without, Go                            none: the study ends
    Java, V8, .NET                                all, for the native part

A static program may start others that can be reached. So one run with an allocator preloaded has the last word; the run
is kept in the study like that of any other allocator.

A shell or a script may start the program that has the memory. Then that program's file is looked at, too.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from heapwright.allocators.managed import Managed, find_managed
from heapwright.allocators.reach import GLIBC
from heapwright.allocators.registry import Allocator
from heapwright.experiment.budget import Budget
from heapwright.study.store import Store
from heapwright.tuning.reach import NO_TIME, take_over
from heapwright.workload.execute import Executor
from heapwright.workload.model import Workload


def reachable(
    store: Store,
    executor: Executor,
    allocators: Sequence[Allocator],
    base: Mapping[str, str],
    workload: Workload,
    budget: Budget,
    busiest: str,
) -> tuple[tuple[Allocator, ...], Managed | None]:
    """The allocators of a study that can reach its program, and who manages its memory; kept in the study.

    Args:
        base: the environment before any setting.
        busiest: the path of the program that had most of the memory; empty if none had.

    Returns:
        Those that can; none: nothing can be searched. Then who manages the memory, None where it is plain malloc.
    """
    everyone = tuple(allocators)
    program = workload.program(workload.train[0])
    found = find_managed(program)
    started = found is None and bool(busiest)
    if started:
        found = _started(busiest, program)
    # What a user's own space file sets may be settings of anything.
    if found is None or (len(everyone) == 1 and not everyone[0].preload and everyone[0].name != GLIBC and not
                         everyone[0].embedded):  # fmt: skip
        return everyone, None
    able = everyone
    if started and found.reach == "none":
        able = ()
    elif found.reach in ("none", "glibc"):
        preloaded = next((a for a in everyone if a.preload), None)
        if preloaded is not None:
            loaded, why = take_over(store, executor, preloaded, base, workload, budget)
            if loaded is not None:  # by a program that this one starts
                return everyone, None
            if why == NO_TIME:
                return everyone, None
        able = tuple(a for a in everyone if found.reach == GLIBC and not a.preload)
    store.update(managed=found._asdict())
    return able, found


def _started(busiest: str, program: str) -> Managed | None:
    """Who manages the memory of a program that the command starts, seen from the command."""
    found, name = find_managed(busiest), Path(busiest).name
    if found is None or Path(busiest) == Path(shutil.which(program) or program).resolve():
        return None
    sentence = f"Most memory of this command is of {name}, which it starts. {found.sentence}"
    if found.reach == "embedded":
        return Managed("", "none", f"{sentence} That takes a study of it alone: heapwright tune -- {busiest} ...")
    return found._replace(sentence=sentence)
