"""The cheap stand-in: each input's allocations, recorded once, replayed in place of the program.

    record (once an input)  ──►  replays of what has been measured on the program already  ──►  do they rank it alike?
        └─ cannot be: why                 └─ hardly faster: why                                   └─ no: why

Where the answer is no, the program itself is searched. What a replay measures predicts the program by differences
(`blocks.gather`), those of an allocator's settings from what the program itself showed at its defaults (`anchored`):
how an allocator places blocks makes the program's own code faster or slower, which no replay tells. That replays rank
settings as the program does is checked on the way, on settings that are measured on both.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from heapwright.errors import HeapwrightError
from heapwright.experiment.budget import Budget
from heapwright.experiment.candidates import Program
from heapwright.metrics import METRICS
from heapwright.study.store import Store
from heapwright.trace import record
from heapwright.trace.info import read_info
from heapwright.workload.execute import Executor
from heapwright.workload.model import Input, Workload

CHECK_EVERY = 32  # further configurations replayed between two checks
WORTH = 0.5  # a replay may take at most this share of a program run
ACCOUNTS = 0.25  # the share of the program's heap below which a recording is no ground to search on
_PROCESS_BYTES = 4 << 20  # private memory that a small process has beside its heap: data, stacks, libraries' tables
_BLOCK_BYTES = 16  # of an allocator's own for each block
_OPERATION_BYTES = 8


def record_inputs(
    store: Store, workload: Workload, executor: Executor, inputs: Sequence[Input], budget: Budget
) -> tuple[dict[str, Path], dict[str, Any]]:
    """Each input's trace by name, recorded where it is not there yet, and what is to be said of them.

    Raises:
        HeapwrightError: an input cannot be recorded; the message says why.
    """
    traces: dict[str, Path] = {}
    told: dict[str, Any] = dict(store.meta.recorded)
    store.traces.mkdir(exist_ok=True)
    for left in store.traces.glob(f".*{record.SUFFIX}"):  # of a study that was killed; this one has the lock
        shutil.rmtree(left, ignore_errors=True)
    for input_ in inputs:
        trace = store.traces / f"{hashlib.sha256(input_.name.encode()).hexdigest()[:12]}.hwt"
        if not trace.is_file() or input_.name not in told:
            told[input_.name] = record_input(workload, executor, input_, trace)
            told[input_.name]["charged_s"] = budget.charge()
            store.update(recorded=told)
        else:
            budget.recall(float(told[input_.name].get("charged_s", told[input_.name]["elapsed_s"])))
        traces[input_.name] = trace
    return traces, told


def record_input(workload: Workload, executor: Executor, input_: Input, trace: Path) -> dict[str, Any]:
    """Records one input's busiest process, and says what is in the trace.

    Raises:
        HeapwrightError: it cannot be recorded; the message says why.
    """
    folder = Path(tempfile.mkdtemp(prefix=".", suffix=record.SUFFIX, dir=trace.parent))
    began = time.monotonic()
    try:
        outcome = record.run_recorded(executor, input_, folder)
        if outcome.failure:
            raise HeapwrightError(f"it does not run while it is recorded: {outcome.failure}")
        if not any(folder.glob("*.raw")):
            raise record.nothing_recorded(workload.program(input_))
        processes = record.recover(folder, trace, workload.program(input_))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(record.others_folder(trace), ignore_errors=True)
    busiest, events = processes[0], sum(p.packed.events for p in processes)
    if not busiest.packed.allocations:
        raise HeapwrightError("it allocates nothing")
    if busiest.packed.events * _OPERATION_BYTES > shutil.disk_usage(tempfile.gettempdir()).free / 2:
        raise HeapwrightError(f"its trace of {busiest.packed.events:,} events is too long for {tempfile.gettempdir()}")
    return {
        "elapsed_s": time.monotonic() - began,
        "events": busiest.packed.events,
        "threads": busiest.packed.threads,
        "bytes": busiest.packed.bytes,
        "share": busiest.packed.events / max(1, events),
        "peak_live_bytes": sum(p.packed.peak_live_bytes for p in processes),
        "executable": busiest.executable,
        "processes": len(processes),
        "warning": busiest.warning,
        "heap": _heap(trace) | {"alike": sum(p.executable == busiest.executable for p in processes)},
    }


def _heap(trace: Path) -> dict[str, Any]:
    """What bounds the gains (`matters.Heap`)."""
    info, _ = read_info(trace)
    return {
        "events": info.events,
        "asked_bytes": info.asked_bytes,
        "live_bytes": info.peak_live_bytes,
        "untouched_bytes": info.large_blocks["untouched_at_peak_bytes"],
        "glibc": info.allocator.startswith("glibc"),
    }


def unaccounted(recorded: Mapping[str, Mapping[str, Any]], traces: Mapping[str, Path], program: Program) -> str:
    """Why a recording says too little of the program's memory to search on it; empty if it accounts for enough.

    The program's heap at its peak is compared with the recorded blocks at theirs. The heap is what is both mapped
    privately and resident, less what any process has. An allocator may need several times what it hands out, so only a
    recording that is far below is refused. Of tiny blocks most memory is overhead: then each block counts with it.

    Args:
        recorded: what `record_inputs` says, by input.
        traces: by input.
        program: what the program measures (`program_values`).
    """
    for name, told in recorded.items():
        peaks = [program.get((name, metric)) for metric in ("peak_rss_bytes", "peak_heap_bytes")]
        heap = min((peak for peak in peaks if peak is not None), default=0.0) - _PROCESS_BYTES
        live = told.get("peak_live_bytes")
        if live is None or live >= ACCOUNTS * heap:  # an older study does not say
            continue
        if told.get("share", 1.0) > ACCOUNTS:
            info, _ = read_info(traces[name])
            live = max(live, info.lower_bound.peak_bytes + _BLOCK_BYTES * info.peak_live_objects)
        if live < ACCOUNTS * heap:
            size = METRICS["peak_rss_bytes"].show
            whole = size(heap + _PROCESS_BYTES)
            return f"the recording accounts for {size(live)} of the {whole} that the program has at its peak"
    return ""
