"""Finds out which malloc a running process uses, from its mappings and the symbols of the mapped files.

The dynamic linker takes malloc from the first file that defines it, in this order: the program, preloaded libraries,
the libraries that the program needs. A library that the program loads later (dlopen) does not count. Files are read
through /proc/PID/map_files or /proc/PID/root, so that a process in a container shows its own files.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import NamedTuple

from heapwright.allocators.peers import family_of
from heapwright.allocators.program_file import MappedFile, read_mapped
from heapwright.allocators.runtimes import find_heap_library
from heapwright.diagnose.environment import read_environment

# Libraries that define malloc and pass each call on to the malloc behind them.
_PASSING = re.compile(r"libheapwright-(record|sample)\.so|libheaptrack_preload|libheaptrack_inject")
_LIBC = re.compile(r"libc\.so(\.\d+)?$|libc-2\.\d+\.so$")
_MUSL = re.compile(r"ld-musl-.*\.so|libc\.musl-.*\.so")
_LOADER = re.compile(r"ld-linux.*\.so|ld-2\.\d+\.so|ld64\.so")
_MAPPED = re.compile(r"([0-9a-f]+-[0-9a-f]+) (\S+) \S+ \S+ \d+\s+(/.*)")
# Libraries whose names say whose malloc they hold, where the names of known peers do not.
_NAMES = {"libasan": "asan", "libtsan": "tsan", "liblsan": "lsan", "libjemalloc": "jemalloc", "libmimalloc": "mimalloc"}


class WhichMalloc(NamedTuple):
    """The malloc of a process.

    Attributes:
        name: 'glibc 2.36', 'jemalloc', 'musl' …, or 'unknown'.
        evidence: the file or text that tells it; empty if it is unknown.
        certain: whether the dynamic linker must take it. If not, the program may carry it without using it.
        private: libraries with another malloc, which only its own functions reach: '_duckdb.so (jemalloc)', or jemalloc
            itself behind a preloaded malloc, in a program that calls its mallocx.
        heap_library: the runtime's name of a library that takes a heap from the kernel itself: 'bdwgc', or empty.
    """

    name: str
    evidence: str = ""
    certain: bool = True
    private: tuple[str, ...] = ()
    heap_library: str = ""


def which_malloc(pid: int) -> WhichMalloc:
    """Return the malloc of a process; 'unknown' if its files do not tell or cannot be read."""
    files = _mapped_files(pid)
    program_path = _link(pid, "exe")
    program = files.get(program_path) or read_mapped(Path(f"/proc/{pid}/exe"))
    if program is None:
        return WhichMalloc("unknown")
    chosen = _served_by(pid, program, program_path, files)
    private = {
        f"{Path(path).name} ({', '.join(file.families)})"
        for path, file in files.items()
        if path != program_path and file.families and not file.carries_unused and path not in chosen.evidence
    }
    library = find_heap_library({Path(path).name for path in files})
    return chosen._replace(private=tuple(sorted(private)), heap_library=library.name if library else "")


def _served_by(pid: int, program: MappedFile, program_path: str, files: dict[str, MappedFile]) -> WhichMalloc:
    """Return the malloc that the dynamic linker takes for a process.

    Args:
        pid: its process id.
        program: the file that it runs.
        program_path: the path of that file.
        files: all files that it maps executable, by their paths.
    """
    if program.defines_malloc:
        return WhichMalloc(program.family or "unknown", f"malloc is defined in the program {program_path}")
    for path in _search_order(pid, program, files):
        name = Path(path).name
        if _LOADER.match(name) or _PASSING.match(name):
            continue
        if _LIBC.match(name) or _MUSL.match(name):
            break
        if files[path].defines_malloc:
            return WhichMalloc(_family(path, files[path]), f"library {path}")
    if program.go:
        libc = _libc(program, program_path, files)
        made = f"the Go compiler made {program_path}"
        # The C code of a Go program allocates with malloc, beside the heap of the Go runtime.
        return (
            WhichMalloc("Go runtime", made)
            if libc.name == "unknown"
            else libc._replace(evidence=f"{libc.evidence}; {made}")
        )
    if program.family and program.family != "tcmalloc" and not program.carries_unused:
        return WhichMalloc(program.family, f"texts of {program.family} in {program_path}", certain=False)
    return _libc(program, program_path, files)


def _libc(program: MappedFile, program_path: str, files: dict[str, MappedFile]) -> WhichMalloc:
    for path, file in files.items():
        name = Path(path).name
        if _MUSL.match(name) or (_LIBC.match(name) and file.musl):  # Debian's musl is a libc.so
            return WhichMalloc("musl", f"library {path}")
        if _LIBC.match(name) and file.glibc:
            return WhichMalloc(f"glibc {file.glibc}".removesuffix(" ?"), f"library {path}")
    if not program.interpreter and program.glibc:
        return WhichMalloc(f"glibc {program.glibc}".removesuffix(" ?"), f"texts of glibc in {program_path}")
    if not program.interpreter and program.musl:
        return WhichMalloc("musl", f"names of musl's functions in {program_path}")
    return WhichMalloc("unknown")


def _family(path: str, file: MappedFile) -> str:
    """Return the name of the malloc in a library."""
    name = Path(path).name
    known = next((family for start, family in _NAMES.items() if name.startswith(start)), "")
    return known or family_of(path) or file.family or "unknown"


def _search_order(pid: int, program: MappedFile, files: dict[str, MappedFile]) -> list[str]:
    """Return the mapped files that the dynamic linker searches for malloc, in its order: preloaded, then needed."""
    preloaded = _preloaded(pid)
    if preloaded is None:
        # Without the environment the addresses tell: the linker maps the files in the order of the
        # search, and the kernel puts each mapping below the one before. Files below the C
        # library were loaded later.
        return list(reversed(files))
    by_name: dict[str, str] = {}
    for path in files:
        by_name.setdefault(Path(path).name, path)
        # A library is needed by its soname ('libx.so.2'), and mapped by the file's name
        # ('libx.so.2.1').
        by_name.setdefault(re.sub(r"(\.so\.\d+)\..*", r"\1", Path(path).name), path)
    order: list[str] = []
    waiting = [*preloaded, *program.needed]
    for name in waiting:  # it grows: breadth first, as the linker searches
        found = by_name.get(Path(name).name)
        if found is not None and found not in order:
            order.append(found)
            waiting += files[found].needed
    return order


def _preloaded(pid: int) -> list[str] | None:
    """Return the libraries of LD_PRELOAD as the process was started, and of /etc/ld.so.preload.

    Returns:
        None if the environment cannot be read.
    """
    environment = read_environment(pid)
    if environment is None:
        return None
    found = re.split(r"[ :]+", environment.get("LD_PRELOAD", ""))
    with contextlib.suppress(OSError, UnicodeDecodeError):
        found += Path(f"/proc/{pid}/root/etc/ld.so.preload").read_text().split()
    return [name for name in found if name]


def _mapped_files(pid: int) -> dict[str, MappedFile]:
    """Return the ELF files that the process maps executable, by their path in its own file system."""
    files: dict[str, MappedFile] = {}
    try:
        lines = os.fsdecode(Path(f"/proc/{pid}/maps").read_bytes()).splitlines()
    except OSError:
        return files
    for line in lines:
        found = _MAPPED.match(line)
        if found is None or "x" not in found[2] or found[3] in files:
            continue
        path = found[3]
        kept = path.removesuffix(" (deleted)")
        file = read_mapped(Path(f"/proc/{pid}/map_files/{found[1]}")) or read_mapped(Path(f"/proc/{pid}/root{kept}"))
        if file is not None:
            files[kept] = file
    return files


def _link(pid: int, name: str) -> str:
    try:
        return str(Path(f"/proc/{pid}/{name}").readlink()).removesuffix(" (deleted)")
    except OSError:
        return ""
