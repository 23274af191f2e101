"""Reads from a program's file, without running it, which malloc it uses: its loader, machine and linked allocator.

Only the header, the segments and one symbol table are read, with `struct`: `heapwright run` does this before each
program it starts, and pyelftools or link.elf take longer to import than this takes to run. Programs for another kind
of machine are recognised by their header and not read further.
"""

from __future__ import annotations

import mmap
import os
import re
import shutil
import stat
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

_HEADER = struct.Struct("<HHIQQQIHHHHHH")  # what follows e_ident
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_PT_INTERP, _PT_NOTE = 3, 4
_SHT_PROGBITS, _SHT_DYNAMIC, _SHT_DYNSYM = 1, 6, 11
_SHF_ALLOC = 2
_DT_NEEDED = 1
_MACHINES = {3: "i386", 40: "arm", 62: "x86-64", 183: "aarch64", 243: "riscv"}
_MAX_SCRIPTS = 4  # an interpreter may be a script itself


class ProgramFile(NamedTuple):
    """Facts from a program's file.

    Attributes:
        path: the program that is loaded; of a script its interpreter.
        script: whether that is a script's interpreter.
        machine: 'x86-64', 'aarch64' …; `foreign` if it is another one than ours.
        loader: its dynamic loader (PT_INTERP); empty if it is linked statically.
        linked: the allocator that `heapwright link` linked in, or empty; `linked_shared`: as a shared library.
        own_malloc: whether the program itself defines malloc. Always False for a static program, which has to.
        passes_on: whether that malloc may be a wrapper, which finds the next malloc by dlsym(RTLD_NEXT, "malloc").
        family: whose malloc that is ('jemalloc', 'mimalloc', 'tcmalloc'), or empty if it is unknown.
        tunables: whether it is a static program with glibc's tunables and glibc's malloc in it.
        go: whether it was made by the Go compiler.
    """

    path: Path
    script: bool
    machine: str
    foreign: bool = False
    loader: str = ""
    linked: str = ""
    linked_shared: bool = False
    own_malloc: bool = False
    passes_on: bool = False
    family: str = ""
    tunables: bool = False
    go: bool = False

    @property
    def static(self) -> bool:
        """Whether it is linked statically, so that nothing can be preloaded into it."""
        return not self.loader and not self.foreign

    @property
    def musl(self) -> bool:
        """Whether it uses musl as a shared library."""
        return "musl" in Path(self.loader).name


# Strings that a program contains if the allocator is linked in, and hardly otherwise: the beginning
# of a message, or the name of a variable.
_FAMILIES = {
    "jemalloc": b"<jemalloc>: ",
    "mimalloc": b"environment option mimalloc_",
    "tcmalloc": b"TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES",
}


def family_in(data: mmap.mmap) -> str:
    """The family of the allocator whose texts are in a program ('jemalloc', 'mimalloc', 'tcmalloc'), or empty."""
    return next(iter(families_in(data)), "")


def families_in(data: mmap.mmap) -> tuple[str, ...]:
    """The families of all allocators whose texts are in a program or library."""
    return tuple(name for name, text in _FAMILIES.items() if data.find(text) >= 0)


def read_program(program: str) -> ProgramFile | None:
    """Reads a program, or the interpreter of a script; None if it cannot be found or read, or is not a program.

    Args:
        program: a path, or a name on PATH.
    """
    found = shutil.which(program)
    for number in range(_MAX_SCRIPTS):
        if found is None:
            return None
        try:
            with Path(found).open("rb") as file:
                start = file.read(512)
                if start[:2] == b"#!":
                    found = shutil.which(_interpreter(start))
                    continue
                if start[:4] != b"\x7fELF":
                    return None
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                    return _read(Path(found), number > 0, data)
        except (OSError, ValueError, OverflowError, IndexError, struct.error):
            return None
    return None


def uses_musl(program: str) -> bool:
    """Whether a program, or the interpreter of a script, uses musl as a shared library.

    Args:
        program: a path, or a name on PATH.
    """
    found = read_program(program)
    return found is not None and found.musl


class MappedFile(NamedTuple):
    """Facts from a program or library that a process has mapped.

    Attributes:
        defines_malloc: whether other files of the process can use its malloc.
        needed: the libraries that it needs, by name.
        interpreter: whether it names a dynamic loader; only a dynamic program does.
        families: whose mallocs its texts show: 'jemalloc', 'mimalloc', 'tcmalloc'.
        carries_unused: whether it is CPython, which carries mimalloc and rarely uses it.
        glibc: the version that glibc's banner in it gives ('2.36'), '?' if it has glibc's malloc without the banner,
            or empty.
        go: whether it was made by the Go compiler.
        bits: 32 or 64.
        musl: whether it is the library musl, or has the names of its malloc's functions, unless these are stripped.
    """

    defines_malloc: bool
    needed: tuple[str, ...]
    interpreter: bool
    families: tuple[str, ...]
    carries_unused: bool
    glibc: str
    go: bool
    bits: int
    musl: bool = False

    @property
    def family(self) -> str:
        """The first of its families, or empty."""
        return next(iter(self.families), "")


