"""The proxy of a program: each input's allocations are recorded once, and replays replace runs of the program.

    record (once per input)  ──►  replay configurations that the program has run  ──►  do both rank them alike?
        └─ impossible: why                └─ hardly faster: why                            └─ no: why

If the answer is no, the search runs the program itself. A replay predicts the program by differences
(`candidates.gather`). Settings of an allocator are predicted from the program's own measurement of that allocator at
its defaults (`agreement.anchored`): the placement of blocks makes the program's own code faster or slower, and a replay
does not show that. During the search, configurations that were measured on both show whether replays still rank as the
program does.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from heapwright.allocators.registry import Allocator
from heapwright.errors import HeapwrightError
from heapwright.interleaving.budget import Budget
from heapwright.interleaving.candidates import Program
from heapwright.metrics import METRICS
from heapwright.study.saving_bound import MALLOC_ALIGNMENT
from heapwright.study.store import Store
from heapwright.trace import record
from heapwright.trace.info import Info, read_info
from heapwright.trace.process_ends import noting_ends
from heapwright.trace.raw_files import SUFFIX, check_writable, raw_folder
from heapwright.workload.execute import Executor
from heapwright.workload.model import Input, Workload

CHECK_EVERY = 32  # further configurations replayed between two checks
MAX_REPLAY_TIME_SHARE = 0.5  # a replay may take at most this share of a program run
MIN_HEAP_SHARE = 0.25  # a recording that accounts for a smaller share of the program's heap is refused
_MAX_RESIDENT_RATIO = 2.0  # of the recorded program's resident memory to that of all measured processes
_PROCESS_BYTES = 4 << 20  # private memory of a small process besides its heap: data, stacks, tables of libraries
_BLOCK_BYTES = 16  # overhead of an allocator for each block
_OPERATION_BYTES = 8
_MAX_THREADS = 256  # of a process whose calls are counted one by one


def too_slow(replay_s: float, program_s: float) -> str:
    """Why replays are not worth their time (`MAX_REPLAY_TIME_SHARE`), from the seconds of a replay and of a run."""
    return f"a replay takes {replay_s:.2g} s, more than half of the program's {program_s:.2g} s"


def record_inputs(
    store: Store,
    workload: Workload,
    executor: Executor,
    inputs: Sequence[Input],
    budget: Budget,
    runtime_setting: str = "",
) -> tuple[dict[str, Path], dict[str, Any]]:
    """Record the allocations of each input, unless the study has its trace already.

    Args:
        store: the study; it keeps traces and facts.
        workload: the program and its inputs.
        executor: runs the program.
        inputs: the inputs to record.
        budget: the study's time; recordings are charged to it.
        runtime_setting: settings of a runtime, KEY=VALUE, that the workload's environment holds; empty for the program
            as it is.

    Returns:
        The trace of each input by name, and the facts about each recording (`record_input`).

    Raises:
        HeapwrightError: an input cannot be recorded; the message says why.
    """
    traces: dict[str, Path] = {}
    facts: dict[str, Any] = {}
    field = "recorded_beside" if runtime_setting else "recorded"
    every: dict[str, Any] = dict(getattr(store.meta, field))
    store.traces.mkdir(exist_ok=True)
    for unfinished in store.traces.glob(f".*{SUFFIX}"):  # left by a killed session; we hold the lock
        shutil.rmtree(unfinished, ignore_errors=True)
    for input_ in inputs:
        key = f"{runtime_setting}/{input_.name}" if runtime_setting else input_.name
        trace = store.traces / f"{hashlib.sha256(key.encode()).hexdigest()[:12]}.hwt"
        if not trace.is_file() or key not in every:
            every[key] = record_input(workload, executor, input_, trace)
            every[key]["charged_s"] = budget.charge()
            store.update(**{field: every})
        else:
            budget.recall(float(every[key].get("charged_s", every[key]["elapsed_s"])))
        traces[input_.name], facts[input_.name] = trace, every[key]
    return traces, facts


def record_input(
    workload: Workload, executor: Executor, input_: Input, trace: Path, allocator: Allocator | None = None
) -> dict[str, Any]:
    """Record one input and keep the trace of its busiest process.

    Args:
        workload: the program and its inputs.
        executor: runs the program.
        input_: the input to record.
        trace: the path of the new trace.
        allocator: run the program on this one; None for the malloc that it has.

    Returns:
        Facts about the recording: seconds, events, threads, bytes of the trace, the trace's share of all events, peak
        of live bytes, resident memory of the process with the most live bytes by the recorder, and of all by the
        meter, executable, number of processes, how many run the executable and make at least half as many calls
        (`similar`), the trace's share of the calls of all that run it, a warning, the facts that bound the gain, the
        malloc, and the counts that `same_calls` compares.

    Raises:
        HeapwrightError: it cannot be recorded; the message says why.
    """
    folder = raw_folder(trace)
    began = time.monotonic()
    try:
        with noting_ends(folder):
            outcome = record.run_recorded(executor, input_, folder, allocator)
        if outcome.failure:
            raise HeapwrightError(f"its run under the recorder failed: {outcome.failure}")
        if not any(folder.glob("*.raw")):
            check_writable(folder)
            raise record.nothing_recorded(workload.program(input_))
        processes = record.recover(folder, trace, workload.program(input_))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    busiest, events = processes[0], sum(p.packed.events for p in processes)
    alike = [p for p in processes if p is busiest or p.executable == busiest.executable]
    try:
        if not busiest.packed.allocations:
            raise HeapwrightError("it allocates nothing")
        if busiest.packed.events * _OPERATION_BYTES > shutil.disk_usage(tempfile.gettempdir()).free / 2:
            events_shown = f"{busiest.packed.events:,} events"
            raise HeapwrightError(f"its trace of {events_shown} is too long for {tempfile.gettempdir()}")
        info, _ = read_info(trace)
        largest = max(processes, key=lambda p: p.packed.peak_live_bytes)
        resident = (info if largest is busiest else read_info(largest.trace)[0]).peak_resident_bytes
        thread_calls = _thread_calls(processes, info)
    finally:
        shutil.rmtree(record.others_folder(trace), ignore_errors=True)
    return {
        "elapsed_s": time.monotonic() - began,
        "events": busiest.packed.events,
        "threads": busiest.packed.threads,
        "bytes": busiest.packed.bytes,
        "share": busiest.packed.events / max(1, events),
        "peak_live_bytes": sum(p.packed.peak_live_bytes for p in processes),
        "resident_bytes": resident,
        "resident_program": largest.name,
        "measured_bytes": outcome.run.metrics.get("peak_rss_bytes"),
        "executable": busiest.executable,
        "program": busiest.name,
        "processes": len(processes),
        "similar": sum(2 * p.packed.events >= busiest.packed.events for p in alike),
        "alike_share": busiest.packed.events / max(1, sum(p.packed.events for p in alike)),
        "warning": busiest.warning,
        "allocator": info.allocator,
        "heap": _recorded_counts(info)
        | {
            "alike": len(alike),
            "threads": max(p.packed.threads for p in processes),
            "thread_calls": thread_calls,
        },
        "made": {
            "calls": info.allocations + info.frees + info.reallocs,
            "asked_bytes": info.asked_bytes,
            "live_bytes": info.peak_live_bytes,
        },
    }


def _thread_calls(processes: Sequence[record.RecordedProcess], of_busiest: Info) -> list[int]:
    """The calls of the thread of each process that calls most, summed over processes; then of the second one, …

    The statistics name the first threads of a process only. The others share the rest of its calls equally.

    Args:
        processes: the recorded processes.
        of_busiest: statistics of the first one.
    """
    found = [0] * _MAX_THREADS
    for number, process in enumerate(processes):
        events, threads = process.packed.events, process.packed.threads
        calls = [events]
        info = of_busiest
        if threads > 1 and number:
            try:
                info = read_info(process.trace)[0]
            except HeapwrightError:  # nothing of it can be read: all calls count as those of one thread
                threads = 1
        if threads > 1:
            calls = [int(thread["events"]) for thread in info.thread_list]
            unnamed = min(threads, _MAX_THREADS) - len(calls)
            calls += [max(0, events - sum(calls)) // unnamed] * unnamed if unnamed > 0 else []
        for at, of_thread in enumerate(sorted(calls, reverse=True)):
            found[at] += of_thread
    return found[: max(1, sum(map(bool, found)))]


def _recorded_counts(info: Info) -> dict[str, Any]:
    """The counts that bound the possible gain (`study.saving_bound.RecordedCounts`)."""
    return {
        "events": info.events,
        "aligned": sum(one["count"] for one in info.alignments if one["alignment"] > MALLOC_ALIGNMENT),
        "asked_bytes": info.asked_bytes,
        "live_bytes": info.peak_live_bytes,
        "untouched_bytes": info.large_blocks["untouched_at_peak_bytes"],
        "glibc": info.allocator.startswith("glibc"),
    }


class ElsewhereError(HeapwrightError):
    """The recorded program runs outside the processes that are measured."""


def check_measured(recorded: Mapping[str, Mapping[str, Any]]) -> None:
    """Check that the recorded program runs in the processes that are measured.

    A launcher such as srun passes the environment to a daemon. That starts the program, which is recorded, but is no
    descendant of the command. Then the recorder reads far more resident memory than the meter does in the same run.

    Args:
        recorded: facts about each recording, by input (`record_inputs`).

    Raises:
        ElsewhereError: it does not.
    """
    size = METRICS["peak_rss_bytes"].show
    for facts in recorded.values():
        measured, resident = facts.get("measured_bytes"), facts.get("resident_bytes") or 0
        if measured is not None and resident > _MAX_RESIDENT_RATIO * measured + _PROCESS_BYTES:
            raise ElsewhereError(
                f"{facts['resident_program']} has {size(resident)} of resident memory, but all processes of the command"
                f" have {size(measured)}: another process starts it, as a daemon does for srun, so it is not measured."
                " Run heapwright where the program runs, as in: srun -n 1 heapwright tune -- PROGRAM"
            )


def unaccounted(recorded: Mapping[str, Mapping[str, Any]], traces: Mapping[str, Path], program: Program) -> str:
    """Why a recording accounts for too little of the program's memory to search on it; empty if it does not.

    The function compares the program's heap at its peak with the peak of the recorded live bytes. The heap is memory
    that is both private and resident, less the part that every process has. An allocator may need several times the
    bytes that it hands out, so only a recording far below the heap is refused. For tiny blocks most memory is
    overhead; then each block counts with its overhead.

    Args:
        recorded: facts about each recording, by input (`record_inputs`).
        traces: paths of the traces, by input.
        program: measurements of the program (`agreement.program_values`).
    """
    for name, facts in recorded.items():
        peaks = [program.get((name, metric)) for metric in ("peak_rss_bytes", "peak_heap_bytes")]
        heap = min((peak for peak in peaks if peak is not None), default=0.0) - _PROCESS_BYTES
        live = facts.get("peak_live_bytes")
        if live is None or live >= MIN_HEAP_SHARE * heap:  # studies of older versions do not have it
            continue
        if facts.get("share", 1.0) > MIN_HEAP_SHARE:
            info, _ = read_info(traces[name])
            live = max(live, info.lower_bound.peak_bytes + _BLOCK_BYTES * info.peak_live_objects)
        if live < MIN_HEAP_SHARE * heap:
            size = METRICS["peak_rss_bytes"].show
            whole = size(heap + _PROCESS_BYTES)
            return f"the recording accounts for {size(live)} of the {whole} that the program has at its peak"
    return ""


def program_seconds(
    workload: Workload, recorded: Mapping[str, Mapping[str, Any]], program: Program
) -> dict[str, float]:
    """How long a run of the program takes on this machine, in seconds by input.

    Only for inputs whose whole run is the life of the recorded process: not for servers, whose load decides how long
    they run, nor for commands of several processes.

    Args:
        workload: the program and its inputs.
        recorded: facts about each recording, by input (`record_inputs`).
        program: measurements of the program (`agreement.program_values`).
    """
    if workload.file.server is not None:
        return {}
    single_process = [name for name, facts in recorded.items() if facts.get("processes") == 1]
    return {name: program[name, "wall_s"] for name in single_process if (name, "wall_s") in program}
