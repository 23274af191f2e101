"""Prints the statistics of a trace in 80 columns: a few lines, a picture of live bytes, and two histograms."""

from __future__ import annotations

import shlex
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

import msgspec

from heapwright.terminal_text import counted, visible
from heapwright.trace.replay import effort

if TYPE_CHECKING:
    from rich.console import Console

    from heapwright.trace.info import Bin, Curve, Info, Split

_WIDTH = 80
_MIN_COMMAND = 20  # columns of the command beside a long file name
_PICTURE = (62, 8)  # columns, rows
_BLOCKS = " ▁▂▃▄▅▆▇█"
_BAR = 30
# The reading does not tell the two apart.
_OF_MALLOC = "free inside malloc or added to blocks"
_MAX_BINS = 14  # of a histogram; with more, two bins become one line


def amount(count: float) -> str:
    """1536 → '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def duration_text(seconds: float) -> str:
    """0.0004 → '400 µs'."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def share(part: float, whole: float) -> str:
    """Return a part of a whole in per cent: '12.5%'."""
    return f"{100 * part / whole:.1f}%" if whole else "0%"


def show_info(info: Info, name: str, console: Console) -> None:
    """Print the statistics of a trace.

    Args:
        info: the statistics.
        name: the trace's file name, for the first line.
        console: where to print.
    """

    def say(text: str, style: str = "") -> None:
        console.print(visible(text, "\n"), style=style, markup=False, soft_wrap=True)

    for line, style in _lines(info, name):
        say(line, style)
    if info.curve.points > 1:
        over = "time" if info.duration_s else "events: this trace has no times"
        noise = ", with the noise of the sample" if info.sample else ""
        say(f"\nlive bytes over {over}{noise}", "bold")
        for line in live_bytes_picture(info.curve, info.duration_s):
            say(line)
    if info.allocations:
        say(f"\n  {'sizes':<14}{'requests':<{_BAR}} {'':>13}  {'of bytes':>8}", "bold")
        for line in histogram(info.sizes, amount):
            say(line)
    if info.frees:
        say(f"\n  {'lifetimes':<14}{'blocks, by allocations in their lifetime':<{_BAR + 14}}  {'of bytes':>8}", "bold")
        for line in histogram(info.lifetimes_allocations, _plain):
            say(line)


def _plain(count: float) -> str:
    return f"{count:,.0f}"


def _lines(info: Info, name: str) -> list[tuple[str, str]]:
    """Return the lines above the pictures, each with its style."""
    first, rest = info.command[:1], info.command[1:]
    title = " " in "".join(first) and not any(rest)  # written by the program over its words; zero bytes fill the rest
    command = visible(shlex.join(first if title else info.command) or info.executable)
    allocator = f" on {info.allocator}" if command else info.allocator
    command, allocator = ("made from a model", "") if info.synthetic else (command, allocator)
    room = max(_MIN_COMMAND, _WIDTH - len(f"{name}: {allocator}"))
    command = command if len(command) <= room else command[: room - 1] + "…"
    rows = [*_event_rows(info), *_live_rows(info), *_resident_rows(info), *_call_rows(info)]
    return [
        (f"{name}: {command}{allocator}", "bold"),
        *((f"  {label:<14}{text}", "") for label, text in rows),
        *((f"  {label:<14}{text}", "yellow") for label, text in _loss_rows(info)),
    ]


def _event_rows(info: Info) -> Iterator[tuple[str, str]]:
    """Yield labels and texts on the sample, and on the events and their size on disk."""
    if s := info.sample:
        yield "sample", f"of 1 object in {s.rate}: {counted(s.objects, 'object')}; all figures are estimates"
        error = f"standard errors: peak live ± {amount(s.peak_live_error)} ({s.peak_share:.1%})"
        yield "", f"{error}, allocations ± {s.allocations_error:,.0f}"
        yield "", "on average, the estimated peak is at most the true one"
    rate = f" in {duration_text(info.duration_s)}, {info.events_per_s or 0:,.0f} a second" if info.duration_s else ""
    yield "events", f"{info.events:,}{rate}"
    density = f", {info.bytes_per_event:.2f} B an event" if info.bytes_per_event else ""
    counts = f"{counted(info.allocations, 'allocation')}, {counted(info.threads, 'thread')}"
    yield "", f"{counts}; {amount(info.file_bytes)} on disk{density}"
    for line in effort(info.events).partition("; ")[::2]:
        if line:
            yield "", line