# A text of musl's dynamic linker, and functions of its two mallocs.
_MUSL = (b"musl libc (", b"\0__malloc_donate\0", b"\0__malloc_alloc_meta\0")
_BANNER = re.compile(rb"GNU C Library [^\0]{0,100}release version (\d+\.\d+)")


def read_mapped(path: Path) -> MappedFile | None:
    """Read a file that a process has mapped; None if it cannot be read or is not an ELF file of our byte order."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[:4] != b"\x7fELF" or data[5] != 1:
                return None
            if data[4] != 2:
                return MappedFile(False, (), False, (), False, "", False, 32)
            header = _HEADER.unpack_from(data, 16)
            program_at, section_at, program_size, programs, section_size, sections = (*header[4:6], *header[8:12])
            segments = [_SEGMENT.unpack_from(data, program_at + i * program_size) for i in range(programs)]
            headers = [_SECTION.unpack_from(data, section_at + i * section_size) for i in range(sections)]
            notes = [data[s[2] : s[2] + s[5]] for s in segments if s[0] == _PT_NOTE]
            banner = _BANNER.search(data)
            malloc = data.find(b"malloc(): ") >= 0 and data.find(b"free(): invalid pointer") >= 0
            return MappedFile(
                defines_malloc=_defines_malloc(data, headers),
                needed=_needed(data, headers),
                interpreter=any(s[0] == _PT_INTERP for s in segments),
                families=families_in(data),
                carries_unused=data.find(b"PYTHONMALLOC\0") >= 0,
                glibc=banner[1].decode() if banner else "?" if malloc else "",
                go=any(b"Go\0\0" in note for note in notes),
                bits=64,
                musl=any(data.find(text) >= 0 for text in _MUSL),
            )
    except (OSError, ValueError, OverflowError, IndexError, struct.error):
        return None


def _needed(data: mmap.mmap, headers: list[tuple[int, ...]]) -> tuple[str, ...]:
    """Return the names of DT_NEEDED."""
    found = []
    for header in headers:
        if header[1] != _SHT_DYNAMIC:
            continue
        strings = headers[header[6]][4]
        for at in range(header[4], header[4] + header[5] - 15, 16):
            tag, value = struct.unpack_from("<QQ", data, at)
            if tag == _DT_NEEDED:
                found.append(data[strings + value : data.find(b"\0", strings + value)].decode(errors="replace"))
    return tuple(found)


class ElfView:
    """An open ELF file: what evidence of a runtime can be looked for in it.

    Args:
        data: the whole file.
    """

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        header = _HEADER.unpack_from(data, 16)
        section_at, section_size, sections = header[5], header[10], header[11]
        self._headers = [_SECTION.unpack_from(data, section_at + i * section_size) for i in range(sections)]
        self.needed = _needed(data, self._headers)

    def defines(self, symbol: str) -> bool:
        """Whether the dynamic symbol table defines this name."""
        return _defines(data=self.data, headers=self._headers, symbol=symbol.encode())


@contextmanager
def elf_view(path: Path) -> Iterator[ElfView | None]:
    """Open a program of this machine's kind; None if it cannot be read or is not such a program."""
    with ExitStack() as stack:
        view = None
        try:
            file = stack.enter_context(path.open("rb"))
            data = stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            if data[:4] == b"\x7fELF" and data[4:6] == _own_kind()[0]:
                view = ElfView(data)
        except (OSError, ValueError, OverflowError, IndexError, struct.error):
            view = None
        yield view


def is_privileged(path: Path) -> str:
    """Says how a program runs with more rights than its caller ('set-user-ID'); empty if it does not.

    Its loader ignores LD_PRELOAD and the variables of malloc.
    """
    about = path.stat()
    if about.st_mode & stat.S_ISUID and about.st_uid != os.getuid():
        return "set-user-ID"
    if about.st_mode & stat.S_ISGID and about.st_mode & stat.S_IXGRP and about.st_gid != os.getgid():
        return "set-group-ID"
    return "with file capabilities" if os.getuid() != 0 and _capabilities(path) else ""


def _capabilities(path: Path) -> bool:
    try:
        return bool(os.getxattr(path, "security.capability"))
    except OSError:
        return False


