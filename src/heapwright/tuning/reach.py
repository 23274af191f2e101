"""Finds out whether an allocator becomes the malloc of a study's program.

    the program's file shows why not  ──no──►  the loader tells, in milliseconds  ──no──►  a run of the program tells
    (allocators.reach)                         (allocators.loader_trace)                   (allocators.takeover)

The loader cannot tell what the program starts, so where it says no, a run decides.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from heapwright.allocators.loader_trace import trace_bindings
from heapwright.allocators.program_file import read_program
from heapwright.allocators.reach import find_barrier, has_allocator
from heapwright.allocators.registry import Allocator, find_allocators
from heapwright.allocators.takeover import Bindings, bindings, judge, others_than, verdict, watch_environment
from heapwright.experiment.budget import Budget
from heapwright.measure.meter import Stopped
from heapwright.study.store import Store
from heapwright.workload.execute import Executor
from heapwright.workload.model import Input, Workload

NO_TIME = "there was no time to measure it"
_ENOUGH_S = 5.0  # a program that runs longer is stopped as soon as the loader has bound its malloc
_LOOK_S = 0.1


def take_over(
    store: Store,
    executor: Executor,
    allocator: Allocator,
    base: Mapping[str, str],
    workload: Workload,
    budget: Budget,
) -> tuple[Allocator | None, str]:
    """The allocator as it must be run in this program; or None and why it cannot be. Asked once and kept in the study.

    Args:
        base: the environment before any setting.
    """
    kept = dict(store.meta.takeover)
    work = f"takeover.{allocator.name}"
    if allocator.name in kept:
        budget.recall(float(kept[allocator.name].get("charged_s", 0.0)), work)
    else:
        if budget.over() or budget.passed():
            return None, NO_TIME
        judged, why = _judged(executor, allocator, base, workload)
        kept[allocator.name] = {"preload": judged.preload, "why": why, "charged_s": budget.charge(work)}
        store.update(takeover=kept)
    found = kept[allocator.name]
    return (None, found["why"]) if found["why"] else (_preloading(allocator, found["preload"]), "")


def check_reach(executor: Executor, allocator: Allocator, base: Mapping[str, str], program: str, input_: Input) -> str:
    """Why an allocator's settings do not reach the program, and what to do, in one line; empty if they do.

    A run that fails tells nothing: what is wrong with the program is better said by its own failure.

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
    found, failure = _find_bindings(executor, allocator.environment(base), base, program, input_, library)
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


def not_loaded(executor: Executor, env: Mapping[str, str], workload: Workload) -> str:
    """Why the library that these variables preload does not become the program's malloc, or empty."""
    library, program = env.get("LD_PRELOAD", "").partition(":")[0], workload.program()
    if not library:
        return ""
    base = {**os.environ, **workload.file.env}
    found, _ = _find_bindings(executor, env, base, program, workload.train[0], library)
    return verdict(library, program, found)


def _judged(
    executor: Executor, allocator: Allocator, base: Mapping[str, str], workload: Workload
) -> tuple[Allocator, str]:
    program = workload.program()
    for _ in range(2):  # the system's malloc may have to be preloaded, and then must be judged again
        found, failure = _find_bindings(
            executor,
            allocator.environment(base),
            base,
            program,
            workload.train[0],
            allocator.preload or allocator.path or "",
            trust_no=not allocator.preload,  # to preload the system's malloc does no harm
        )
        judged, why = judge(allocator, program, found)
        if why or judged is allocator:
            return judged, why or (failure if allocator.preload else "")
        allocator = judged
    return allocator, ""


def _preloading(allocator: Allocator, library: str) -> Allocator:
    """The allocator with this library preloaded: the C library too, where the program is linked to another malloc."""
    if library == allocator.preload:
        return allocator
    spec = msgspec.structs.replace(allocator.file.allocator, preload=library)
    return dataclasses.replace(allocator, preload=library, file=msgspec.structs.replace(allocator.file, allocator=spec))


def _find_bindings(
    executor: Executor,
    env: Mapping[str, str],
    base: Mapping[str, str],
    program: str,
    input_: Input,
    library: str,
    trust_no: bool = False,
) -> tuple[Bindings, str]:
    """Whose malloc each process has, and why the run that had to tell it failed, or empty.

    Args:
        env: what is set beside `base`, the environment before any setting.
        library: the one that should provide malloc.
        trust_no: whether the loader's word is enough where it names another library.
    """
    with tempfile.TemporaryDirectory(prefix="heapwright-") as name:
        told = trace_bindings(program, {**base, **env}, Path(name)) if program else []
    if told and (trust_no or not verdict(library, program, told)):
        return told, ""
    failure = ""
    with tempfile.TemporaryDirectory(prefix="heapwright-") as name:
        folder = Path(name)
        with suppress(Stopped), _until_bound(library, program, folder) as bound:
            failure = executor.run(input_, {**env, **watch_environment(folder)}, 0, bound).failure
        return bindings(folder), failure


@contextmanager
def _until_bound(library: str, program: str, folder: Path) -> Iterator[threading.Event]:
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
