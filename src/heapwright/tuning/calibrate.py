"""Calibrates a study: runs the default alone, to learn whether it works, how long it takes and how noisy it is.

The first run of each input also decides

    which objectives are minimised     proportional memory for a tree of processes, unless a later run lacks it
    which allocators can be searched   those that can become the program's malloc
    whether runs end early             prefixes, if the budget holds too few whole runs (`tuning.schedule`)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from heapwright.allocators.memory_manager import find_memory_manager
from heapwright.errors import HeapwrightError
from heapwright.interleaving.phases import Phase
from heapwright.interleaving.records import StoredRun, metrics_by_input
from heapwright.interleaving.stats import relative_noise
from heapwright.measure.meter import LOST_CHILDREN
from heapwright.metrics import METRICS
from heapwright.study import options as opt
from heapwright.study.claim import already_zero_text, tree_sentence, unread_tree_sentence
from heapwright.study.options import Options
from heapwright.study.policy import requirements_of
from heapwright.study.prefix import chosen_prefix, prefixes_miss_peak
from heapwright.study.study_bound import busiest_program, loaded_files, mostly_outside_heap
from heapwright.tuning.reachable_allocators import environment_cleared, reachable_allocators
from heapwright.tuning.runtimes import as_it_is, find_extra_spaces, find_extras
from heapwright.tuning.schedule import needs_warm_runs, plan_study
from heapwright.tuning.session import Session
from heapwright.tuning.takeover_check import check_reach
from heapwright.workload.execute import time_limit
from heapwright.workload.metric_needs import METRIC_NEEDS, missing_in_file, unread_in_load
from heapwright.workload.program import ProgramIdentity, without_outputs
from heapwright.workload.work_done import (
    fixed_time_sentence,
    fixed_time_warning,
    load_errors_warning,
    replacement_metrics,
)

# The metrics that are not known if a process with children ignores SIGCHLD.
_OF_CHILDREN = ("cpu_s", "user_s", "sys_s", "minor_faults", "major_faults", "cpu_per_op_s")
_TOO_SHORT_S = 0.3  # the meter that polls reads every 10 ms, and later on a busy machine


def calibrate(session: Session) -> None:
    """Run the default alone; set the session's executor, threads, noise, objectives and plan.

    Raises:
        HeapwrightError: the program does not work by itself, a metric cannot be measured, or the settings
            of the only allocator cannot reach the program.
    """
    if not session.charged_before("start"):
        session.prepare()
        session.charge("start")
    _check_reach(session)
    train = {i.name for i in session.workload.train}
    counts = {i.name: opt.CALIBRATE_RUNS if i.name in train else 2 for i in session.workload.inputs}
    session.progress.phase(Phase.CALIBRATE, sum(counts.values()))
    runs: list[StoredRun] = []
    for input_ in session.workload.inputs:
        runs += session.blocks.measure(Phase.CALIBRATE, 0, [session.default], [input_])
        _check_measured(session, runs[-1])
    _drop_outputs_from_identity(session)
    _choose_objectives(session, runs)
    if not _drop_unreachable_allocators(session, runs):
        return
    warm: list[StoredRun] = []
    if not session.options.axes:  # a sweep tells its own plan
        if needs_warm_runs(session):
            warm = session.blocks.measure(Phase.CALIBRATE, 1, [session.default], session.workload.inputs)
        plan_study(session, runs)
    block = 2 if warm else 1
    if chosen_prefix(session.store) is not None:  # whole runs are not compared with runs that end early
        warm = []
    runs += warm
    session.use_executor(session.executor.options.timeout)
    if not session.proof:
        counts = dict.fromkeys(counts, 1)
    for input_ in session.workload.inputs:
        count = counts[input_.name]
        if session.budget.limited:
            in_time = opt.CALIBRATE_SHARE * session.budget.total_s / len(counts) / max(session.run_s, 1e-3)
            count = max(min(2, count), min(count, math.floor(in_time)))
        more = count - (2 if warm else 1)
        runs += session.blocks.measure_all(Phase.CALIBRATE, block, [[session.default]] * more, [input_])
    _replace_unread_proportional_memory(session, runs)
    enough = time_limit((r.metrics["wall_s"] or 0.0 for r in runs), session.workload)
    session.use_executor(session.options.timeout or session.workload.file.timeout or enough)
    session.threads = any((r.extra.get("threads") or 2) > 1 for r in runs)
    session.calibrated = [r for r in runs if r.block > 0] or runs  # the first run of each input warms the caches
    if (
        session.proof
        and chosen_prefix(session.store) is not None
        and prefixes_miss_peak(runs, session.options.objectives)
    ):
        session.progress.note("the peak of a whole run does not show in its prefixes: nothing can be proven by them")
        session.proof = session.predicts = False
    _replace_times_under_fixed_load(session, runs)
    if text := load_errors_warning((run.metrics for run in runs), " of the default"):
        session.progress.note(text)
    _measure_noise(session, runs)


def _replace_times_under_fixed_load(session: Session, runs: Sequence[StoredRun]) -> None:
    """Compare work instead of time if the load of a server runs for a fixed time."""
    if session.workload.file.server is None:
        return
    inputs = metrics_by_input(runs)
    why = fixed_time_sentence(inputs)
    instead = replacement_metrics(session.options.objectives, minimised=True)
    if why and all(run.metrics.get(key) is not None for run in runs for key in instead):
        why += f" The objectives are {' and '.join(METRICS[key].label for key in instead)}."
        if instead != session.options.objectives:  # otherwise an earlier session stored it, or the user named them
            session.store.update(fixed_time=why)
        session.set_objectives(instead)
    if text := why or fixed_time_warning(inputs):
        session.progress.note(text)


def _measure_noise(session: Session, runs: Sequence[StoredRun]) -> None:
    """Set the noise of a ratio of two runs, by objective; warn of a noisy machine."""
    noises = []
    for objective in session.options.objectives:
        if not any(r.metrics.get(objective) for r in runs):
            session.progress.note(already_zero_text(objective))
        by_input: dict[str, list[float]] = {}
        for run in runs:
            if run.block > 0 and (value := run.metrics.get(objective)) is not None:
                by_input.setdefault(run.input, []).append(value)
        noise = max(map(relative_noise, by_input.values()), default=0.0)
        noises.append(math.sqrt(2) * noise)
        if noise > opt.NOISY_SPREAD:
            label = METRICS[objective].label
            session.progress.note(f"{label} varies by {noise:.0%} between runs of the default: a noisy machine")
    session.noise = tuple(noises)


def _check_measured(session: Session, run: StoredRun) -> None:
    """Refuse an objective, or a requirement of the program, that the run could not measure."""
    objectives = session.options.objectives
    required = requirements_of(session.options) if session.recordings is None else ()
    for key in [*objectives, *(r.metric for r in required)]:
        if run.metrics.get(key) is None:
            if key in objectives:
                session.store.forget_runs()  # without an objective they are useless
            usual = "'heapwright doctor' tells why; choose another metric"
            warnings = run.extra.get("warnings", [])
            if key in _OF_CHILDREN and (lost := [text for text in warnings if LOST_CHILDREN in text]):
                raise _unmeasured(key, f"{lost[0]}, or choose other metrics")
            if METRICS[key].of_load:
                missing = missing_in_file(session.workload.file, key)
                raise _unmeasured(key, missing or unread_in_load(warnings))
            if (run.metrics.get("wall_s") or 0.0) < _TOO_SHORT_S and session.options.meter != "ptrace":
                usual = "the program ends before the meter reads it; use --meter ptrace or another metric"
            raise _unmeasured(key, METRIC_NEEDS.get(key, usual))


def _unmeasured(key: str, hint: str) -> HeapwrightError:
    return HeapwrightError(f"{METRICS[key].label} ({key}) cannot be measured here", hint)


def _choose_objectives(session: Session, runs: Sequence[StoredRun]) -> None:
    """Minimise proportional memory for a tree of processes, unless the user chose the objectives.

    A sum of resident memory counts each shared page once for every process that shares it, so it hides gains.
    """
    if session.objectives_given:
        return
    prefix = session.workload.file.prefix
    usual = tuple(m for m in Options().objectives if prefix is None or prefix.compares(m))
    session.set_objectives(usual)
    of_tree = tuple(METRICS[m].in_tree or m for m in usual)
    processes = max((run.extra.get("processes") or 1 for run in runs), default=1)
    if session.store.meta.unread_tree:  # an earlier session told why
        return
    if processes < 2 or any(run.metrics.get(m) is None for run in runs for m in of_tree):
        return
    session.set_objectives(of_tree)
    session.store.update(tree=processes)
    session.progress.note(tree_sentence(processes))


def _replace_unread_proportional_memory(session: Session, runs: Sequence[StoredRun]) -> None:
    """Minimise resident memory of a tree of processes after all if runs of the default lack proportional memory.

    The first run of each input has a larger budget of readings than the runs that are compared.
    """
    processes = session.store.meta.tree
    if not processes or all(run.metrics.get(m) is not None for run in runs for m in session.options.objectives):
        return
    usual = {metric.in_tree: key for key, metric in METRICS.items() if metric.in_tree}
    session.set_objectives(tuple(usual.get(m, m) for m in session.options.objectives))
    session.store.update(tree=0, unread_tree=processes)
    session.progress.note(unread_tree_sentence(processes))


def _check_reach(session: Session) -> None:
    """Refuse a single allocator whose settings cannot reach the program. Tested once in a study."""
    if len(session.allocators) > 1 or session.charged_before("reach"):
        return
    first = session.workload.train[0]
    program = session.workload.program(first)
    why = check_reach(session.executor, session.allocators[0], session.config_cache.base, program, first)
    if why and not _runtime_manages(session, program):
        raise HeapwrightError(why)
    session.charge("reach")


def _runtime_manages(session: Session, program: str) -> bool:
    """Whether a runtime without malloc, such as Go's, runs the program, and its settings can be searched."""
    if not session.store.meta.seeks_runtimes:
        return False
    managed = find_memory_manager(program)
    return managed is not None and managed.reach == "none" and bool(find_extra_spaces(session))