def interpreter_of(start: bytes) -> str:
    """The program of a script's first line, which begins with '#!'; empty if there is none."""
    return _interpreter(start) if start[:2] == b"#!" else ""


def _interpreter(start: bytes) -> str:
    """The program of a '#!' line; behind `env` the one that env starts."""
    words = start[2:].split(b"\n", 1)[0].decode(errors="replace").split()
    if words and Path(words[0]).name == "env":
        return next((w for w in words[1:] if not w.startswith("-") and "=" not in w), words[0])
    return words[0] if words else ""


@cache
def _own_kind() -> tuple[bytes, int]:
    """Class and byte order, and machine, of the Python that runs us: heapwright's libraries are of the same kind."""
    with Path("/proc/self/exe").open("rb") as file:
        start = file.read(20)
    return start[4:6], struct.unpack_from("<H", start, 18)[0]


def _read(path: Path, script: bool, data: mmap.mmap) -> ProgramFile:
    order = ">" if data[5] == 2 else "<"
    (number,) = struct.unpack_from(order + "H", data, 18)
    machine = _MACHINES.get(number, f"machine {number}")
    if (data[4:6], number) != _own_kind():
        return ProgramFile(path, script, machine, foreign=True)
    header = _HEADER.unpack_from(data, 16)
    program_at, section_at, program_size, programs, section_size, sections = (*header[4:6], *header[8:12])
    loader, notes = "", list[bytes]()
    for at in range(program_at, program_at + programs * program_size, program_size):
        kind, _, offset, _, _, size, _, _ = _SEGMENT.unpack_from(data, at)
        if kind == _PT_INTERP:
            loader = data[offset : offset + size].rstrip(b"\0").decode(errors="replace")
        elif kind == _PT_NOTE:
            notes.append(data[offset : offset + size])
    linked, how = _linked(notes)
    headers = [_SECTION.unpack_from(data, section_at + i * section_size) for i in range(sections)]
    own = bool(loader) and _defines_malloc(data, headers)
    family = family_in(data) if own else ""
    return ProgramFile(
        path,
        script,
        machine,
        loader=loader,
        linked=linked if how else "",
        linked_shared=how == "shared",
        own_malloc=own,
        passes_on=own and not family and _asks_for_malloc(data, headers),
        family=family,
        tunables=not loader and data.find(b"glibc.malloc.") >= 0 and data.find(b"malloc(): ") >= 0,
        go=any(b"Go\0\0" in note for note in notes),
    )


def _linked(notes: list[bytes]) -> tuple[str, str]:
    """The allocator that `heapwright link` linked in, and how: 'static' or 'shared'; empty if there is none."""
    if not any(b"heapwright\0" in note for note in notes):
        return "", ""
    from heapwright.elf.image import Image, add_notes
    from heapwright.elf.note import read_note

    image = Image("", "program", "", 64)
    for data in notes:
        add_notes(data, image)
    note = read_note(image)
    return (note.allocator, note.how) if note else ("", "")


def _defines_malloc(data: mmap.mmap, headers: list[tuple[int, ...]]) -> bool:
    """Whether the dynamic symbol table defines malloc.

    A program's own malloc is always in there: the linker exports what a library defines, too, so that all use one.
    """
    return _defines(data, headers, b"malloc")


def _asks_for_malloc(data: mmap.mmap, headers: list[tuple[int, ...]]) -> bool:
    """Whether a program imports dlsym and has the text 'malloc' among its data.

    A malloc of a program's own that calls no other hardly has both. Where it has, the run shows it.
    """
    texts = (data[h[4] : h[4] + h[5]] for h in headers if h[1] == _SHT_PROGBITS and h[2] & _SHF_ALLOC)
    return _defines(data, headers, b"dlsym", imported=True) and any(b"\0malloc\0" in b"\0" + text for text in texts)


def _defines(data: mmap.mmap, headers: list[tuple[int, ...]], symbol: bytes, imported: bool = False) -> bool:
    """Whether the dynamic symbol table defines a name.

    Args:
        data: the whole file.
        headers: of its sections.
        symbol: the name.
        imported: whether the table must refer to the name instead.
    """
    for header in headers:
        if header[1] != _SHT_DYNSYM:
            continue
        strings = headers[header[6]]
        names = data[strings[4] : strings[4] + strings[5]]
        places, at = set(), -1
        name_end = symbol + b"\0"
        while (at := names.find(name_end, at + 1)) >= 0:  # linkers let one name end another: 'malloc' in 'xmalloc'
            places.add(at)
        table = data[header[4] : header[4] + header[5]] if places else b""
        for name, _, _, section, _, _ in _SYMBOL.iter_unpack(table[: len(table) - len(table) % _SYMBOL.size]):
            if bool(section) != imported and name in places:
                return True
    return False
