"""Reads processes with the native tool, adds which malloc they use, and sums several processes up."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heapwright.diagnose.advice import MAJOR_SHARE, Advice, AdviceFigures, advise
from heapwright.diagnose.environment import TUNABLES, read_environment
from heapwright.diagnose.which_malloc import WhichMalloc, which_malloc
from heapwright.errors import HeapwrightError
from heapwright.measure.process_tree import is_alive
from heapwright.trace.pack import native_program

# Words of a redis server, or of its fork valkey: the name, a socket, a port.
_REDIS = re.compile(r"(?:\S*/)?(redis|valkey)-server(?= |$)(?: (?:unixsocket:(\S+)|(?:\S*:|.*--port )(\d+)(?= |$)))?")

# Figures that are parts of a process's private memory.
_IN_PRIVATE = (
    *(
        "live",
        "blocks",
        "block_bytes",
        "free",
        "free_cached",
        "free_pages",
        "trimmable",
        "trimmable_in_python",
        "top",
        "in_arenas",
    ),
    *("runtime_resident", "runtime_free", "managed_resident", "unread"),
)


@dataclass(frozen=True)
class MemoryDivision:
    """Resident memory divided into parts that add up to it, in bytes.

    Attributes:
        program, files, stacks: as the kernel tells by mapping.
        live: blocks of malloc in use, in its arenas.
        mapped: blocks of malloc in use with a mapping of their own.
        free_cached: free blocks in glibc's caches of threads, where these can be read.
        free_inside: free memory of malloc in pages that also hold live blocks.
        free_pages: free memory of malloc in whole pages.
        runtime_live, runtime_free: memory in the runtime's own arenas, in use and free.
        other: other private memory: mappings of the program's own, stacks of threads, an unreadable malloc.
    """

    program: int = 0
    files: int = 0
    stacks: int = 0
    live: int = 0
    mapped: int = 0
    free_cached: int = 0
    free_inside: int = 0
    free_pages: int = 0
    runtime_live: int = 0
    runtime_free: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        """The sum of the parts."""
        return sum(vars(self).values())


@dataclass(frozen=True)
class Diagnosis:
    """One process, or several as a whole.

    Attributes:
        json: what `diagnose --json` writes of it.
        division: its resident memory; of several processes by PSS, so that shared pages count once.
        figures: what the advice was decided on.
        advice: the first sentence and the steps.
    """

    json: dict[str, Any]
    division: MemoryDivision
    figures: AdviceFigures
    advice: Advice


def diagnose(pid: int) -> Diagnosis:
    """Diagnose a process.

    Raises:
        HeapwrightError: the process cannot be read.
    """
    raw = _read(pid)
    malloc = _malloc(pid, raw)
    heap = _heap(raw, malloc)
    runtime = {k: v for k, v in raw["cpython"].items() if k != "classes"} if raw.get("cpython") else None
    if runtime is not None:
        runtime["classes"] = raw["cpython"].get("classes", [])
    consistent = all(part is None or part.get("consistent", True) for part in (heap, runtime))
    found: dict[str, Any] = {
        "pid": pid,
        "executable": _executable(pid),
        "command": _command(pid),
        "threads": raw.get("threads"),
        "consistent": consistent,
        "stopped_ms": 0.0,
        "took_ms": raw.get("took_ms"),
        "allocator": malloc.name,
        "allocator_evidence": malloc.evidence or None,
        **{key: raw.get(key) for key in ("resident_bytes", "pss_bytes", "swap_bytes", "huge_bytes", "parts")},
        "heap": heap,
        "runtime": runtime,
    }
    division = divide(raw["parts"], heap, runtime)
    figures = figures_of(malloc.name, division, heap, runtime)._replace(
        managed=_managed(pid, found["executable"]) or _managing_library(malloc, division),
        own_figures=own_figures(found["command"] or []),
        linked_in=malloc.name if malloc.evidence == f"heap descriptor in {found['executable']}" else "",
        static=_is_static(pid, found["executable"]),
        private_mallocs=malloc.private,
        **_settings(pid, malloc.name, found["executable"]),
    )
    if not is_alive(pid):  # the malloc of a process that ends seems unknown
        raise HeapwrightError(f"process {pid} ended while it was read")
    advice = advise(figures)
    found |= {
        **_advice_json(advice),
        "pss_parts": raw.get("pss_parts"),
        "division": vars(division),
        "managed": figures.managed or None,
    }
    return Diagnosis(found, division, figures, advice)


def sum_processes(found: Sequence[Diagnosis]) -> Diagnosis:
    """Sum processes up by PSS: a page that several processes share counts in parts that add up to one page."""
    scaled = [_by_pss(one) for one in found]
    division = MemoryDivision(*(sum(values) for values in zip(*(vars(d).values() for d, _ in scaled), strict=True)))
    mallocs = {one.figures.allocator for one in found}
    own_figures = {one.figures.own_figures for one in found} - {""}
    managed: Counter[str] = Counter()
    for _, figures in scaled:
        if figures.managed:
            managed[figures.managed] += figures.managed_resident
    sums = {name: sum(getattr(figures, name) for _, figures in scaled) for name in ("resident", "files", *_IN_PRIVATE)}
    # The heap of a malloc that cannot be read is no mapping of the program's own.
    outside = sum(figures.managed_resident for _, figures in scaled if figures.known)
    runtime, managed_resident = managed.most_common(1)[0] if managed else ("", outside)
    figures = AdviceFigures(
        allocator=", ".join(sorted(mallocs)),
        known=any(one.figures.known for one in found),
        arenas=max(one.figures.arenas for one in found),
        runtime=", ".join(sorted({one.figures.runtime for one in found} - {""})),
        managed=runtime,
        unread_mallocs=", ".join(sorted({one.figures.unread_mallocs for one in found} - {""})),
        own_figures=own_figures.pop() if len(own_figures) == 1 else "",
        linked_in=", ".join(sorted(mallocs)) if all(one.figures.linked_in for one in found) else "",
        static=all(one.figures.static for one in found),
        private_mallocs=tuple(sorted({name for one in found for name in one.figures.private_mallocs})),
        private=sums["resident"] - sums["files"],
        **{**sums, "managed_resident": managed_resident},
    )
    advice = advise(figures._replace(settings=_common([one.figures.settings for one in found])))
    whole = {
        "pids": [one.json["pid"] for one in found],
        "allocator": figures.allocator,
        "allocators": sorted(mallocs),
        "resident_bytes": figures.resident,
        "division": vars(division),
        **_advice_json(advice),
    }
    return Diagnosis(whole, division, figures, advice)


def divide(parts: dict[str, int], heap: dict[str, Any] | None, runtime: dict[str, Any] | None) -> MemoryDivision:
    """Divide resident memory.

    Args:
        parts: resident bytes by kind of mapping.
        heap: malloc's figures, or None if they could not be read.
        runtime: the figures of a runtime's own arenas, or None.
    """
    private = parts["heap"] + parts["other"]
    of_runtime = min(_of(runtime, "resident_bytes"), private)
    runtime_free = min(_in_memory(runtime), of_runtime)
    resident = min(_of(heap, "resident_bytes"), private - of_runtime)
    mapped = min(_mapped(heap), private - of_runtime - resident)
    free = min(_of(heap, "releasable_bytes"), resident)
    cached = min(_of(heap, "thread_cache_bytes"), resident - free)
    pages = min(_of(heap, "free_pages_bytes"), free)
    return MemoryDivision(
        program=parts["program"],
        files=parts["files"],
        stacks=parts["stacks"],
        live=resident - free - cached,
        mapped=mapped,
        free_cached=cached,
        free_inside=free - pages,
        free_pages=pages,
        runtime_live=of_runtime - runtime_free,
        runtime_free=runtime_free,
        other=private - of_runtime - resident - mapped,
    )


def figures_of(
    name: str, division: MemoryDivision, heap: dict[str, Any] | None, runtime: dict[str, Any] | None
) -> AdviceFigures:
    """Return the figures that the advice is decided on.

    Args:
        name: the malloc.
        division: the process's resident memory.
        heap: malloc's figures, or None if they could not be read.
        runtime: the figures of a runtime's own arenas, or None.
    """
    arenas = (heap or {}).get("arenas") or []
    files = division.program + division.files
    known = heap is not None and heap.get("releasable_bytes") is not None
    trimmable = min(_of(heap, "trimmable_bytes"), division.free_pages)
    runtime_name = (runtime or {}).get("name") or ""
    blocks = _live_blocks(heap, division.live)
    return AdviceFigures(
        allocator=name,
        resident=division.total,
        files=files,
        private=division.total - files,
        known=known,
        live=division.live + division.mapped,
        blocks=blocks,
        block_bytes=division.live if blocks else 0,
        free=division.free_cached + division.free_inside + division.free_pages,
        free_cached=division.free_cached,
        free_pages=division.free_pages,
        trimmable=trimmable,
        trimmable_in_python=trimmable if runtime_name.startswith("CPython") else 0,
        top=min(sum(_of(arena, "top_bytes") for arena in arenas), division.free_pages),
        arenas=len(arenas),
        in_arenas=sum(_of(arena, "free_bytes") for arena in arenas[1:]),
        runtime=runtime_name,
        runtime_resident=division.runtime_live + division.runtime_free,
        runtime_free=division.runtime_free,
        managed_resident=division.other,
        unread=0 if known else division.total - files,
        unread_mallocs="" if known else name,
    )


def _mapped(heap: dict[str, Any] | None) -> int:
    """Return the resident bytes of blocks with a mapping of their own; all their bytes if that is not known."""
    resident = (heap or {}).get("mapped_resident_bytes")
    return _of(heap, "mapped_bytes") if resident is None else int(resident)


def _live_blocks(heap: dict[str, Any] | None, live: int) -> int:
    """Return the number of live blocks in glibc's arenas that are in memory; 0 if it is not known.

    Args:
        heap: malloc's figures, whose number includes the blocks in thread caches, or None if they could not be read.
        live: the bytes of live blocks in memory, without thread caches and blocks with a mapping of their own.
    """
    number, size = _of(heap, "live_blocks"), _of(heap, "live_bytes") - _of(heap, "mapped_bytes")
    return min(number, round(number * live / size)) if size > 0 else 0


def _in_memory(runtime: dict[str, Any] | None) -> int:
    """Return the free bytes of a runtime's arenas that are in memory: those beyond it were never touched."""
    if runtime is None:
        return 0
    absent = max(_of(runtime, "arena_bytes") - _of(runtime, "resident_bytes"), 0)
    return max(_of(runtime, "free_bytes") - absent, 0)