def _drop_unreachable_allocators(session: Session, first: Sequence[StoredRun]) -> bool:
    """Leave out allocators that cannot reach the program and tell who manages its memory; whether any is left."""
    on_this_machine = session.workload.container is None  # otherwise the path is one of the image
    busiest = next(filter(None, map(busiest_program, first)), "") if on_this_machine else ""
    if session.recordings is None:
        loaded = next(filter(None, map(loaded_files, first)), []) if on_this_machine else []
        find_extras(session, busiest, loaded)
    session.allocators, managed = reachable_allocators(
        session.store,
        session.executor,
        session.allocators,
        session.config_cache.base,
        session.workload,
        session.budget,
        busiest,
        bool(session.extra_levels),
        max((r.metrics.get("wall_s") or 0.0 for r in first), default=0.0),
    )
    if environment_cleared(session.store):
        session.extras, session.extra_levels = (), 0
        session.store.update(runtimes={})
    own_heap = managed is not None and bool(managed.runtime)
    own_heap = own_heap or any(extra.libraries for extra in session.extras)
    session.runtime_first = own_heap and bool(session.extra_levels) and all(map(mostly_outside_heap, first))
    if not session.allocators and session.extra_levels:
        session.allocators = (as_it_is(),)
    if managed is not None and session.allocators:  # without allocators the study's claim says it
        session.progress.note(managed.sentence)
    return bool(session.allocators)


def _drop_outputs_from_identity(session: Session) -> None:
    """Leave files that the program writes itself out of the program's identity, after its first run."""
    stored = session.store.meta.program
    identity = msgspec.convert(stored, ProgramIdentity) if stored else None
    if identity is not None and not identity.settled:
        session.store.update(program=msgspec.to_builtins(without_outputs(identity)))
