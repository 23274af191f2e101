"""Reads the statistics of a trace: the native program counts, this module gives the result types."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import msgspec

from heapwright.errors import HeapwrightError
from heapwright.trace.pack import native_program, need_trace


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


class Loss(msgspec.Struct):
    """What could not be read of a trace, or was invalid.

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


class Info(msgspec.Struct):
    """The part of the statistics that `heapwright info` prints, in bytes and seconds.

    Times are None if the trace has no times.
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
    peak_resident_bytes: int | None
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


def read_info(trace: Path) -> tuple[Info, dict[str, Any]]:
    """Counts the events of a trace in any form.

    Returns:
        The statistics that are printed, and all statistics as `info --json` writes them.

    Raises:
        UsageError: there is no such file.
        HeapwrightError: nothing of the trace can be read.
    """
    need_trace(trace)
    done = subprocess.run([native_program("heapwright-trace"), "info", trace], capture_output=True, check=False)
    # A command line may have bytes that are not UTF-8.
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"status {done.returncode}"]
        raise HeapwrightError(lines[-1].removeprefix("heapwright-trace: "))
    raw: dict[str, Any] = msgspec.json.decode(done.stdout.decode("utf-8", "replace"))
    return msgspec.convert(raw, Info), raw
