"""Bounds how much peak memory and CPU time another malloc, or other settings, can save.

Two measurements give the bound, both made before the search: the holders of the default's memory at its peak (the first
run of each input, `measure.memory_parts.Breakdown`), and the counts of the recording, if the study makes one.

    memory   malloc can hold the heap and other anonymous memory. A recording of glibc's malloc limits the other memory
             to the size of the recorded blocks. Blocks that are live at the peak stay resident under every malloc.
    CPU      system time, plus a generous price for each recorded call and byte, plus the time that another placement
             of blocks may save the program's own code. If one of several threads calls malloc often, the others may
             spin meanwhile. If several do, they may spend most of their time waiting for its locks: there is no bound.
             A thread waits only while another one is in malloc, so the calls of the others decide, not their number.
             The price of an aligned allocation has no such limit in glibc: if there are many, there is no bound.

Each bound is an upper bound: memory that no reading covers counts as malloc's. Where much of it may be another's, the
sentence gives no bound on memory, because the number would say nothing about malloc. docs/method.md compares the
bounds with the gains that exhaustive comparisons found (tools/matters.py).

One assumption is not an upper bound: that the program uses its live blocks in full. A recording cannot see which part
of a recycled block it uses, because the block's pages are resident from its last use. The sentence states it.
`study.study_bound` drops it if an allocator saves more.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from heapwright.measure.memory_parts import MemoryParts
from heapwright.metrics import show_count
from heapwright.study.view import SavingBound

MIN_WORTHWHILE_SHARE = 0.03  # a smaller share is not worth a search
MAX_UNSURE_SHARE = 0.25  # if more of the peak than this share may not be malloc's, no bound on memory is given
# Seconds for a call of malloc: glibc takes 10 to 20 ns with a block in its caches, and a cache miss
# takes some 100 ns.
CALL_S = 50e-9
# Seconds for an aligned allocation, beyond 16 bytes: glibc 2.36 takes up to 77 us, because it searches lists of free
# blocks, and more the more there are (tools/aligned_calls.c). Above so many per second of CPU time, no price is safe.
ALIGNED_S = 100e-6
ALIGNED_CALLS_PER_S = 1_000.0
MALLOC_ALIGNMENT = 16  # bytes: every block of malloc has this alignment, so glibc serves such requests like any other
BYTE_S = 0.25e-9  # seconds to fetch, clear or copy an allocated byte: 4 GB/s
# The share of user time that another placement of blocks may save, by malloc's memory: up to the
# size of a second-level cache, up to the reach of a second-level TLB of 2,048 pages, and above.
# Huge pages save half of the time of a program that reads 200 MiB at random, and a tenth of the
# time of xz, which has 30 MiB.
LAYOUT = ((1 << 20, 0.05), (8 << 20, 0.1), (64 << 20, 0.2), (float("inf"), 0.55))
# Bytes by which the peaks of equal runs may differ: the kernel sums the resident pages of each core
# in batches, and maps a varying number of library pages around each fault.
PEAK_JITTER_BYTES = 128 << 10
# Calls per second of CPU time above which threads may mostly wait for each other: calls of all threads of a process but
# the one that calls most.
CONTENDED_CALLS_PER_S = 50_000.0
_MAX_BOUND = 0.95  # the sentence leaves out larger bounds, which say nothing; also the largest bound on CPU time
_TOLERANCE = 1.02  # blocks and resident memory are counted separately, the latter in whole pages
_MAPPED = 1.125  # memory of blocks with their own mappings, over their size: one page in 32 KiB


@dataclass(frozen=True)
class DefaultMeasurements:
    """Measurements of the default on one input, in bytes and seconds.

    Attributes:
        peak: peak of resident memory; for a tree of processes, of proportional memory.
        parts: holders of that memory, at the reading closest to the peak; None if nothing could be read.
        cpu_s, sys_s: CPU time, and its part in the kernel.
        threads, processes: largest numbers at once.
        busiest: path of the program of the process with the most memory. busiest_share: that process's share of the
            tree's memory, without other processes of the program.
        own: paths of the command's program and of its interpreter.
        spread: difference of the largest and the smallest peak of its runs.
        huge: peak of memory in huge pages.
    """

    peak: float
    parts: MemoryParts | None
    cpu_s: float
    sys_s: float
    threads: int
    processes: int
    busiest: str
    busiest_share: float
    own: tuple[str, ...]
    spread: float = 0.0
    huge: float = 0.0


class RecordedCounts(msgspec.Struct):
    """Counts of a recording.

    Attributes:
        events: calls of malloc, free and the like. share: their share of the calls of all recorded processes.
        asked_bytes: sum of the requested sizes of all allocations.
        live_bytes: requested bytes of the live blocks at their peak. untouched_bytes: the part of them that was not
            seen to be resident.
        glibc: whether glibc's malloc served the calls.
        executable: path of the recorded program. alike: number of recorded processes of it.
        threads: largest number of threads of a process that called malloc; 0 in studies of older versions.
        thread_calls: calls of the thread of each process that calls most, summed over all recorded processes; then of
            the second one, and so on. Empty in studies of older versions.
        aligned: the part of `events` that allocates blocks with a larger alignment than `MALLOC_ALIGNMENT`.
        used: whether the live blocks count as used in full, but for `untouched_bytes`.
    """

    events: float
    asked_bytes: float
    live_bytes: float
    untouched_bytes: float
    share: float = 1.0
    glibc: bool = True
    executable: str = ""
    alike: int = 1
    threads: int = 0
    thread_calls: list[float] = []
    aligned: float = 0.0
    used: bool = True


def _of_busiest(default: DefaultMeasurements, counts: RecordedCounts | None) -> RecordedCounts | None:
    """The recording, if it is of the process with the most memory: in a tree, another process may make more calls."""
    return counts if counts is not None and counts.executable == default.busiest and counts.alike == 1 else None


def held_bytes(default: DefaultMeasurements, counts: RecordedCounts | None) -> float | None:
    """Upper bound of malloc's bytes at the peak; None if unknown."""
    parts, counts = default.parts, _of_busiest(default, counts)
    if parts is None:
        return None
    unread = max(0.0, default.peak - parts.total)
    if counts is None or not counts.glibc:
        return parts.heap + parts.other + unread
    unrecorded = parts.total * (1 - default.busiest_share)  # other processes, which were not recorded
    return parts.heap + unread + min(parts.other, _MAPPED * counts.live_bytes + unrecorded)


