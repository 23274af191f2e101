"""Predicts the program's memory from replays.

A replay has the blocks of the program and not the rest of its memory: its image, libraries, stacks and mappings of its
own. A pair of measurements gives that rest: base = program - replay, both on the recorded malloc with nothing set. The
prediction for any other allocator or setting is replay + base.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from heapwright.errors import HeapwrightError, UsageError
from heapwright.metrics import METRICS

if TYPE_CHECKING:
    from heapwright.measure.meter import MeterOptions
    from heapwright.trace.info import Info
    from heapwright.trace.replay import Operations, ReadyTrace, ReplayRun

# Proportional memory of a replay is its resident memory (`ReplayRun.metrics`), so its base would
# mean nothing.
PREDICTED: tuple[str, ...] = tuple(
    m.key for m in METRICS.values() if m.kind == "memory" and m.replayable and not m.proportional
)

PEAK = "peak_rss_bytes"
WINDOW = "window"  # the phase that a window of the recorder begins
# `replay --base` warns of a larger error. The slack is for the recorder, stacks, and readings
# beside the peak.
MISSED = 0.03
SLACK_BYTES = 512 << 10


class ProgramMeasurement(msgspec.Struct):
    """The part of the JSON of `heapwright measure` that is needed here.

    Attributes:
        command: the program and its arguments.
        summary: metric → statistics over the runs; None where it was not measured.
        inputs: the inputs of a workload file; none for a command.
        meter: the meter's back end; empty if the file does not tell.
    """

    command: list[str]
    summary: dict[str, dict[str, float] | None]
    inputs: dict[str, Any] = {}
    meter: str = ""

    def value(self, metric: str) -> float | None:
        """Returns the median over the runs; None if it was not measured."""
        return (self.summary.get(metric) or {}).get("median")

    def runs_program(self, executable: str) -> bool:
        """Returns whether the measured command runs this executable; scripts and their interpreters differ."""
        return bool(self.command) and os.path.realpath(shutil.which(self.command[0]) or self.command[0]) == (
            os.path.realpath(executable)
        )

    def slowdown(self, operations: Operations, info: Info) -> float:
        """Returns how many times the recorded time the measured program took.

        Recorded time has no waits for a processor, but the recorder's own time. An allocator that purges after a time
        should see the time that the program took when its memory was measured.

        Args:
            operations: counts of the recording.
            info: its statistics.

        Returns:
            1 if the recording may be of something else than a whole run of the command: a part, or one of several
            processes. A load decides how long a server runs, and workload files may have one.
        """
        took, recorded_s = self.value("wall_s"), operations.recorded_s
        part = operations.sample or operations.cut_short or info.forked or info.synthetic or WINDOW in info.phases
        whole = not part and self.runs_program(operations.executable)
        return took / recorded_s if whole and took and recorded_s and not self.inputs else 1.0


def read_measured(path: Path) -> ProgramMeasurement:
    """Reads the JSON that `heapwright measure` wrote of the program.

    Raises:
        UsageError: the file cannot be read, is no such JSON, or has several inputs.
    """
    try:
        # Not msgspec's decoder: words that are not UTF-8 are stored as lone surrogates, which it
        # refuses.
        measured = msgspec.convert(json.loads(path.read_bytes()), type=ProgramMeasurement)
    except OSError as error:
        raise UsageError(f"--base {path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):  # msgspec.ValidationError is a ValueError
        hint = "heapwright measure --json FILE -- ./prog args writes one"
        raise UsageError(f"--base {path} is not a JSON file of 'heapwright measure'", hint) from None
    if len(measured.inputs) > 1:
        raise UsageError(f"--base {path} has {len(measured.inputs)} inputs", "measure the one that was recorded")
    return measured


def medians(replays: Sequence[ReplayRun]) -> dict[str, float]:
    """Returns the medians of the metrics in PREDICTED over replays, in bytes, without the replayer's own memory."""
    each = [replayed.metrics() for replayed in replays]
    values = {m: [v for one in each if (v := one.get(m)) is not None] for m in PREDICTED}
    return {m: statistics.median(found) for m, found in values.items() if found}


def replay_as_recorded(
    ready: ReadyTrace, options: MeterOptions, touch: Any, runs: int, slowdown: float = 1.0
) -> list[ReplayRun]:
    """Replays on the recorded malloc with nothing set.

    Args:
        ready: the trace.
        options: of the meter, as for the replays to predict from.
        touch, slowdown: see `replay_once`.
        runs: number of replays.

    Raises:
        HeapwrightError: a replay failed, or the recorded malloc is not on this machine.
    """
    from heapwright.allocators.registry import get_allocator
    from heapwright.trace.replay import environment, replay_once

    env = environment(get_allocator("glibc"), {}, os.environ)
    if ready.own_malloc:
        env["LD_PRELOAD"] = ":".join(filter(None, [env.get("LD_PRELOAD", ""), ready.own_malloc]))
    done = [replay_once(ready, options, env, touch, slowdown=slowdown) for _ in range(runs)]
    for replayed in done:
        if replayed.failure:
            raise HeapwrightError(f"the replay on the recorded malloc failed: {replayed.failure}")
    return done


def find_base(program: ProgramMeasurement, as_recorded: Sequence[ReplayRun]) -> dict[str, float]:
    """Subtracts replays on the recorded malloc from the program.

    Args:
        program: measured on that malloc with nothing set.
        as_recorded: `replay_as_recorded`; their median counts.

    Returns:
        Bytes of the program that no replay has, by metric; only metrics that both sides have.
    """
    return {m: value - own for m, own in medians(as_recorded).items() if (value := program.value(m)) is not None}


def base_error(base: Mapping[str, float], as_recorded: Sequence[ReplayRun], info: Info) -> float | None:
    """Compares the base of peak resident memory with the memory outside malloc in the recording.

    A replay that needs more memory than the recorded malloc had in the program makes the base too small.

    Args:
        base: `find_base`.
        as_recorded: the replays that gave it.
        info: of the trace. The recorder knows glibc's memory; of another malloc's program only the files are known to
            be outside, so only a base that is too small can be seen.

    Returns:
        Bytes that the replay needs too much (below 0: too little); None if the recording does not tell.
    """
    split = next((s for s in (info.resident_at_peak, info.resident_at_end) if s and s.own_bytes is not None), None)
    parts = split or info.resident_at_peak
    if parts is None or PEAK not in base:
        return None
    replays = statistics.median(r.report.outside_bytes for r in as_recorded if r.report)
    outside = parts.files_bytes + parts.forked_bytes + (parts.own_bytes or 0) - replays
    return outside - base[PEAK] if split else max(0.0, outside - base[PEAK])


def predict(base: Mapping[str, float], replays: Sequence[ReplayRun]) -> dict[str, float]:
    """Returns the program's predicted memory in bytes, by metric: replay + base."""
    return {m: value + base[m] for m, value in medians(replays).items() if m in base}
