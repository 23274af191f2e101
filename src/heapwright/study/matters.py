"""Bounds how much another malloc, or other settings of it, can win of a program's peak memory and CPU time.

Two measurements bound it, both made before the search: where the default's memory was at its peak (the first run of
each input, `measure.meter.Breakdown`), and what the recording counted, where the study makes one.

    memory   What malloc can hold: heap and other anonymous memory. A recording of glibc's malloc limits the other
             memory to what the recorded blocks took. Blocks that are live at the peak stay resident under every malloc.
    CPU      System time, a generous price for each recorded call and byte, and what another placement of blocks may
             save the program's own code. Threads that call malloc often may wait for its locks most of the time: then
             there is no bound.

Each bound is an upper one: memory that no reading saw counts as malloc's. docs/method.md compares the bounds with what
exhaustive comparisons found (tools/matters.py).
"""

from __future__ import annotations

import dataclasses
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from heapwright.experiment.configuration import DEFAULT
from heapwright.experiment.phases import Phase
from heapwright.measure.meter import Breakdown, Parts
from heapwright.metrics import show_count
from heapwright.study.program import program_of
from heapwright.study.view import Matters

if TYPE_CHECKING:
    from heapwright.experiment.records import StoredRun
    from heapwright.study.store import Store

NEXT_TO_NOTHING = 0.03  # a smaller share is not worth a search
CALL_S = (
    50e-9  # glibc takes 10 to 20 ns where it finds a block in its caches; a miss of the processor's caches some 100
)
BYTE_S = 0.25e-9  # to fetch an allocated byte from memory, or to clear or copy it: 4 GB/s
# Share of user time that another placement of blocks may save, by anonymous memory: what the second-level cache holds,
# what a second-level TLB of 2,048 pages reaches, and more. Huge pages save half of the time of a program that reads 200
# MiB at random, and a tenth of xz's, which has 30.
LAYOUT = ((1 << 20, 0.05), (8 << 20, 0.1), (64 << 20, 0.2), (float("inf"), 0.55))
# Bytes by which peaks of equal runs may differ: the kernel adds up resident pages of each core in batches, and it maps
# more or fewer pages of libraries around each fault.
COUNTED_LATE = 128 << 10
CONTENDED = 50_000.0  # calls in a second of CPU time from which threads may spend most of it waiting for each other
_MOST_OF_TREE = 0.5  # share of a tree's memory
_MOST = 0.95  # of CPU time, unless nothing bounds it
_CONSISTENT = 1.02  # blocks and resident memory are counted apart, the latter in whole pages
_MAPPED = 1.125  # memory of blocks with mappings of their own beside their size: a page in 32 KiB


@dataclass(frozen=True)
class Default:
    """What the default measured on one input. Bytes and seconds.

    Attributes:
        peak: resident memory at its peak; for a tree its proportional memory.
        parts: where that was, at the reading closest to it; None where nothing could be read.
        busiest: the path of the program with the most memory; `busiest_share`: of the tree's.
        own: the paths of the command's program, and of its interpreter.
        spread: by how much the peaks of its runs differ.
    """

    peak: float
    parts: Parts | None
    cpu_s: float
    sys_s: float
    threads: int
    processes: int
    busiest: str
    busiest_share: float
    own: tuple[str, ...]
    spread: float = 0.0


class Heap(msgspec.Struct):
    """What a recording counted.

    Attributes:
        events: calls of malloc and its kin; `share`: of those of all recorded processes.
        asked_bytes: by all allocations together.
        live_bytes: of live blocks at their peak, as asked for; `untouched_bytes`: not known to have been resident.
        glibc: whether glibc's malloc served them.
        executable: the path of the recorded program; `alike`: how many processes of it were recorded.
    """

    events: float
    asked_bytes: float
    live_bytes: float
    untouched_bytes: float
    share: float = 1.0
    glibc: bool = True
    executable: str = ""
    alike: int = 1


def _of_busiest(default: Default, heap: Heap | None) -> Heap | None:
    """The recording, if it is of the process that has the memory: in a tree another may make more calls."""
    return heap if heap is not None and heap.executable == default.busiest and heap.alike == 1 else None


def held_bytes(default: Default, heap: Heap | None) -> float | None:
    """At most so many bytes of the peak are malloc's; None where that is not known."""
    parts, heap = default.parts, _of_busiest(default, heap)
    if parts is None:
        return None
    unread = max(0.0, default.peak - parts.total)
    if heap is None or not heap.glibc:
        return parts.heap + parts.other + unread
    beside = parts.total * (1 - default.busiest_share)  # other processes, which were not recorded
    return parts.heap + unread + min(parts.other, _MAPPED * heap.live_bytes + beside)


