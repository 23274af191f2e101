"""What is in a trace: the native program counts, here its answer becomes typed."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import msgspec

from heapwright.errors import HeapwrightError
from heapwright.trace.pack import native_program, need_trace


class Bin(msgspec.Struct, rename={"low": "from", "high": "to"}):
    """What falls into [low, high): how many blocks, how many bytes."""

    low: float
    high: float
    count: int
    bytes: int


class Bound(msgspec.Struct):
    """What every allocator must hold that keeps blocks apart and on 16-byte boundaries. Bytes.

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
    """Live bytes over the trace; columns of equal length, at most 512 points of equally many events."""

    points: int
    time_s: list[float]
    event: list[int]
    live_bytes: list[int]
    peak_bytes: list[int]


class Loss(msgspec.Struct):
    """What of the trace could not be read or made no sense."""

    bytes: int
    events: int
    cut_short: bool
    why: str
    failed_calls: int = 0


class Info(msgspec.Struct):
    """The answer of `heapwright info`, as far as people are shown it; `raw` is all of it.

    Bytes and seconds; None where the trace has no times.
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
    """Counts what is in a trace, of any form.

    Returns:
        what people are shown, and all of it as `info --json` writes it.

    Raises:
        UsageError: there is no such file.
        HeapwrightError: nothing of it can be read.
    """
    need_trace(trace)
    done = subprocess.run([native_program("heapwright-trace"), "info", trace], capture_output=True, check=False)
    # A command line may have bytes that are no text.
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"status {done.returncode}"]
        raise HeapwrightError(lines[-1].removeprefix("heapwright-trace: "))
    raw: dict[str, Any] = msgspec.json.decode(done.stdout.decode("utf-8", "replace"))
    return msgspec.convert(raw, Info), raw