def _managed(pid: int, executable: str | None) -> str:
    """Return the runtime that manages its heap itself, such as 'openjdk'; empty for none."""
    from heapwright.allocators.memory_manager import find_memory_manager

    if executable is None:
        return ""
    path = f"/proc/{pid}/root{executable}"  # a replaced program has no file of that name any more
    # The program is never started: it may belong to another user.
    managed = find_memory_manager(path, ask=False) if os.access(path, os.R_OK | os.X_OK) else None
    return managed.runtime if managed else ""


def _is_static(pid: int, executable: str | None) -> bool:
    """Whether a process runs a statically linked program, into which no malloc can be preloaded."""
    from heapwright.allocators.preload_obstacles import is_static
    from heapwright.allocators.program_file import read_program

    file = read_program(f"/proc/{pid}/exe")
    return file is not None and is_static(file._replace(path=Path(executable or file.path)))


def _managing_library(malloc: WhichMalloc, division: MemoryDivision) -> str:
    """Return the library with a heap of its own if that can be most of the memory; a program may hardly use it."""
    return malloc.heap_library if division.other >= MAJOR_SHARE * division.total else ""


def _settings(pid: int, malloc: str, executable: str | None) -> dict[str, Any]:
    """Return a process's values of the variables that hold several settings, and the variable of its jemalloc."""
    from heapwright.allocators.embedded import find_embedded

    variable = "MALLOC_CONF"
    if "jemalloc" in malloc and executable is not None:
        embedded = find_embedded(f"/proc/{pid}/root{executable}", ask=False)
        if embedded is not None and embedded.name == "jemalloc":
            variable = embedded.file.allocator.env
    environment = read_environment(pid) or {}
    return {
        "settings": {name: environment[name] for name in (variable, TUNABLES) if name in environment},
        "jemalloc_variable": variable,
    }