def memory_bound(default: Default, heap: Heap | None) -> float | None:
    """At most this share of the peak can be won; None where nothing could be read."""
    held, parts = held_bytes(default, heap), default.parts
    if held is None or parts is None or default.peak <= 0:
        return None
    heap = _of_busiest(default, heap)
    floor = max(0.0, heap.live_bytes - heap.untouched_bytes) if heap is not None else 0.0
    anonymous = default.peak - parts.program - parts.files - parts.stacks
    if floor > _CONSISTENT * anonymous + default.spread + COUNTED_LATE:
        floor = 0.0  # more than was ever resident: small blocks are not used as a whole, and nothing is known of them
    # Files may come and go beside the heap, the program stays.
    most = min(held, default.peak - parts.program - parts.stacks - floor)
    return min(1.0, (max(0.0, most) + default.spread + COUNTED_LATE) / default.peak)


def cpu_bound(default: Default, heap: Heap | None) -> float | None:
    """At most this share of CPU time can be won; 1: nothing bounds it; None without a recording."""
    if heap is None or default.cpu_s <= 0:
        return None
    calls = heap.events / heap.share
    used = max(0.0, heap.asked_bytes - heap.untouched_bytes) / heap.share
    if default.threads > 1 and calls > CONTENDED * default.cpu_s:
        return 1.0
    parts = default.parts
    anonymous = parts.heap + parts.other if parts is not None else float("inf")
    layout = next(share for size, share in LAYOUT if anonymous <= size)
    user = default.cpu_s - default.sys_s
    return min(_MOST, (default.sys_s + calls * CALL_S + used * BYTE_S + layout * user) / default.cpu_s)


def judge(inputs: Sequence[tuple[Default, Heap | None]]) -> Matters | None:
    """What can be won over all inputs: the largest of their bounds. The rest is of the input with the largest peak.

    None where nothing is known of any input.
    """
    memory = _largest(memory_bound(*one) for one in inputs)
    cpu = _largest(cpu_bound(*one) for one in inputs)
    if not inputs or (memory is None and cpu is None):
        return None
    default, heap = max(inputs, key=lambda one: one[0].peak)
    held, parts, own = held_bytes(default, heap), default.parts, _of_busiest(default, heap)
    calls = heap.events / heap.share if heap is not None else None
    matters = Matters(
        sentence="",
        memory_bound=memory,
        cpu_bound=cpu,
        held_share=None if held is None else min(1.0, held / default.peak),
        shares={} if parts is None else {k: v / parts.total for k, v in msgspec.to_builtins(parts).items()},
        live_bytes=own.live_bytes if own is not None else None,
        recorded_share=_recorded_share(default, heap),
        calls=calls,
        calls_per_cpu_s=calls / default.cpu_s if calls is not None and default.cpu_s > 0 else None,
        threads=default.threads,
        processes=default.processes,
        busiest=Path(default.busiest).name if _is_other(default) else "",
        busiest_share=default.busiest_share if parts is not None else None,
    )
    return dataclasses.replace(matters, sentence=sentence(matters))


def _recorded_share(default: Default, heap: Heap | None) -> float | None:
    """The share of the peak's anonymous memory that recorded blocks explain; None where either is not known."""
    parts, own = default.parts, _of_busiest(default, heap)
    if parts is None or heap is None or parts.heap + parts.other <= 0:
        return None
    return min(1.0, own.live_bytes / (parts.heap + parts.other)) if own is not None else 0.0


def _largest(values: Iterable[float | None]) -> float | None:
    """None where one of them is not known: then no bound holds for all inputs."""
    found = list(values)
    known = [value for value in found if value is not None]
    return max(known) if known and len(known) == len(found) else None


def _is_other(default: Default) -> bool:
    """Whether the program with the most memory is not the command itself."""
    own = {os.path.realpath(path) for path in default.own}
    return bool(default.busiest) and os.path.realpath(default.busiest) not in own


def sentence(matters: Matters) -> str:
    """What can be won, in one sentence."""
    memory, cpu = matters.memory_bound, matters.cpu_bound
    busiest = ""
    if matters.busiest and matters.busiest_share is not None:
        busiest = f" ({_percent(matters.busiest_share)} of its memory is {matters.busiest}'s)"
    if cpu is None:
        time = "what can be won in CPU time is not known before its allocations are recorded"
    elif cpu >= 1:
        often = show_count(matters.calls_per_cpu_s or 0.0)
        time = f"of CPU time perhaps most, because {matters.threads} threads call malloc {often} times a second"
    else:
        time = f"at most {_percent(cpu)} of CPU time"
    if memory is None:
        known = "" if cpu is None else f"; {time} can be won here" if cpu < 1 else f"; {time}"
        return f"The program ended before its memory could be read, so it is not known what can be won of it{known}."
    if memory > NEXT_TO_NOTHING:
        if cpu is None:
            return f"At most {_percent(memory)} of peak memory can be won here{busiest}; {time}."
        if cpu >= 1:
            return f"At most {_percent(memory)} of peak memory can be won here{busiest}, and {time}."
        return f"At most {_percent(memory)} of peak memory and {time} can be won here{busiest}."
    held = matters.held_share if matters.held_share is not None else 1.0
    what = f"malloc holds at most {_percent(held)} of this program's peak memory{_rest(matters)}{busiest}"
    if held > NEXT_TO_NOTHING:
        what = f"at most {_percent(memory)} of this program's peak memory can be won{busiest}"
    if cpu is not None and cpu <= NEXT_TO_NOTHING:
        return f"{_capital(what)}: there is next to nothing to win."
    if cpu is None:
        return f"{_capital(what)}: there is next to nothing to win of memory; {time}."
    return f"{_capital(what)}: there is next to nothing to win of memory; {time}{'' if cpu >= 1 else ' can be won'}."


