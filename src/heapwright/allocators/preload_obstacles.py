"""Says, before anything is run, why an allocator, its settings or the recorder cannot reach a program.

It looks at the program's file only, which shows neither the programs that it starts nor the contents of a plugin: a
program that is linked statically, or a shell with a malloc of its own, may start others that can be reached. A malloc
of a program's own may pass its calls on. Such an obstacle is not `certain`, and the run must decide (`judge_takeover`,
`tuning.takeover_check`, an empty recording).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from heapwright.allocators.program_file import ProgramFile, is_privileged, read_mapped, read_program

_SHELLS = frozenset({"ash", "bash", "busybox", "dash", "fish", "ksh", "mksh", "sh", "toybox", "zsh"})
GLIBC = "glibc"


class PreloadObstacle(NamedTuple):
    """Why a program cannot be reached.

    Attributes:
        reason: 'exgen is linked into it'.
        instead: what to do.
        certain: False where the program, or programs that it starts, may still be reached.
        what: 'glibc's settings do not reach ./prog'.
    """

    reason: str
    instead: str
    certain: bool = True
    what: str = ""

    @property
    def why(self) -> str:
        """The part that does not work, and the reason."""
        return f"{self.what}: {self.reason}"

    def __str__(self) -> str:
        return f"{self.why} ({self.instead})"


def find_obstacle(program: str, allocator: str = "", preload: str = "") -> PreloadObstacle | None:
    """Return why an allocator and its settings, or the recorder, cannot reach a program; None if nothing shows.

    Args:
        program: a path, or a name on PATH.
        allocator: its registry name; empty: the recorder is meant.
        preload: the library that LD_PRELOAD gets; empty for the malloc that the program has.
    """
    if allocator and not preload and allocator != GLIBC:  # a file of the user's own describes what the program reads
        return None
    found = read_program(program)
    if found is None:
        return None
    it, name = f"its interpreter {found.path}" if found.script else "it", Path(program).name
    what = (
        f"{name} cannot be recorded"
        if not allocator
        else f"{allocator} cannot be loaded into {name}"
        if preload
        else f"{allocator}'s settings do not reach {name}"
    )
    for look in (_privileged, _foreign, _linked, _own, _static, _other_libc):
        obstacle = look(found, it, allocator, preload)
        if obstacle is not None:
            return obstacle._replace(what=what)
    return None


def has_allocator(program: str, allocator: str) -> bool:
    """Whether this very allocator is linked into a program, so that its settings reach it without preloading."""
    found = read_program(program)
    return found is not None and _has(found, allocator)


def is_static(found: ProgramFile) -> bool:
    """Whether a program is linked statically. A loader that is given a program preloads libraries into that program."""
    return found.static and not re.match(r"ld[-.]", found.path.name)


def _has(found: ProgramFile, allocator: str) -> bool:
    own = found.linked.removesuffix("-secure") or found.family
    return bool(own) and own == allocator.removesuffix("-secure").rstrip("23")


def _privileged(found: ProgramFile, it: str, allocator: str, preload: str) -> PreloadObstacle | None:  # noqa: ARG001
    kind = is_privileged(found.path)
    if not kind:
        return None
    return PreloadObstacle(
        f"{it} runs {kind}, so its loader ignores the environment", "use a copy of it without that right"
    )


def _foreign(found: ProgramFile, it: str, allocator: str, preload: str) -> PreloadObstacle | None:
    if not found.foreign or (allocator and not preload):  # another machine's glibc reads the same variables
        return None
    return PreloadObstacle(f"{it} is a program for another machine ({found.machine})", "use heapwright on that machine")


def _linked(found: ProgramFile, it: str, allocator: str, preload: str) -> PreloadObstacle | None:
    """`heapwright link` left a note. A shared library that it linked gives way to one that is preloaded."""
    if not found.linked or _has(found, allocator):
        return None
    if found.linked_shared and (preload or not allocator):
        return None
    instead = (
        f"use the allocator that it has: --allocator {found.linked}"
        if allocator
        else "link it without 'heapwright link' to record it"
    )
    return PreloadObstacle(f"{found.linked} is linked into {it}", instead)


def _own(found: ProgramFile, it: str, allocator: str, preload: str) -> PreloadObstacle | None:  # noqa: ARG001
    if not found.own_malloc or found.linked or _has(found, allocator):
        return None
    whose = f"{it} has a malloc of its own" + (f" ({found.family})" if found.family else "")
    instead = (
        "link it with the C library's malloc to record it"
        if not allocator
        else f"the malloc it has can be used: --allocator {found.family}"
        if found.family
        else "link it without that malloc, or describe its settings in a file: 'tune --space FILE'"
    )
    return PreloadObstacle(whose, instead, certain=found.path.name not in _SHELLS and not found.passes_on)


def _static(found: ProgramFile, it: str, allocator: str, preload: str) -> PreloadObstacle | None:
    if not is_static(found):
        return None
    if found.linked or (allocator == GLIBC and not preload and found.tunables):
        return None
    if found.go:
        instead = "set GOGC and GOMEMLIMIT, which 'tune' searches"
        return PreloadObstacle(f"{it} is a Go program, which does not use malloc", instead, certain=False)
    instead = "link it dynamically" + (", or with 'heapwright link'" if allocator else "")
    return PreloadObstacle(f"{it} is linked statically", instead, certain=False)


def _built_for_musl(library: str) -> bool:
    """Whether a library needs musl: its name is libc.so, or libc.musl-x86_64.so.1 on Alpine; glibc's is libc.so.6."""
    mapped = read_mapped(Path(library))
    return mapped is not None and any(name == "libc.so" or name.startswith("libc.musl-") for name in mapped.needed)


def _other_libc(found: ProgramFile, it: str, allocator: str, preload: str) -> PreloadObstacle | None:
    """The loader of musl ends a program if it cannot load a library of LD_PRELOAD."""
    if not found.musl or (preload and _built_for_musl(preload)):
        return None
    instead = (
        "use a library for musl (docs/platforms.md), or a build of the program for glibc"
        if allocator
        else "record a build of it for glibc; 'record --export' has a recorder for musl"
    )
    whose = f"the C library of {it}" if found.script else "its C library"
    return PreloadObstacle(f"{whose} is musl", instead, certain=bool(preload) or not allocator)