def unsure_bytes(default: DefaultMeasurements, counts: RecordedCounts | None) -> float | None:
    """The part of `held_bytes` of which it is not known whether malloc obtained it; None if nothing could be read."""
    held = held_bytes(default, counts)
    return (
        None
        if held is None or default.parts is None
        else max(0.0, held - default.parts.heap - _mapped(default, counts))
    )


def _mapped(default: DefaultMeasurements, counts: RecordedCounts | None) -> float:
    """Bytes of blocks with their own mappings, by the recording; 0 if unknown."""
    counts = _of_busiest(default, counts)
    if counts is None or not counts.glibc or default.parts is None:
        return 0.0
    return min(default.parts.other, _MAPPED * counts.live_bytes)


def memory_bound(default: DefaultMeasurements, counts: RecordedCounts | None) -> float | None:
    """Upper bound of the share of the peak that can be saved; None if nothing could be read."""
    held, parts = held_bytes(default, counts), default.parts
    if held is None or parts is None or default.peak <= 0:
        return None
    counts = _of_busiest(default, counts)
    floor = max(0.0, counts.live_bytes - counts.untouched_bytes) if counts is not None and counts.used else 0.0
    anonymous = default.peak - parts.program - parts.files - parts.stacks
    if floor > _TOLERANCE * anonymous + default.spread + PEAK_JITTER_BYTES:
        floor = 0.0  # more than was ever resident: parts of small blocks were never touched, so nothing is known
    # File pages may come and go beside the heap; the program stays.
    savable = min(held, default.peak - parts.program - parts.stacks - floor)
    return min(1.0, (max(0.0, savable) + default.spread + PEAK_JITTER_BYTES) / default.peak)