_HOLDERS = {
    "program": "the program and its libraries",
    "files": "pages of files",
    "stacks": "stacks",
    "other": "anonymous memory that malloc did not obtain",
}


def _rest(matters: Matters) -> str:
    """What holds the most where malloc holds little: ' (95% is pages of files)'."""
    shares = {name: share for name, share in matters.shares.items() if name in _HOLDERS}
    if not shares:
        return ""
    most = max(shares, key=lambda name: shares[name])
    return f", {_percent(shares[most])} is {_HOLDERS[most]}"


def where_text(matters: Matters) -> str:
    """Where the peak's memory was: 'heap 70%, program 20%, …'; empty where that is not known."""
    names = {
        "heap": "C library's heap",
        "other": "other anonymous memory",
        "program": "program and libraries",
        "files": "other files",
        "stacks": "main stacks",
    }
    return ", ".join(f"{names[key]} {_percent(matters.shares[key])}" for key in names if key in matters.shares)


def _percent(share: float) -> str:
    percent = 100 * share
    return "less than 1%" if percent < 1 else f"{percent:.0f}%"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# From a study.


def of_study(store: Store, runs: Sequence[StoredRun] | None = None) -> Matters | None:
    """What a study knows by now; None where nothing is known, or its settings need not be a malloc's.

    Args:
        runs: the study's, if they were read already.
    """
    spaces: Mapping[str, Any] = store.meta.spaces
    if not spaces or not all(_is_malloc(name) for name in spaces):
        return None
    calibrated = [r for r in (store.runs(Phase.CALIBRATE) if runs is None else runs) if r.phase == Phase.CALIBRATE]
    by_input: dict[str, list[StoredRun]] = {}
    for run in calibrated:
        by_input.setdefault(run.input, []).append(run)
    recorded: dict[str, dict[str, Any]] = store.meta.recorded
    tree = bool(store.meta.tree)
    served = store.config_by_id(1).allocator in (DEFAULT, "glibc") if calibrated else False
    known = program_of(store)
    files = (known.executable, known.interpreter) if known is not None else ()
    own = tuple(file.path for file in files if file is not None)
    found = [
        (default, heap_of(recorded.get(name), served))
        for name, made in by_input.items()
        if (default := default_of(made, tree, own)) is not None
    ]
    return judge(found) if len(found) == len(by_input) else None


def _is_malloc(name: str) -> bool:
    """Whether settings under this name are a malloc's; a user's own file may be of the program's."""
    from heapwright.allocators.registry import bundled_file

    return bundled_file(name) is not None or os.sep in name


def default_of(made: Sequence[StoredRun], tree: bool, own: tuple[str, ...]) -> Default | None:
    """The default on one input. Memory is of the run that was looked into, times of those that were not."""
    looked = next((r for r in made if r.extra.get("parts")), None)
    timed = [r for r in made if r.block > 0 and not r.failure] or list(made)
    first = looked or timed[0]
    found = msgspec.convert(first.extra["parts"], Breakdown) if looked is not None else None
    parts = None if found is None else found.pss if tree else found.rss
    peak = first.metrics.get("peak_rss_bytes")
    if peak is None:
        return None
    if found is not None and tree:
        peak = found.pss.total + max(0.0, peak - found.rss.total)
    peaks = [value for r in made if (value := r.metrics.get("peak_rss_bytes")) is not None]
    return Default(
        spread=max(peaks) - min(peaks),
        peak=max(peak, parts.total if parts is not None else 0.0),
        parts=parts,
        cpu_s=statistics.median(r.metrics.get("cpu_s") or 0.0 for r in timed),
        sys_s=statistics.median(r.metrics.get("sys_s") or 0.0 for r in timed),
        threads=max((r.extra.get("threads") or 1) for r in made),
        processes=found.processes if found is not None else max((r.extra.get("processes") or 1) for r in made),
        busiest=found.busiest if found is not None else "",
        busiest_share=found.busiest_pss / found.pss.total if found is not None and found.pss.total else 1.0,
        own=own,
    )


def busiest(run: StoredRun) -> str:
    """The path of the program that had most of the memory in a run; empty where that is not known, or none had."""
    if not run.extra.get("parts"):
        return ""
    found = msgspec.convert(run.extra["parts"], Breakdown)
    return found.busiest if found.busiest_pss > _MOST_OF_TREE * found.pss.total else ""


def heap_of(recorded: dict[str, Any] | None, served: bool) -> Heap | None:
    """What a recording counted; None if there is none, or one of a version that did not count."""
    if recorded is None or "heap" not in recorded:
        return None
    more = {"share": recorded.get("share") or 1.0, "executable": recorded.get("executable") or ""}
    heap = msgspec.convert({**recorded["heap"], **more}, Heap)
    return heap if served else msgspec.structs.replace(heap, glibc=False)
