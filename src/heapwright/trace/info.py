"""Reads the statistics of a trace: the native program counts, this module gives the result types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from heapwright.errors import HeapwrightError
from heapwright.trace.pack import need_trace, run_native


class Bin(msgspec.Struct, rename={"low": "from", "high": "to"}):
    """A bin of a histogram: the blocks in [low, high), their number and their bytes."""

    low: float
    high: float
    count: int
    bytes: int


class Bound(msgspec.Struct):
    """Lower bounds in bytes for every allocator that puts blocks on 16-byte boundaries (docs/info.md).

    Attributes:
        peak_bytes, mean_bytes: live bytes, each block rounded up to 16.
        peak_page_bytes, mean_page_bytes: the same in whole pages.
    """

    alignment: int
    page_size: int
    peak_bytes: int
    mean_bytes: float
    peak_page_bytes: int
    mean_page_bytes: float


class Curve(msgspec.Struct):
    """Live bytes over the trace: columns of equal length, at most 512 points of equally many events."""

    points: int
    time_s: list[float]
    event: list[int]
    live_bytes: list[int]
    peak_bytes: list[int]


class ResidentCurve(msgspec.Struct):
    """Readings of the process's resident memory over the trace, in bytes: columns of equal length, at most 1,024 rows.

    Attributes:
        files_bytes: the part in files and shared memory; None in old traces.
        heap_bytes: malloc's part; None where it was not measured.
    """

    time_s: list[float] = []
    resident_bytes: list[int] = []
    files_bytes: list[int | None] = []
    heap_bytes: list[int | None] = []


class Split(msgspec.Struct):
    """A reading of the process's resident memory, divided into parts that add up to it (bytes).

    Attributes:
        time_s: when it was taken.
        resident_bytes: the whole.
        live_bytes: blocks that the program holds; of large blocks only the resident bytes.
        files_bytes: files and shared memory.
        forked_bytes: private memory that came with the fork, at most; 0 if the process is no fork.
        free_bytes: memory that malloc holds and the program does not; None if malloc is not glibc's.
        own_bytes: the rest: mappings of the program, stacks, data of program and libraries; None as above.
        free_or_own_bytes: the last two together.
    """

    time_s: float
    resident_bytes: int
    live_bytes: int
    files_bytes: int
    forked_bytes: int
    free_bytes: int | None
    own_bytes: int | None
    free_or_own_bytes: int


class Loss(msgspec.Struct):
    """The parts of a trace that could not be read or were invalid.

    Attributes:
        bytes, events: lost.
        cut_short: the trace has no proper end.
        why: one line, or empty if nothing was lost.
        failed_calls: calls of the program that the allocator refused.
    """

    bytes: int
    events: int
    cut_short: bool
    why: str
    failed_calls: int = 0


class SampleEstimates(msgspec.Struct):
    """The estimates from a sample of objects (docs/trace-format.md) and their standard errors.

    Attributes:
        rate: one small object in so many is in the sample.
        objects: in the sample.
        allocations, allocations_error: of the program.
        allocated_bytes, allocated_error: requested by allocations.
        peak_live_bytes: the maximum of live bytes; on average at most the true one.
        peak_live_error: of live bytes at that time.
    """

    rate: int
    objects: int
    allocations: float
    allocations_error: float
    allocated_bytes: float
    allocated_error: float
    peak_live_bytes: float
    peak_live_error: float

    @property
    def peak_share(self) -> float:
        """The standard error of the peak of live bytes, as a share of it."""
        return self.peak_live_error / self.peak_live_bytes if self.peak_live_bytes else 0.0


class Info(msgspec.Struct):
    """The part of the statistics that `heapwright info` prints, in bytes and seconds.

    Times are None if the trace has no times. `end_known` tells whether the trace covers the time up to the end.
    `alignments` holds the alignments in bytes that aligned allocations asked for, and how many did.
    """

    events: int
    threads: int
    allocations: int
    frees: int
    callocs: int
    aligned: int
    reallocs: int
    duration_s: float | None
    events_per_s: float | None
    bytes_per_s: float | None
    peak_time_s: float | None
    asked_bytes: int
    largest_bytes: int
    peak_live_bytes: int
    peak_event: int
    peak_live_objects: int
    mean_live_bytes: float
    averaged_over: str
    end_live_bytes: int
    end_known: bool
    peak_resident_bytes: int | None
    resident_at_peak: Split | None
    resident_at_end: Split | None
    lower_bound: Bound
    file_bytes: int
    bytes_per_event: float | None
    sizes: list[Bin]
    top_sizes: list[dict[str, int]]
    lifetimes_allocations: list[Bin]
    lifetimes_s: list[Bin]
    never_freed: dict[str, int]
    remote_frees: dict[str, float]
    realloc_chains: dict[str, Any]
    large_blocks: dict[str, int]
    thread_list: list[dict[str, float]]
    curve: Curve
    command: list[str]
    executable: str
    allocator: str
    synthetic: bool
    phases: list[str]
    loss: Loss
    sample: SampleEstimates | None = None
    forked: bool = False
    alignments: list[dict[str, int]] = []
    resident_curve: ResidentCurve = msgspec.field(default_factory=ResidentCurve)


def read_info(trace: Path) -> tuple[Info, dict[str, Any]]:
    """Counts the events of a trace in any form.

    Returns:
        The statistics that are printed, and all statistics as `info --json` writes them.

    Raises:
        UsageError: there is no such file.
        HeapwrightError: nothing of the trace can be read.
    """
    need_trace(trace)
    raw: dict[str, Any] = msgspec.json.decode(run_native("info", trace)[0])
    return msgspec.convert(raw, Info), raw


def nothing_in(trace: Path, info: Info | None = None) -> HeapwrightError:
    """Returns the error for a trace without any allocation: it is damaged, or the program made none that was seen.

    Args:
        trace: the trace.
        info: its statistics; None to read them.
    """
    loss = (info or read_info(trace)[0]).loss
    if loss.why:
        return HeapwrightError(f"{trace}: no event can be read: {loss.why}", "record it again, or copy it again")
    return HeapwrightError(f"{trace}: there is nothing to replay in it", "is the program statically linked?")
