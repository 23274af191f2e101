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
import math
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heapwright.errors import HeapwrightError
from heapwright.experiment.blocks import Candidate, Program
from heapwright.experiment.budget import Budget
from heapwright.measure.meter import MeterOptions
from heapwright.metrics import METRICS
from heapwright.study.store import Store, StoredRun
from heapwright.study.view import Agreement
from heapwright.trace import record
from heapwright.trace.info import read_info
from heapwright.trace.replay import Ready, make_ready, replay_once
from heapwright.workload.execute import Executor, Outcome, pad_environment
from heapwright.workload.model import Input, Workload

# What a replay has a figure of.
TOLD = frozenset(
    {
        "peak_rss_bytes",
        "mean_rss_bytes",
        "peak_pss_bytes",
        "mean_pss_bytes",
        "peak_heap_bytes",
        "peak_vm_bytes",
        "wall_s",
        "cpu_s",
        "user_s",
        "sys_s",
        "minor_faults",
        "mapping_calls",
    }
)
PHASE = "replay"
CHECK = "check"
CHECK_EVERY = 32  # further configurations replayed between two checks
WORTH = 0.5  # a replay may take at most this share of a program run
RANK = 0.6  # Spearman's correlation below which a replay does not hold
ACCOUNTS = 0.25  # the share of the program's heap below which a recording is no ground to search on
_PROCESS_BYTES = 4 << 20  # private memory that a small process has beside its heap: data, stacks, libraries' tables
_BLOCK_BYTES = 16  # of an allocator's own for each block
_LEAST_PAIRS = 5
_LEAST_RELIABILITY = 0.3
_OPERATION_BYTES = 8


def program_values(calibrated: Sequence[StoredRun]) -> Program:
    """What the program as it is measures, by input and metric: the median of its runs."""
    values: dict[tuple[str, str], list[float]] = {}
    for run in [r for r in calibrated if r.block > 0] or calibrated:  # the first run of an input warms caches
        for metric in TOLD:
            value = run.metrics.get(metric)
            if value:
                values.setdefault((run.input, metric), []).append(value)
    return {key: statistics.median(found) for key, found in values.items()}


def record_inputs(
    store: Store, workload: Workload, executor: Executor, inputs: Sequence[Input], budget: Budget
) -> tuple[dict[str, Path], dict[str, Any]]:
    """Each input's trace by name, recorded where it is not there yet, and what is to be said of them.

    Raises:
        HeapwrightError: an input cannot be recorded; the message says why.
    """
    traces: dict[str, Path] = {}
    told: dict[str, Any] = store.get("recorded") or {}
    store.traces.mkdir(exist_ok=True)
    for left in store.traces.glob(f".*{record.SUFFIX}"):  # of a study that was killed; this one has the lock
        shutil.rmtree(left, ignore_errors=True)
    for input_ in inputs:
        trace = store.traces / f"{hashlib.sha256(input_.name.encode()).hexdigest()[:12]}.hwt"
        if not trace.is_file() or input_.name not in told:
            told[input_.name] = record_input(workload, executor, input_, trace)
            told[input_.name]["charged_s"] = budget.charge()
            store.put({"recorded": told})
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