def _common(settings: Sequence[Mapping[str, str | None]]) -> dict[str, str | None]:
    """Return the settings of several processes; None where they differ."""
    names = {name for one in settings for name in one}
    values = {name: {one.get(name, "") for one in settings} for name in names}
    return {name: found.pop() if len(found) == 1 else None for name, found in values.items()}


def own_figures(command: Sequence[str]) -> str:
    """Return the command that asks a redis server for its malloc's figures; empty for other programs.

    Args:
        command: the words of the process; a running server replaces them by 'redis-server 127.0.0.1:6379'.
    """
    match = _REDIS.match(" ".join(command))
    if match is None:
        return ""
    kind, socket, port = match.groups()
    where = f" -s {socket}" if socket else f" -p {port}" if port and port != "6379" else ""
    return f"{kind}-cli{where} info memory"


def _of(found: dict[str, Any] | None, key: str) -> int:
    return int((found or {}).get(key) or 0)


def _by_pss(one: Diagnosis) -> tuple[MemoryDivision, AdviceFigures]:
    """Scale a process's figures so that its memory counts as in PSS."""
    rss, pss = one.json["parts"], one.json.get("pss_parts")
    if not pss:
        return one.division, one.figures
    shared = {
        "private": _ratio(pss["heap"] + pss["other"], rss["heap"] + rss["other"]),
        **{key: _ratio(pss[key], rss[key]) for key in ("program", "files", "stacks")},
    }
    division = MemoryDivision(
        **{key: round(value * shared.get(key, shared["private"])) for key, value in vars(one.division).items()}
    )
    files = division.program + division.files
    scaled = {key: round(getattr(one.figures, key) * shared["private"]) for key in _IN_PRIVATE}
    total = division.total
    return division, one.figures._replace(resident=total, files=files, private=total - files, **scaled)