def _live_rows(info: Info) -> Iterator[tuple[str, str]]:
    """Yield labels and texts on the live bytes and on the lower bound of resident memory that they give."""
    when = f" at {duration_text(info.peak_time_s)}" if info.peak_time_s else f" at event {info.peak_event:,}"
    yield "live bytes", f"peak {amount(info.peak_live_bytes)}{when}, {counted(info.peak_live_objects, 'block')} at most"
    never_freed = f"never freed {amount(info.end_live_bytes)} in {counted(info.never_freed['count'], 'block')}"
    yield "", f"mean {amount(info.mean_live_bytes)} over {info.averaged_over}; {never_freed}"
    peak, mean = amount(info.lower_bound.peak_page_bytes), amount(info.lower_bound.mean_page_bytes)
    about = "about " if info.sample else ""  # a sample proves no bound
    yield "lower bound", f"{about}{peak} at the peak, {about}{mean} on average, for any"
    yield "", "allocator with 16-byte alignment if all memory is touched"


def _resident_rows(info: Info) -> Iterator[tuple[str, str]]:
    """Yield labels and texts on the resident memory during the recording and its parts."""
    if info.peak_resident_bytes:
        yield "resident", f"{amount(info.peak_resident_bytes)} at most during the recording"
    for when, split in (("at its peak", info.resident_at_peak), ("at the end", info.resident_at_end)):
        if split is not None:
            for number, line in enumerate(split_lines(split)):
                yield "" if number else when, line
            if split is info.resident_at_peak and _read_late(info):
                yield "", "read after most blocks were freed; when most were live, there"
                yield "", "was no reading"


def _call_rows(info: Info) -> Iterator[tuple[str, str]]:
    """Yield labels and texts on special kinds of calls: realloc, calloc, remote frees, large and failed ones."""
    if info.reallocs:
        chains = info.realloc_chains
        longest = "64 or more" if chains["longest_is_64_or_more"] else f"at most {chains['longest']}"
        yield "realloc", f"{counted(info.reallocs, 'call')} on {counted(chains['objects'], 'block')}, {longest} on one"
        yield "", f"grown by {amount(chains['grown_bytes'])}"
    if info.callocs or info.aligned:
        yield "kinds", f"{info.callocs:,} calloc, {info.aligned:,} aligned"
    if info.threads > 1:
        remote = info.remote_frees
        yield "remote frees", f"{remote['count']:,.0f}: {100 * remote['share']:.1f}% of frees are by another thread"
    if info.large_blocks["bytes"]:
        touched = share(info.large_blocks["touched_bytes"], info.large_blocks["bytes"])
        yield "large blocks", f"{touched} of {amount(info.large_blocks['bytes'])} touched, in blocks of 64 KiB or more"
    if info.loss.failed_calls:
        yield "failed", f"{counted(info.loss.failed_calls, 'call')} got no memory"


def _loss_rows(info: Info) -> Iterator[tuple[str, str]]:
    """Yield labels and texts on events that are not in the trace."""
    if info.loss.events or info.loss.bytes or info.loss.cut_short:
        cut = "; cut short" if info.loss.cut_short else ""
        yield "lost", f"{counted(info.loss.events, 'event')}, {amount(info.loss.bytes)}{cut}"
        if info.loss.why:
            for line in wrap(info.loss.why, _WIDTH - 16):
                yield "", line