class Replays:
    """Runs replays where an executor runs the program. Use as a context manager.

    Args:
        workload: whose environment the replays have.
        traces: by input.
        environ: the environment under the workload's own; None for ours.
        folder: where the files go that replays read; None for the system's place for temporary files.
    """

    def __init__(
        self,
        workload: Workload,
        traces: Mapping[str, Path],
        options: MeterOptions,
        environ: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.workload = workload
        self.traces = traces
        self.options = options
        self.environ = environ
        self.folder = folder
        self._ready: dict[str, Ready] = {}
        self._files = ExitStack()
        self._making = threading.Lock()

    def __enter__(self) -> Replays:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def run(self, input_: Input, env: Mapping[str, str], pad: int = 0, stop: threading.Event | None = None) -> Outcome:
        """One replay of an input under these variables. See `Executor.run`."""
        with self._making:  # a trace is made ready when the first replay of it is wanted: all may be stored already
            if input_.name not in self._ready:
                self._ready[input_.name] = self._files.enter_context(make_ready(self.traces[input_.name], self.folder))
        environ = os.environ if self.environ is None else self.environ
        whole = {**environ, **self.workload.file.env, **input_.env, **env}
        replayed = replay_once(self._ready[input_.name], self.options, pad_environment(whole, pad), stop=stop)
        replayed.run.metrics.update(replayed.metrics())
        return Outcome(replayed.run, "", replayed.failure)


@dataclass(frozen=True)
class Check:
    """How replays and program agree: by objective, and whether the search may rely on the replay."""

    by_objective: list[Agreement]

    @property
    def fails(self) -> str:
        """Why it may not, or empty."""
        return "; ".join(
            f"it ranks {METRICS[a.metric].label} otherwise than the program ({a.rank:+.2f} in {len(a.pairs)} settings)"
            for a in self.by_objective
            if a.verdict == "fails" and a.rank is not None
        )


def anchored(predicted: Mapping[int, Candidate], program: Mapping[int, Candidate]) -> dict[int, Candidate]:
    """Shift predictions so that each allocator at its defaults costs what the program measured."""
    anchors = {c.config.allocator: (c, program[id_]) for id_, c in predicted.items() if is_anchor(c) and id_ in program}
    return {
        id_: _moved(c, *anchors[c.config.allocator]) if c.config.allocator in anchors else c
        for id_, c in predicted.items()
    }


def is_anchor(candidate: Candidate) -> bool:
    """Whether it is an allocator at its defaults."""
    return not candidate.config.settings and not candidate.failure


def _moved(candidate: Candidate, predicted: Candidate, program: Candidate) -> Candidate:
    moved = Candidate(candidate.config, candidate.failure, candidate.runs)
    for metric, groups in candidate.logs.items():
        moved.logs[metric] = {}
        for input_, logs in groups.items():
            told, seen = predicted.logs.get(metric, {}).get(input_), program.logs.get(metric, {}).get(input_)
            shift = statistics.fmean(seen) - statistics.fmean(told) if told and seen else 0.0
            moved.logs[metric][input_] = [log + shift for log in logs]
    return moved


def check(
    program: Mapping[int, Candidate],
    predicted: Mapping[int, Candidate],
    objectives: Sequence[str],
    noise: Mapping[str, float],
) -> Check:
    """Compares what was measured on both; what `anchored` has made equal aside.

    Args:
        noise: standard deviation of one log ratio of the program, by objective, as calibrated; the runs themselves may
            show more.
    """
    both = [
        (program[id_], predicted[id_])
        for id_ in predicted
        if id_ in program
        and not is_anchor(program[id_])
        and program[id_].costs(objectives) is not None
        and predicted[id_].costs(objectives) is not None
    ]
    return Check([_agreement(m, both, noise.get(m, 0.0)) for m in objectives])


def _agreement(metric: str, both: Sequence[tuple[Candidate, Candidate]], noise: float) -> Agreement:
    """Spearman's rank correlation, corrected for the noise of the program's own figures.

    Two measurements of one quantity correlate by at most the root of their reliability, the share of their variance
    that is not noise (Spearman, The Proof and Measurement of Association between Two Things, 1904). Where hardly any
    of it is signal, and the replay sees no differences either, there is nothing to rank. A few pairs must speak
    clearly to say that the replay does not hold.
    """
    from scipy.stats import spearmanr

    pairs = [(p.cost(metric) or 0.0, f.cost(metric) or 0.0) for p, f in both]
    if len(pairs) < _LEAST_PAIRS:
        return Agreement(metric, pairs, None, "few")
    variance = max(noise**2, _within([p for p, _ in both], metric))
    error = statistics.fmean(variance / max(1, p.runs) for p, _ in both)
    spread = statistics.pvariance([p for p, _ in pairs])
    reliability = max(0.0, 1 - error / spread) if spread else 0.0
    told = statistics.pvariance([f for _, f in pairs])
    if reliability < _LEAST_RELIABILITY and told <= 4 * max(error, 0.005**2):
        return Agreement(metric, pairs, None, "flat")
    rank = float(spearmanr([p for p, _ in pairs], [f for _, f in pairs]).statistic) if spread and told else 0.0
    corrected = rank / max(reliability, _LEAST_RELIABILITY) ** 0.5
    if corrected >= RANK:
        return Agreement(metric, pairs, rank, "holds")
    return Agreement(metric, pairs, rank, "fails" if _at_most(corrected, len(pairs)) < RANK else "unclear")


def _at_most(rank: float, pairs: int) -> float:
    """What the correlation is with 95 % certainty at most: Fisher's z, with Fieller's factor for ranks (1957)."""
    return math.tanh(math.atanh(max(-0.999, min(0.999, rank))) + 1.645 * 1.03 / (pairs - 3) ** 0.5)


def _within(candidates: Sequence[Candidate], metric: str) -> float:
    """The variance of a log ratio of one configuration, pooled over those that were measured more than once."""
    groups = [g for c in candidates for g in c.logs.get(metric, {}).values() if len(g) > 1]
    free = sum(len(g) - 1 for g in groups)
    return sum(statistics.variance(g) * (len(g) - 1) for g in groups) / free if free else 0.0