def assumes_used_blocks(default: DefaultMeasurements, counts: RecordedCounts | None) -> bool:
    """Whether the bound on memory would be larger if the program left its live blocks untouched."""
    if counts is None:
        return False
    return memory_bound(default, counts) != memory_bound(default, msgspec.structs.replace(counts, used=False))


def cpu_bound(default: DefaultMeasurements, counts: RecordedCounts | None) -> float | None:
    """Upper bound of the share of CPU time that can be saved; 1 if there is no bound; None without a recording."""
    if counts is None or default.cpu_s <= 0:
        return None
    calls = counts.events / counts.share
    used = max(0.0, counts.asked_bytes - counts.untouched_bytes) / counts.share
    often = calls > CONTENDED_CALLS_PER_S * default.cpu_s
    if often and _contending_threads(default, counts) > 1:
        return 1.0
    aligned = counts.aligned / counts.share
    if aligned > ALIGNED_CALLS_PER_S * default.cpu_s:
        return 1.0
    held = held_bytes(default, counts)
    # Settings for the whole process turn off huge pages of other memory, too.
    placed = max(held, default.huge) if held is not None else float("inf")
    layout = next(share for size, share in LAYOUT if placed <= size)
    user = default.cpu_s - default.sys_s
    # While one thread is in malloc, the others may spin, as those of OpenMP do.
    in_malloc = (default.sys_s + calls * CALL_S + aligned * ALIGNED_S + used * BYTE_S) * (
        default.threads if often else 1
    )
    return min(_MAX_BOUND, (in_malloc + layout * user) / default.cpu_s)


def _allocating_threads(default: DefaultMeasurements, counts: RecordedCounts | None) -> int:
    """The largest number of threads that may call malloc at once."""
    return min(default.threads, counts.threads or default.threads) if counts is not None else default.threads


def _contending_threads(default: DefaultMeasurements, counts: RecordedCounts) -> int:
    """The number of threads that call malloc often at once.

    All other threads together call it at most `CONTENDED_CALLS_PER_S` times per second. If the result is 1, or 0, no
    thread waits long for another one.
    """
    if not counts.thread_calls:
        return _allocating_threads(default, counts)
    rest, found = sum(counts.thread_calls), 0
    for calls in counts.thread_calls:
        if rest <= CONTENDED_CALLS_PER_S * default.cpu_s:
            break
        rest -= calls
        found += 1
    return min(_allocating_threads(default, counts), found)


def saving_bound(inputs: Sequence[tuple[DefaultMeasurements, RecordedCounts | None]]) -> SavingBound | None:
    """The bounds over all inputs: the largest bound of any input. Other facts are of the input with the largest peak.

    The counts of calls are those of an input without a bound on CPU time, if there is one, because they are its reason.

    Returns:
        None if nothing is known of any input.
    """
    memory = _largest(memory_bound(*one) for one in inputs)
    cpu = _largest(cpu_bound(*one) for one in inputs)
    if not inputs or (memory is None and cpu is None):
        return None
    default, counts = max(inputs, key=lambda one: one[0].peak)
    held, parts, own = held_bytes(default, counts), default.parts, _of_busiest(default, counts)
    busy, counted = next((one for one in inputs if cpu_bound(*one) == 1.0), (default, counts))
    calls = counted.events / counted.share if counted is not None else None
    unsure = unsure_bytes(default, counts)
    bound = SavingBound(
        sentence="",
        memory_bound=memory,
        cpu_bound=cpu,
        held_share=None if held is None else min(1.0, held / default.peak),
        unsure_share=None if unsure is None else min(1.0, unsure / default.peak),
        shares={} if parts is None else {k: v / parts.total for k, v in msgspec.to_builtins(parts).items()},
        live_bytes=own.live_bytes if own is not None else None,
        recorded_share=_recorded_share(default, counts),
        calls=calls,
        calls_per_cpu_s=calls / busy.cpu_s if calls is not None and busy.cpu_s > 0 else None,
        threads=_allocating_threads(busy, counted),
        aligned_per_cpu_s=counted.aligned / counted.share / busy.cpu_s
        if counted is not None and busy.cpu_s > 0
        else None,
        contending_threads=_contending_threads(busy, counted) if counted is not None else None,
        processes=default.processes,
        busiest=Path(default.busiest).name if _is_other(default) else "",
        busiest_share=default.busiest_share if parts is not None else None,
        used_blocks=any(assumes_used_blocks(*one) for one in inputs),
    )
    return dataclasses.replace(bound, sentence=bound_sentence(bound))


