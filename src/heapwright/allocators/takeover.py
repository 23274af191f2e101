"""Checks whether a preloaded allocator really serves a program, from the log of the program's dynamic loader.

With LD_DEBUG=bindings the loader logs the library to which it binds each symbol. For every process of the run, this
module reads the binding of `malloc`. The check is necessary: static and set-user-ID programs ignore LD_PRELOAD, some
programs define their own malloc, and the loader skips a library that it cannot load, with one line on stderr.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from heapwright.allocators.glibc_tunables import find_loader
from heapwright.allocators.registry import Allocator

_BINDING = r"binding file (.+?) \[\d+\] to (.+?) \[\d+\]: normal symbol `({names})'"


Bindings = list[set[tuple[str, str]]]  # for each process: (file, whose malloc it was bound to)


def watch_environment(folder: Path) -> dict[str, str]:
    """Return the variables that make the loader write its bindings into this folder, one file a process."""
    return {"LD_DEBUG": "bindings", "LD_BIND_NOW": "1", "LD_DEBUG_OUTPUT": str(folder / "bindings")}


def is_watched(env: Mapping[str, str]) -> bool:
    """Return whether `watch_environment` is part of an environment. Then the loader may print into the output."""
    folder = Path(env.get("LD_DEBUG_OUTPUT", "")).parent
    return watch_environment(folder).items() <= env.items()


def bindings(folder: Path) -> Bindings:
    """Read the loader's log in a folder: for each process, which file uses the malloc of which library."""
    found = ({(user, provider) for user, provider, _ in log} for log in bound_files(folder, "malloc"))
    return [pairs for pairs in found if pairs]


def bound_files(folder: Path, names: str = r"\w+") -> list[list[tuple[str, str, str]]]:
    """Read the loader's log in a folder: for each process (file, library that it uses, name of the symbol).

    Args:
        folder: see `watch_environment`.
        names: a regular expression for the names of the symbols; default: all.
    """
    binding = re.compile(_BINDING.format(names=names))
    logs = [binding.findall(path.read_text(errors="replace")) for path in sorted(folder.glob("bindings.*"))]
    return [[(_file(user), _file(provider), name) for user, provider, name in log] for log in logs]


def _file(name: str) -> str:
    """Return the file that the loader means: it calls a program by its first word, which may be a title by now."""
    first = name.split(" ", 1)[0]
    # Unlike Path.exists, os.access has an answer for a title that is too long for a path.
    return first if first != name and not os.access(name, os.F_OK) and Path(first).is_file() else name


def _real(name: str) -> str:
    """Return the real path of a file that the loader names. /proc/self/exe is the other process's."""
    return name if name.startswith("/proc/self/") else os.path.realpath(name)


def providers(library: str, pairs: set[tuple[str, str]]) -> set[str]:
    """Return the libraries whose malloc the files of a process use, as real paths.

    Files that use their own malloc, and the loader, do not count. A program that is not position-independent gives
    malloc an address of its own: a stub that jumps to the malloc that the program is bound to. A file that is bound to
    this stub uses the program's malloc.
    """
    real = {(_real(user), _real(provider)) for user, provider in pairs if "/ld-" not in user}
    others = {(user, provider) for user, provider in real if user != provider}
    behind = dict(others)
    return {
        provider if provider == os.path.realpath(library) else behind.get(provider, provider) for _, provider in others
    }


def judge_takeover(allocator: Allocator, program: str, found: Bindings) -> tuple[Allocator, str]:
    """Decide from the bindings of a run whether an allocator takes over.

    Args:
        allocator: the allocator that the program ran with.
        program: a path, or a name on PATH.
        found: the bindings of each process of the run.

    Returns:
        The allocator as it must be run, and why it is not loaded or empty. The system malloc, which needs no
        preloading, gets its library preloaded where the program is linked to another malloc (as Debian's redis-server
        is to jemalloc); then the run must be made and judged again. A program without a malloc that the loader binds
        may use none: the system's malloc is not preloaded for it.
    """
    library = allocator.preload or allocator.path
    if not library:
        return allocator, ""
    if allocator.preload:
        return allocator, takeover_failure(library, program, found)
    return (dataclasses.replace(allocator, preload=library) if other_providers(library, found) else allocator), ""


def other_providers(library: str, found: Iterable[set[tuple[str, str]]]) -> list[str]:
    """Return the other libraries whose malloc the processes use; none if a process uses only this library's malloc.

    Each copy of glibc reads the same variables, so a 32-bit program's glibc is not another malloc than this machine's.
    A process that uses both began as a script and became the program by exec. Helpers that the script ran before, and
    that use this library's malloc, decide nothing then.
    """
    real = os.path.realpath(library)
    seen = [
        {real if Path(real).name == Path(it).name == "libc.so.6" else it for it in providers(library, pairs)}
        for pairs in found
    ]
    became = any(real in bound and len(bound) > 1 for bound in seen)
    return [] if {real} in seen and not became else sorted({provider for bound in seen for provider in bound} - {real})


def deepbind_reason(library: str, found: Iterable[set[tuple[str, str]]]) -> str:
    """Name a shared library that keeps another malloc in a process that uses this library's; empty if none does.

    The program loads it by dlopen with RTLD_DEEPBIND, as PHP loads its modules. If one part of such a program frees
    blocks of the other, the program crashes under every preloaded malloc.

    Args:
        library: path of the library that was preloaded.
        found: the bindings of each process of a run.
    """
    real = os.path.realpath(library)
    for pairs in found:
        bound = {(_real(user), _real(provider)) for user, provider in pairs if ".so" in user}
        if real in providers(library, pairs):
            for user, provider in sorted(bound):
                if provider not in (user, real) and user != real and "/ld-" not in user:
                    keeps = f"{Path(user).name} keeps the malloc of {Path(provider).name}"
                    return f"{keeps}, because the program loads it with RTLD_DEEPBIND"
    return ""


def takeover_failure(library: str, program: str, found: Iterable[set[tuple[str, str]]]) -> str:
    """Return why a library did not take over. The text is empty if a process used only the library's malloc.

    Args:
        library: path of the library.
        program: a path, or a name on PATH.
        found: the bindings of each process of the run.
    """
    processes = list(found)
    others = other_providers(library, processes)
    if others:
        own = shutil.which(program)
        if own and os.path.realpath(own) in others:
            return "not loaded: the program defines its own malloc"
        return f"not loaded: malloc is bound to {', '.join(others)}"
    if any(providers(library, pairs) for pairs in processes):
        return ""
    path = shutil.which(program)
    if path and Path(path).stat().st_mode & (stat.S_ISUID | stat.S_ISGID):
        return "not loaded: the program is set-user-ID or set-group-ID, so its loader ignores LD_PRELOAD"
    if find_loader(program) is None:
        return "not loaded: the program is statically linked"
    return "not loaded: the loader binds no malloc for the program"