def _advice_json(advice: Advice) -> dict[str, Any]:
    """Return the advice as keys of the JSON."""
    return {"advice": advice.sentence, "finding": advice.kind, "steps": list(advice.steps)}


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _read(pid: int) -> dict[str, Any]:
    done = subprocess.run(
        [native_program("heapwright-diagnose"), str(pid)], capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"heapwright-diagnose ended with status {done.returncode}"]
        raise HeapwrightError(lines[-1].removeprefix("heapwright-diagnose: "))
    raw: dict[str, Any] = json.loads(done.stdout)
    return raw


def _malloc(pid: int, raw: dict[str, Any]) -> WhichMalloc:
    """Return which malloc it is; the heap of exgen or reaper that was found decides, then the files."""
    own = raw.get("own")
    found = which_malloc(pid)
    if own is not None:
        evidence = own.get("evidence") or "a heap with heapwright's descriptor"
        return found._replace(name=own["allocator"], evidence=evidence, certain=True)
    glibc = raw.get("glibc")
    private = raw["parts"]["heap"] + raw["parts"]["other"]
    if not found.certain and glibc is not None and _of(glibc, "resident_bytes") >= private / 2:
        evidence = f"most private memory is in glibc's heap, though there are {found.evidence}"
        return found._replace(name="glibc", evidence=evidence, certain=True)
    return found


def _heap(raw: dict[str, Any], malloc: WhichMalloc) -> dict[str, Any] | None:
    """Return malloc's figures in the form of `diagnose --json`; None if they could not be read."""
    if raw.get("own") is not None:
        heap = {**raw["own"]}
    elif malloc.name.startswith("glibc") and raw.get("glibc") is not None:
        heap = {**raw["glibc"], "classes": []}
    else:
        return None
    heap["arenas"] = heap.get("arenas") or []
    return heap


def _executable(pid: int) -> str | None:
    try:
        return str(Path(f"/proc/{pid}/exe").readlink())
    except OSError:
        return None


def _command(pid: int) -> list[str] | None:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    return [os.fsdecode(word).encode(errors="replace").decode() for word in words[:-1]]