def _recorded_share(default: DefaultMeasurements, counts: RecordedCounts | None) -> float | None:
    """The share of the anonymous memory at the peak that recorded blocks explain; None if unknown."""
    parts, own = default.parts, _of_busiest(default, counts)
    if parts is None or counts is None or parts.heap + parts.other <= 0:
        return None
    return min(1.0, own.live_bytes / (parts.heap + parts.other)) if own is not None else 0.0


def _largest(values: Iterable[float | None]) -> float | None:
    """The largest value; None if one is unknown, because then no bound holds for all inputs."""
    found = list(values)
    known = [value for value in found if value is not None]
    return max(known) if known and len(known) == len(found) else None


def _is_other(default: DefaultMeasurements) -> bool:
    """Whether the process with the most memory runs another program than the command."""
    own = {os.path.realpath(path) for path in default.own}
    return bool(default.busiest) and os.path.realpath(default.busiest) not in own


def bound_sentence(bound: SavingBound) -> str:
    """The bounds in one sentence, with their scope and assumption; empty if they say nothing."""
    text = _bare_sentence(bound)
    if bound.used_blocks and _says_memory_bound(bound):
        text = f"If the program uses its blocks in full, {_small(text)}"
    return f"{bound.scope}: {_small(text)}" if text and bound.scope else text


def _says_memory_bound(bound: SavingBound) -> bool:
    """Whether the sentence states `memory_bound`: not if it is unknown, or says nothing, or malloc holds even less."""
    memory, held = bound.memory_bound, bound.held_share if bound.held_share is not None else 1.0
    if memory is None or memory >= _MAX_BOUND:
        return False
    if memory > MIN_WORTHWHILE_SHARE:
        return (bound.unsure_share or 0.0) <= MAX_UNSURE_SHARE
    return held > MIN_WORTHWHILE_SHARE