def _read_late(info: Info) -> bool:
    """Whether the reading of the peak came after most bytes that were live at their peak were freed.

    Malloc then still holds about these bytes. If it does not, other memory of the program made the peak, such as the
    heap of Java.
    """
    split, touched = info.resident_at_peak, info.peak_live_bytes - info.large_blocks["untouched_at_peak_bytes"]
    if split is None or split.time_s <= (info.peak_time_s or 0.0):
        return False
    freed = touched - split.live_bytes
    held = split.free_or_own_bytes if split.free_bytes is None else split.free_bytes
    # The smallest blocks take four times their bytes.
    return freed > touched / 2 and freed / 2 <= held <= 4 * freed


def split_lines(split: Split) -> list[str]:
    """Return lines that divide a reading of resident memory: '70 MiB = 29 MiB live + …'."""
    terms = [f"{amount(split.live_bytes)} live"]
    if split.free_bytes is not None and split.own_bytes is not None:
        terms += [f"{amount(split.free_bytes)} {_OF_MALLOC}", f"{amount(split.own_bytes)} of the program's own"]
    else:
        terms.append(f"{amount(split.free_or_own_bytes)} {_OF_MALLOC}, or of the program's own")
    terms.append(f"{amount(split.files_bytes)} files")
    if split.forked_bytes:
        terms.append(f"{amount(split.forked_bytes)} from the fork")
    lines = [f"{amount(split.resident_bytes)} = {terms[0]}"]
    for term in terms[1:]:
        if len(lines[-1]) + 3 + len(term) <= _WIDTH - 16:
            lines[-1] += f" + {term}"
        else:
            lines.append(f"+ {term}")
    return lines


def live_bytes_picture(curve: Curve, duration_s: float | None) -> list[str]:
    """Return lines that draw live bytes with block characters.

    Each column shows the maximum in its part of the time; without times, in its part of the events.
    """
    columns, rows = _PICTURE
    axis: Sequence[float] = curve.time_s if duration_s else curve.event
    end = max(axis[-1], 1e-12)
    top = max(curve.peak_bytes) or 1
    heights = []
    for column in range(columns):
        first = bisect_right(axis, end * column / columns)
        last = bisect_right(axis, end * (column + 1) / columns)
        # Live bytes do not change between events, so the value before the first event holds at the
        # column's start.
        at_start = [curve.live_bytes[first - 1]] if first else []
        within = curve.peak_bytes[first:last]
        heights.append(max([*at_start, *within], default=0) / top * rows)
    lines = []
    for row in reversed(range(rows)):
        label = amount(top) if row == rows - 1 else ""
        cells = "".join(_BLOCKS[round(8 * min(1.0, max(0.0, height - row)))] for height in heights)
        lines.append(f"{label:>12} │{cells}".rstrip())
    right = duration_text(duration_s) if duration_s else counted(curve.event[-1], "event")
    lines.append(f"{'0':>12} └{'─' * columns}")
    lines.append(f"{'':14}0{right:>{columns - 1}}")
    return lines


def histogram(bins: Sequence[Bin], label: Callable[[float], str]) -> list[str]:
    """Return one line for each bin: its lower end, a bar, its count, and its share of the bytes.

    Args:
        bins: a factor of two wide each; if there are many, two become one line.
        label: turns the end of a bin into text.
    """
    if len(bins) > _MAX_BINS:
        bins = _coarser(bins)
    largest = max((b.count for b in bins), default=0) or 1
    total = sum(b.bytes for b in bins)
    lines = []
    for b in bins:
        bar = "█" * (_BAR * b.count // largest) or "▏"
        reach = label(b.low) if b.high - b.low <= 1 else f"{label(b.low)} …"
        lines.append(f"  {reach:<14}{bar:<{_BAR}} {b.count:>13,}  {share(b.bytes, total):>8}")
    return lines


def _coarser(bins: Sequence[Bin]) -> list[Bin]:
    """Return bins that span a factor of four: [1, 4), [4, 16), …; the bin of 0 stays as it is."""
    merged: list[Bin] = []
    for b in bins:
        if merged and b.low and merged[-1].low and b.high <= 4 * merged[-1].low:
            merged[-1] = msgspec.structs.replace(
                merged[-1], high=b.high, count=merged[-1].count + b.count, bytes=merged[-1].bytes + b.bytes
            )
        else:
            merged.append(b)
    return merged
