"""Cuts a span of time out of a trace."""

from __future__ import annotations

from pathlib import Path

from heapwright.errors import UsageError
from heapwright.trace.info import read_info
from heapwright.trace.pack import Packed, ask, draft_for_native, need_trace


def cut(trace: Path, part: Path, after_s: float, for_s: float | None = None) -> tuple[Packed, str]:
    """Writes a span of a trace as a trace of its own, as if `record --after --for` had recorded only that.

    Args:
        trace: complete or a sample.
        part: the file to write.
        after_s: seconds from the start of the trace to that of the span.
        for_s: its length in seconds; None: to the end of the trace.

    Returns:
        Counts of the part, and a warning if something of the trace was lost, or an empty string.

    Raises:
        UsageError: there is no such trace, it has no times, or it ends before the span begins.
        HeapwrightError: the trace cannot be read, or the part cannot be written.
    """
    need_trace(trace)
    length = read_info(trace)[0].duration_s
    if length is None:
        raise UsageError(f"{trace} has no times", "only a recorded or synthetic trace can be cut")
    if after_s >= length:
        raise UsageError(f"{trace} lasts {length:.3g} s, so there is nothing after {after_s:g} s")
    end = "-" if for_s is None or after_s + for_s >= length else str(round((after_s + for_s) * 1e9))
    with draft_for_native(part) as draft:
        return ask(Packed, "cut", trace, draft, str(round(after_s * 1e9)), end)
