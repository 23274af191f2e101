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
from heapwright.trace.recordings import ready_of, trace_of
from heapwright.trace.replay import ReadyTrace, replay_once
from heapwright.workload.execute import Executor, Outcome, pad_environment
from heapwright.workload.model import Input, Workload

# The metrics to which resident memory that is not malloc's is added. The recording tells its size at the peak only, so
# it counts as constant.
_RESIDENT = ("peak_rss_bytes", "mean_rss_bytes", "p95_rss_bytes", "peak_pss_bytes", "mean_pss_bytes")


class Replays:
    """Runs replays; it stands for an executor (`RunsInputs`). Use it as a context manager.

    Args:
        workload: the program; replays have its environment.
        traces: input name → its trace.
        options: how replays are measured.
        environ: the environment below the workload's own; None for that of this process.
        folder: keeps the files that replays read; None for the system's folder for temporary files.
        program_peaks: input name → peak resident memory of the recorded program, in bytes. For these inputs the
            resident memory of each replay is that predicted for the program: the difference between the program's
            peak and that of a replay on the program's malloc is added. It is the memory that is not malloc's.
    """

    def __init__(
        self,
        workload: Workload,
        traces: Mapping[str, Path],
        options: MeterOptions,
        environ: Mapping[str, str] | None = None,
        folder: Path | None = None,
        program_peaks: Mapping[str, int] | None = None,
    ) -> None:
        self.workload = workload
        self.traces = traces
        self.options = options
        self.environ = environ
        self.folder = folder
        self.program_peaks = dict(program_peaks or {})
        self._outside_malloc: dict[str, float] = {}  # input name → bytes to add to resident memory
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
        outcome = self._replay(input_, env, pad, stop)
        outside = self._outside_malloc.get(input_.name, 0.0)
        for metric in _RESIDENT:
            value = outcome.run.metrics.get(metric)
            if value is not None:
                outcome.run.metrics[metric] = value + outside
        return outcome

    def _replay(self, input_: Input, env: Mapping[str, str], pad: int, stop: threading.Event | None) -> Outcome:
        """Replay the prepared trace of an input once. See `run`."""
        ready = self._ready[input_.name]
        environ = os.environ if self.environ is None else self.environ
        whole = {**environ, **self.workload.file.env, **input_.env, **env}
        # The program as it is; or another malloc, which comes first, and beside it the one that the program loads.
        loaded = ready.linked_malloc if "LD_PRELOAD" in env else ready.own_malloc
        before = [library for library in whole.get("LD_PRELOAD", "").split(":") if library]
        if loaded and os.path.realpath(loaded) not in map(os.path.realpath, before):
            whole["LD_PRELOAD"] = ":".join([*before, loaded])
        replayed = replay_once(ready, self.options, pad_environment(whole, pad), stop=stop)
        replayed.run.metrics.update(replayed.metrics())
        return Outcome(replayed.run, "", replayed.failure)

    def prepare(self, input_: Input) -> None:
        """Make the trace of an input ready for replays, unless it is."""
        with self._preparing:
            if input_.name not in self._ready:
                self._ready[input_.name] = self._files.enter_context(ready_of(self.traces[input_.name], self.folder))
                if input_.name in self.program_peaks:
                    metrics = self._replay(input_, {}, 0, None).run.metrics
                    outside = self.program_peaks[input_.name] - (metrics.get("peak_rss_bytes") or math.inf)
                    self._outside_malloc[input_.name] = max(0.0, outside)


def recorded_replays(
    workload: Workload, options: MeterOptions, program_peaks: Mapping[str, int] | None = None
) -> Replays:
    """Return replays of a workload of recordings.

    Args:
        workload: its inputs are recordings.
        options: how replays are measured.
        program_peaks: see `Replays`.
    """
    traces = {i.name: trace_of(i) for i in workload.inputs}
    return Replays(workload, traces, options, program_peaks=program_peaks)


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
