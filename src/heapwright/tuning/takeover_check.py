"""Tests whether an allocator becomes the malloc of a study's program.

    the program's file rules it out  ──no──►  the loader binds it (some ms)  ──no──►  a run of the program binds it
    (allocators.preload_obstacles)            (allocators.loader_trace)               (allocators.takeover)

The loader does not show programs that the program starts. So if the loader says no, a run decides.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from heapwright.allocators.loader_trace import trace_bindings
from heapwright.allocators.preload_obstacles import find_obstacle, has_allocator
from heapwright.allocators.program_file import read_program
from heapwright.allocators.registry import Allocator, find_allocators, with_preload
from heapwright.allocators.takeover import Bindings, deepbind_reason, judge_takeover, other_providers, takeover_failure
from heapwright.files import scratch_folder
from heapwright.interleaving.binding_runs import run_until_bound, run_with_bindings
from heapwright.interleaving.budget import Budget
from heapwright.study.store import Store
from heapwright.workload.execute import Executor
from heapwright.workload.model import Input, Workload

NO_TIME = "there was no time for a measurement"


def take_over(
    store: Store,
    executor: Executor,
    allocator: Allocator,
    base: Mapping[str, str],
    workload: Workload,
    budget: Budget,
) -> tuple[Allocator | None, str]:
    """Test whether an allocator becomes the program's malloc. The study keeps the answer.

    Args:
        store: the study.
        executor: runs the program.
        allocator: the allocator to test.
        base: the program's environment before any setting.
        workload: the program and its inputs.
        budget: the study's time; the test is charged to it.

    Returns:
        The allocator as it must be preloaded, or None; and why it does not take over, or empty.
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
    return (None, found["why"]) if found["why"] else (with_preload(allocator, found["preload"]), "")


def explain_crashes(
    store: Store,
    executor: Executor,
    failures: Mapping[str, tuple[Allocator, str]],
    base: Mapping[str, str],
    workload: Workload,
    budget: Budget,
) -> dict[str, str]:
    """Say why preloaded allocators crash the program, if one more run under the first of them shows it.

    The study keeps the answer.

    Args:
        store: the study.
        executor: runs the program.
        failures: the failed allocators, as they ran, and their failures, by name.
        base: the program's environment before any setting.
        workload: the program and its inputs.
        budget: the study's time; the run is charged to it.

    Returns:
        The failures, with the reason if it is known.
    """
    work = "crash"
    crashed = [name for name, (allocator, why) in failures.items() if allocator.preload and why.startswith("killed by")]
    kept = dict(store.meta.takeover)
    if not crashed or not workload.tells_bindings:
        return {name: why for name, (_, why) in failures.items()}
    if work in kept:
        budget.recall(float(kept[work]["charged_s"]), work)
    else:
        allocator, _ = failures[crashed[0]]
        _, found = run_with_bindings(executor, workload.train[0], allocator.environment(base))
        kept[work] = {"why": deepbind_reason(allocator.preload, found), "charged_s": budget.charge(work)}
        store.update(takeover=kept)
    reason = f" ({kept[work]['why']})" if kept[work]["why"] else ""
    return {name: why + (reason if name in crashed else "") for name, (_, why) in failures.items()}


def check_reach(executor: Executor, allocator: Allocator, base: Mapping[str, str], program: str, input_: Input) -> str:
    """Why an allocator's settings do not reach the program, and what to do, in one line; empty if they do.

    A run that fails decides nothing: the study reports the failure itself.

    Args:
        executor: runs the program.
        allocator: the allocator whose settings are to be searched, as it would run.
        base: the program's environment before any setting.
        program: path of the program (`Workload.program`).
        input_: the input to run.
    """
    obstacle = find_obstacle(program, allocator.name, allocator.preload)
    if obstacle is not None and obstacle.certain:
        return str(obstacle)
    library = allocator.preload or allocator.path
    if not library or has_allocator(program, allocator.name) or not executor.workload.tells_bindings:
        return ""
    found, failure = _find_bindings(executor, allocator.environment(base), base, program, input_, library)
    if failure:
        return ""
    if not found:
        return str(obstacle) if obstacle is not None else ""
    others = other_providers(library, found)
    if not others:
        return ""
    known = {os.path.realpath(a.path): a.name for a in reversed(find_allocators().values()) if a.path}
    if allocator.preload and known.get(others[0]) == "glibc":
        stays = f"the malloc of {Path(program).name} stays that of {Path(others[0]).name}"
        return f"{allocator.name} cannot be preloaded: {stays} (name a library that defines malloc)"
    who, instead = Path(others[0]).name, f"the malloc it has can be used: --allocator {known.get(others[0], others[0])}"
    itself = read_program(others[0])
    if itself is not None and itself.loader:
        who, instead = "a program", "'heapwright compare' shows which allocators can be used"
    return f"{allocator.name}'s settings do not reach {Path(program).name}: its malloc is that of {who} ({instead})"


def not_loaded(executor: Executor, env: Mapping[str, str], workload: Workload) -> str:
    """Why the library that the variables `env` preload does not become the malloc of `workload`, or empty.

    Args:
        executor: runs the program.
        env: the variables of a configuration.
        workload: the program and its inputs.
    """
    library, program = env.get("LD_PRELOAD", "").partition(":")[0], workload.program()
    if not library or not workload.tells_bindings:
        return ""
    base = workload.base_environment()
    found, _ = _find_bindings(executor, env, base, program, workload.train[0], library)
    return takeover_failure(library, program, found)


def _judged(
    executor: Executor, allocator: Allocator, base: Mapping[str, str], workload: Workload
) -> tuple[Allocator, str]:
    program = workload.program()
    if not workload.tells_bindings:  # musl ends a program whose library it cannot load, so its first run tells
        obstacle = find_obstacle(program, allocator.name, allocator.preload)
        return allocator, obstacle.why if obstacle is not None else ""
    for _ in range(2):  # the system's malloc may need preloading; then it is judged again
        found, failure = _find_bindings(
            executor,
            allocator.environment(base),
            base,
            program,
            workload.train[0],
            allocator.preload or allocator.path or "",
            trust_no=not allocator.preload,  # preloading the system's malloc is harmless
        )
        judged, why = judge_takeover(allocator, program, found)
        obstacle = None if found or allocator.preload or failure else find_obstacle(program, allocator.name)
        if obstacle is not None:
            return judged, obstacle.why
        if why or judged is allocator:
            return judged, why or (failure if allocator.preload else "")
        allocator = judged
    return allocator, ""


def _find_bindings(
    executor: Executor,
    env: Mapping[str, str],
    base: Mapping[str, str],
    program: str,
    input_: Input,
    library: str,
    trust_no: bool = False,
) -> tuple[Bindings, str]:
    """Find the library that provides malloc in each process.

    Args:
        executor: runs the program.
        env: variables set beside `base`.
        base: the program's environment before any setting.
        program: path of the program.
        input_: the input to run.
        library: the library that should provide malloc.
        trust_no: whether the loader's answer suffices if it names another library.

    Returns:
        The bindings of each process, and why the run failed, or empty.
    """
    with scratch_folder() as name:
        traced = trace_bindings(program, {**base, **env}, name) if program else []
    if traced and (not takeover_failure(library, program, traced) or (trust_no and other_providers(library, traced))):
        return traced, ""
    outcome, found = run_until_bound(
        executor, input_, env, lambda so_far: bool(library) and not takeover_failure(library, program, so_far)
    )
    return found, outcome.failure if outcome else ""
