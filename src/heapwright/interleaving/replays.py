"""Runs replays of recorded allocations in place of the program.

`Replays` makes them. `ReplayExecutor` is the executor of a study of recordings: its workload's inputs are the
recordings (`trace.recordings`), and no program runs.
"""

from __future__ import annotations

import copy
import math
import os
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from heapwright.measure.meter import MeterOptions
from heapwright.trace.program_memory import ProgramMemory, misfit
from heapwright.trace.recordings import ready_of, trace_of
from heapwright.trace.replay import ReadyTrace, ReplayRun, replay_once
from heapwright.workload.execute import Executor, Outcome, pad_environment
from heapwright.workload.model import Input, Workload


class Replays:
    """Runs replays; it stands for an executor (`RunsInputs`). Use it as a context manager.

    Args:
        workload: the program; replays have its environment.
        traces: input name → its trace.
        options: how replays are measured.
        environ: the environment below the workload's own; None for that of this process.
        folder: keeps the files that replays read; None for the system's folder for temporary files.
        program_memory: input name → resident memory of the recorded program. For these inputs the resident memory of
            each replay is that predicted for the program: the difference between the program and a replay on the
            program's malloc is added, for each metric its own. It is the memory that is not malloc's.
        program_s: input name → seconds that the program takes here. Recorded time has no waits for a processor, but
            the recorder's own time. Replays show allocators the program's time, so that they purge memory as often.

    Attributes:
        misfits: input name → how far the replay on the program's malloc is from the recording
            (`program_memory.misfit`), of the inputs made ready so far.
    """

    def __init__(
        self,
        workload: Workload,
        traces: Mapping[str, Path],
        options: MeterOptions,
        environ: Mapping[str, str] | None = None,
        folder: Path | None = None,
        program_memory: Mapping[str, ProgramMemory] | None = None,
        program_s: Mapping[str, float] | None = None,
    ) -> None:
        self.workload = workload
        self.traces = traces
        self.options = options
        self.environ = environ
        self.folder = folder
        self.program_memory = dict(program_memory or {})
        self.program_s = dict(program_s or {})
        self.misfits: dict[str, float | None] = {}
        self._outside_malloc: dict[str, dict[str, float]] = {}  # input name → metric → bytes to add
        self._ready: dict[str, ReadyTrace] = {}
        self._files = ExitStack()
        self._preparing = threading.Lock()

    def __enter__(self) -> Replays:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def run(self, input_: Input, env: Mapping[str, str], pad: int = 0, stop: threading.Event | None = None) -> Outcome:
        """Replay the trace of an input once. See `Executor.run`.

        Args:
            input_: the input whose trace is replayed.
            env: the environment variables that make the configuration.
            pad: bytes of padding (`pad_environment`).
            stop: ends the replay early when another thread sets it.
        """
        self.prepare(input_)  # only now: all replays of an input may be stored already
        replayed = self._replay(input_, env, pad, stop)
        for metric, outside in self._outside_malloc.get(input_.name, {}).items():
            value = replayed.run.metrics.get(metric)
            if value is not None:
                replayed.run.metrics[metric] = value + outside
        return Outcome(replayed.run, "", replayed.failure)

    def _replay(self, input_: Input, env: Mapping[str, str], pad: int, stop: threading.Event | None) -> ReplayRun:
        """Replay the prepared trace of an input once. See `run`."""
        ready = self._ready[input_.name]
        environ = os.environ if self.environ is None else self.environ
        whole = {**environ, **self.workload.file.env, **input_.env, **env}
        # The program as it is; or another malloc, which comes first, and beside it the one that the
        # program loads.
        loaded = ready.linked_malloc if "LD_PRELOAD" in env else ready.own_malloc
        before = [library for library in whole.get("LD_PRELOAD", "").split(":") if library]
        if loaded and os.path.realpath(loaded) not in map(os.path.realpath, before):
            whole["LD_PRELOAD"] = ":".join([*before, loaded])
        recorded_s = ready.operations.recorded_s
        slowdown = self.program_s.get(input_.name, recorded_s) / recorded_s if recorded_s else 1.0
        replayed = replay_once(ready, self.options, pad_environment(whole, pad), stop=stop, slowdown=slowdown)
        replayed.run.metrics.update(replayed.metrics())
        return replayed

    def prepare(self, input_: Input) -> None:
        """Make the trace of an input ready for replays, unless it is."""
        with self._preparing:
            if input_.name not in self._ready:
                self._ready[input_.name] = self._files.enter_context(ready_of(self.traces[input_.name], self.folder))
                if input_.name in self.program_memory:
                    self._compare_with_recording(input_, self.program_memory[input_.name])

    def _compare_with_recording(self, input_: Input, memory: ProgramMemory) -> None:
        """Replay on the program's malloc: find the memory that is not malloc's, and how well the replay fits."""
        replayed = self._replay(input_, {}, 0, None)
        if replayed.report is None:
            return
        metrics = replayed.run.metrics

        def outside(metric: str, bytes_: float) -> float:
            return max(0.0, bytes_ - (metrics.get(metric) or math.inf))

        at_peak = outside("peak_rss_bytes", memory.peak_bytes)
        self._outside_malloc[input_.name] = {
            metric: outside(metric, bytes_) if bytes_ else at_peak for metric, bytes_ in memory.by_metric().items()
        }
        self.misfits[input_.name] = misfit(memory, replayed.report)


def recorded_replays(
    workload: Workload, options: MeterOptions, program_memory: Mapping[str, ProgramMemory] | None = None
) -> Replays:
    """Return replays of a workload of recordings.

    Args:
        workload: its inputs are recordings.
        options: how replays are measured.
        program_memory: see `Replays`.
    """
    traces = {i.name: trace_of(i) for i in workload.inputs}
    return Replays(workload, traces, options, program_memory=program_memory)


class ReplayExecutor(Executor):
    """Runs replays where the pipeline runs a program.

    Args:
        replays: the recordings; they stay open as long as `replays`, for all executors made from it.
        options: how to measure; the timeout (seconds) applies to every replay.
        references: see `Executor`.
    """

    def __init__(self, replays: Replays, options: MeterOptions, references: Path) -> None:
        super().__init__(replays.workload, options, references)
        self._replays = copy.copy(replays)  # shares the files made ready

    @property
    def replays(self) -> Replays:
        """The replays, as they are measured now."""
        self._replays.options = self.options
        return self._replays

    def run(self, input_: Input, env: Mapping[str, str], pad: int = 0, stop: threading.Event | None = None) -> Outcome:
        """Replay the recording of an input once. See `Executor.run`.

        Args:
            input_: the input.
            env: the environment variables that make the configuration.
            pad: bytes of padding (`pad_environment`).
            stop: ends the replay early when another thread sets it.
        """
        return self.replays.run(input_, env, pad, stop)