def _bare_sentence(bound: SavingBound) -> str:
    memory, cpu = bound.memory_bound, bound.cpu_bound
    busiest = ""
    if bound.busiest and bound.busiest_share is not None:
        # Other processes of the same program are not in this share, so it is not the program's.
        busiest = f" (the largest process, {bound.busiest}, has {_percent(bound.busiest_share)} of the memory)"
    if cpu is None:
        why = "until the program's allocations are recorded"
        if not bound.recordable:
            why = "because the program's allocations cannot be recorded"
        time = f"the possible saving of CPU time is unknown {why}"
    elif cpu >= 1:
        time = f"the saving of CPU time has no upper bound, because {_why_no_bound(bound)}"
    elif cpu >= _MAX_BOUND:
        time = ""  # the cap says nothing
    else:
        time = f"{at_most(cpu)} of CPU time"
    if memory is None:
        known = "" if cpu is None or not time else f"; {time} can be saved" if cpu < 1 else f"; {time}"
        return f"The program ended before its memory could be read, so the possible saving of memory is unknown{known}."
    if memory > MIN_WORTHWHILE_SHARE and (bound.unsure_share or 0.0) > MAX_UNSURE_SHARE:
        if cpu is None:
            return _unknown(bound, busiest)
        if not time:
            return f"Malloc's part of this program's peak memory is unknown{busiest}."
        saved = f"{_capital(time)}{' can be saved' if cpu < 1 else ''}"
        return f"{saved}; malloc's part of this program's peak memory is unknown{busiest}."
    if memory >= _MAX_BOUND:
        if cpu is None:
            return _unknown(bound, busiest)
        return f"{_capital(time)}{' can be saved' if cpu < 1 else ''}." if time else ""
    if memory > MIN_WORTHWHILE_SHARE:
        if not time:
            return f"{_capital(at_most(memory))} of peak memory can be saved{busiest}."
        if cpu is None or cpu >= 1:
            return f"{_capital(at_most(memory))} of peak memory can be saved{busiest}; {time}."
        return f"{_capital(at_most(memory))} of peak memory and {time} can be saved{busiest}."
    held = bound.held_share if bound.held_share is not None else 1.0
    what = f"malloc holds {at_most(held)} of this program's peak memory{_rest(bound)}{busiest}"
    if held > MIN_WORTHWHILE_SHARE:
        what = f"{at_most(memory)} of this program's peak memory can be saved{busiest}"
    if cpu is not None and cpu <= MIN_WORTHWHILE_SHARE:
        return f"{_capital(what)}: malloc can save almost nothing."
    if not time:
        return f"{_capital(what)}: malloc can save almost no memory; the saving of CPU time has no upper bound."
    saved = " can be saved" if cpu is not None and cpu < 1 else ""
    return f"{_capital(what)}: malloc can save almost no memory; {time}{saved}."


def _why_no_bound(bound: SavingBound) -> str:
    """Why there is no bound on CPU time: threads that wait for each other, or aligned allocations."""
    threads = bound.threads if bound.contending_threads is None else bound.contending_threads
    often = (bound.calls_per_cpu_s or 0.0) > CONTENDED_CALLS_PER_S
    if often and threads > 1:
        return f"{threads} threads call malloc {show_count(bound.calls_per_cpu_s or 0.0)} times a second"
    aligned = show_count(bound.aligned_per_cpu_s or 0.0)
    return f"the program allocates {aligned} aligned blocks a second, and malloc may search long for each"


def _unknown(bound: SavingBound, busiest: str) -> str:
    """The sentence where nothing but a recording could bound the saving."""
    if bound.recordable:
        return f"The possible saving is unknown until this program's allocations are recorded{busiest}."
    return f"The possible saving is unknown, because this program's allocations cannot be recorded{busiest}."


_HOLDERS = {
    "program": "the program and its libraries",
    "files": "pages of files",
    "stacks": "stacks",
    "other": "anonymous memory that malloc did not obtain",
}


def _rest(bound: SavingBound) -> str:
    """The largest holder of memory besides malloc: ', and 95% is pages of files'."""
    shares = {name: share for name, share in bound.shares.items() if name in _HOLDERS}
    if not shares:
        return ""
    largest = max(shares, key=lambda name: shares[name])
    return f", and {_percent(shares[largest])} is {_HOLDERS[largest]}"


def where_text(bound: SavingBound) -> str:
    """The holders of memory at the peak: 'heap 70%, program 20%, …'; empty if unknown."""
    names = {
        "heap": "C library's heap",
        "other": "other anonymous memory",
        "program": "program and libraries",
        "files": "other files",
        "stacks": "main stacks",
    }
    return ", ".join(f"{names[key]} {_percent(bound.shares[key])}" for key in names if key in bound.shares)


def _percent(share: float) -> str:
    percent = 100 * share
    return "less than 1%" if percent < 1 else f"{percent:.0f}%"


def at_most(share: float) -> str:
    """A bound in words: 'at most 12%' or 'less than 1%'."""
    return _percent(share) if share < 0.01 else f"at most {_percent(share)}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _small(text: str) -> str:
    return text[:1].lower() + text[1:]
