"""Detects programs whose memory a runtime manages instead of malloc, and names the settings of that runtime.

Go, Java, Node.js, .NET, Erlang and others take their heaps from the kernel themselves. A program that is linked
statically has a malloc, but none can be put in its place. A set-user-ID program ignores settings.
Only the program's file is read, so the programs that it starts are unknown.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from heapwright.allocators.embedded import embedded_name, find_embedded
from heapwright.allocators.program_file import ProgramFile, is_privileged, read_program
from heapwright.allocators.runtimes import find_heap_owner

# Ends a sentence about settings of a runtime; the first is left out if the study does search them.
SEARCHED = "; tune searches settings of the runtime, unless --no-runtime is given"

# Which allocators' settings can reach the program itself: all, the one linked into it, glibc's (as
# it is), none.
Reach = Literal["all", "embedded", "glibc", "none"]


class MemoryManager(NamedTuple):
    """The malloc or the runtime that manages a program's memory, and what follows for a search.

    Attributes:
        runtime: the short name of the runtime ('go', 'openjdk', 'node' …); empty where it is malloc.
        reach: which allocators' settings can reach the program itself.
        sentence: the same for people, and what to set instead.
    """

    runtime: str
    reach: Reach
    sentence: str


def find_memory_manager(program: str, ask: bool = True) -> MemoryManager | None:
    """Finds out who manages a program's memory; None where malloc does, in a program that can be reached.

    Args:
        program: a path, or a name on PATH; of a script its interpreter is looked at.
        ask: whether a linked allocator may be asked for its version, which runs code of the program.
    """
    found = read_program(program)
    if found is None or found.foreign:
        return None
    managed = _manager(found, program, ask)
    right = is_privileged(found.path)
    if not right or found.go:
        return managed
    return MemoryManager(
        managed.runtime if managed else "",
        "none",
        f"{Path(program).name} runs {right}, so its loader and its malloc ignore the environment, and no setting"
        " reaches it. Tune a copy of it without that right.",
    )


def _manager(found: ProgramFile, program: str, ask: bool) -> MemoryManager | None:
    name = Path(program).name
    embedded = find_embedded(program, ask)
    if embedded is not None:
        return MemoryManager(
            "",
            "embedded",
            f"{embedded_name(embedded)} is linked into {name} and serves its allocations, so its own settings are"
            " searched; no other allocator can take its place.",
        )
    if found.go:
        return _go(found, name)
    if found.static:
        return _static(found, name)
    return _runtime(found, name)


def _go(found: ProgramFile, name: str) -> MemoryManager:
    settings = "Its settings are GOGC (GOGC=50 takes less memory and more CPU time) and GOMEMLIMIT" + SEARCHED + "."
    if found.static:
        return MemoryManager(
            "go", "none", f"{name} is a Go program: the Go runtime manages its memory without malloc. {settings}"
        )
    return MemoryManager(
        "go",
        "all",
        f"{name} is a Go program: the Go runtime manages its heap, malloc serves its C code only. {settings}",
    )


def _static(found: ProgramFile, name: str) -> MemoryManager | None:
    if found.linked:
        return None
    if found.tunables:
        return MemoryManager(
            "",
            "glibc",
            f"{name} is linked statically, so no allocator can be preloaded into it; glibc's settings are searched.",
        )
    return MemoryManager(
        "",
        "none",
        f"{name} is linked statically, so no allocator can be preloaded into it, and its malloc has no settings that"
        " heapwright knows. Link it dynamically, or with 'heapwright link'.",
    )


def _runtime(found: ProgramFile, name: str) -> MemoryManager | None:
    """The runtime that a dynamically linked program is, or starts."""
    owner = find_heap_owner(found.path)
    if owner is None:
        return None
    return MemoryManager(
        owner.name,
        "all",
        f"{owner.title} manages the heap of {name}; malloc serves its native part only."
        f" These settings make its heap smaller: {owner.limit}{SEARCHED}.",
    )
