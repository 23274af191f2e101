"""Reads the parts of ELF files that a verdict needs: symbols, references between sections, needed libraries.

pyelftools reads headers, sections and the dynamic table. Symbol tables and relocations are unpacked here in bulk from
the bytes it gives: a large library has 50 000 of them, and one object for each would take seconds.

An image is read when it is opened and never again; the file may change afterwards. 32 and 64 bits, both byte orders.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from heapwright.errors import HeapwrightError

UNDEFINED, ABSOLUTE, COMMON, EXTENDED = 0, 0xFFF1, 0xFFF2, 0xFFFF
LOCAL, GLOBAL, WEAK = 0, 1, 2
_RETAIN = 0x200000  # SHF_GNU_RETAIN
_HIDDEN = (1, 2)  # STV_INTERNAL, STV_HIDDEN
_PIE = 0x08000000  # DF_1_PIE
# Sections that run without a call.
_INITIAL = (".init", ".fini", ".init_array", ".fini_array", ".preinit_array", ".ctors", ".dtors")
# Sections that refer to all functions without ever calling one.
_SILENT = (".eh_frame", ".debug", ".stab", ".comment", ".note", ".gnu.lto_", ".ARM.exidx", ".llvm", ".group")


class Symbol(NamedTuple):
    """A symbol. `section` is its section's number, or UNDEFINED, ABSOLUTE, COMMON.

    For an undefined symbol, `library` and `version` name its definition as the static linker found it ('libc.so.6',
    'GLIBC_2.34'); otherwise they are empty.
    """

    name: str
    section: int
    binding: int
    hidden: bool = False
    version: str = ""
    library: str = ""

    @property
    def defined(self) -> bool:
        """Whether it has a definition here."""
        return self.section != UNDEFINED


@dataclass
class Image:
    """One ELF file, or one member of an archive.

    Attributes:
        name: as people know it: a path, or 'libx.a(member.o)'.
        kind: 'object', 'program' or 'library'; a static program is a program without `interpreter` and `needed`.
        machine: as in the header, 'EM_X86_64'.
        bits: 32 or 64.
        needed, soname, rpath, runpath: of the dynamic table; search paths in their raw form, '$ORIGIN/…' not replaced.
        interpreter: the loader of a dynamic program.
        notes: owner → descriptions, in order.
        sections: names of its sections, by number.
        imports, exports: of the dynamic symbol table.
        symbols: of the full symbol table, or of gcc's intermediate code; empty if stripped.
        roots: of an object: the sections that run without being called.
    """

    name: str
    kind: str
    machine: str
    bits: int
    needed: list[str] = field(default_factory=list)
    soname: str = ""
    rpath: list[str] = field(default_factory=list)
    runpath: list[str] = field(default_factory=list)
    interpreter: str = ""
    notes: dict[str, list[bytes]] = field(default_factory=dict)
    sections: list[str] = field(default_factory=list)
    imports: list[Symbol] = field(default_factory=list)
    exports: set[str] = field(default_factory=set)
    symbols: list[Symbol] = field(default_factory=list)
    roots: set[int] = field(default_factory=set)
    _relocations: dict[int, list[tuple[bytes, bool]]] = field(default_factory=dict)
    _big: bool = False

    @property
    def static(self) -> bool:
        """Whether it is a program that loads no libraries."""
        return self.kind == "program" and not self.interpreter and not self.needed

    @cached_property
    def defined(self) -> dict[str, Symbol]:
        """The symbols that it defines for others when it is linked: global and weak ones, by name."""
        return {s.name: s for s in self.symbols if s.defined and s.binding != LOCAL}

    @property
    def intermediate(self) -> bool:
        """Whether an object is only gcc's intermediate code (link-time optimisation): names, but no sections."""
        return any(s.name == "__gnu_lto_slim" for s in self.symbols)

    def references(self, section: int) -> list[Symbol]:
        """The symbols that the code or data of a section refers to, each once."""
        seen: dict[int, None] = {}
        for raw, addends in self._relocations.get(section, ()):
            info = self._infos(raw, addends)
            shift = 32 if self.bits == 64 else 8
            seen.update(dict.fromkeys(i >> shift for i in info))
        return [self.symbols[i] for i in seen if 0 < i < len(self.symbols)]

    def _infos(self, raw: bytes, addends: bool) -> list[int]:
        order = ">" if self._big else "<"
        word = "Q" if self.bits == 64 else "I"
        layout = struct.Struct(order + word * (3 if addends else 2))
        usable = len(raw) - len(raw) % layout.size
        return [entry[1] for entry in layout.iter_unpack(raw[:usable])]


def read_file(path: Path) -> Image:
    """Opens an ELF file.

    Raises:
        HeapwrightError: it cannot be read, or is not an ELF file, or a damaged one.
    """
    try:
        content = path.read_bytes()
    except IsADirectoryError:
        raise HeapwrightError(f"{path} is a directory", "name objects, archives, programs or libraries") from None
    except OSError as error:
        raise HeapwrightError(f"{path}: {error.strerror}") from None
    return read_image(content, str(path))


def read_image(content: bytes, name: str) -> Image:
    """Reads an ELF file that is in memory.

    Raises:
        HeapwrightError: it is not an ELF file, or a damaged one.
    """
    if content[:4] != b"\x7fELF":
        raise HeapwrightError(f"{name} is not an ELF file")
    try:
        return _read(content, name)
    except HeapwrightError:
        raise
    except Exception as error:  # pyelftools lets pass whatever damaged bytes lead to: a dozen kinds
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise HeapwrightError(f"{name}: a damaged ELF file ({what})", "build or fetch it again") from None


def _read(content: bytes, name: str) -> Image:
    from elftools.elf.elffile import ELFFile

    elf: Any = ELFFile(BytesIO(content))
    kinds = {"ET_REL": "object", "ET_EXEC": "program", "ET_DYN": "library"}
    kind = kinds.get(elf["e_type"])
    if kind is None:
        what = {"ET_CORE": "a core dump"}.get(elf["e_type"], f"an ELF file of kind {elf['e_type']}")
        raise HeapwrightError(f"{name} is {what}", "name objects, archives, programs or libraries")
    image = Image(name, kind, str(elf["e_machine"]), elf.elfclass)
    image._big = not elf.little_endian
    if elf["e_shoff"] > len(content) or elf["e_phoff"] > len(content):
        raise HeapwrightError(f"{name}: a damaged ELF file (it ends before its headers)", "build or fetch it again")
    headers = [elf._get_section_header(i) for i in range(elf.num_sections())]
    raw = _Raw(content, headers, image)
    for header in headers:
        if header["sh_type"] != "SHT_NOBITS" and header["sh_offset"] + header["sh_size"] > len(content):
            raise HeapwrightError(f"{name}: a damaged ELF file (a section ends beyond it)", "build or fetch it again")
    _read_segments(elf, image, raw)
    _read_sections(elf, image, raw)
    return image


class _Raw:
    """The tables of a file, unpacked in bulk."""

    def __init__(self, content: bytes, headers: list[Any], image: Image) -> None:
        self.content = content
        self.headers = headers
        self.image = image
        self.order = ">" if image._big else "<"

    def data(self, number: int) -> bytes:
        """The bytes of a section."""
        header = self.headers[number]
        return self.content[header["sh_offset"] : header["sh_offset"] + header["sh_size"]]

    def of_type(self, *types: str) -> list[int]:
        """Numbers of the sections of a type."""
        return [i for i, h in enumerate(self.headers) if h["sh_type"] in types]

    def symbols(self, number: int) -> list[Symbol]:
        """A symbol table, without versions."""
        names = self.data(self.headers[number]["sh_link"])
        extended = self._extended(number)
        table = self.data(number)
        if self.image.bits == 64:  # name info other section value size
            layout, at = struct.Struct(self.order + "IBBHQQ"), (0, 1, 2, 3)
        else:  # name value size info other section
            layout, at = struct.Struct(self.order + "IIIBBH"), (0, 3, 4, 5)
        found = []
        for i, entry in enumerate(layout.iter_unpack(table[: len(table) - len(table) % layout.size])):
            start, info, other, section = (entry[k] for k in at)
            if section == EXTENDED and i < len(extended):
                section = extended[i]
            name = names[start : names.find(b"\0", start)].decode(errors="replace")
            found.append(Symbol(name, section, info >> 4, other & 3 in _HIDDEN))
        return found

    def _extended(self, number: int) -> tuple[int, ...]:
        for i in self.of_type("SHT_SYMTAB_SHNDX"):
            if self.headers[i]["sh_link"] == number:
                data = self.data(i)
                return struct.unpack(f"{self.order}{len(data) // 4}I", data[: len(data) // 4 * 4])
        return ()


def _read_segments(elf: Any, image: Image, raw: _Raw) -> None:
    started = False
    for segment in elf.iter_segments():
        if segment["p_type"] == "PT_INTERP":
            image.interpreter = str(segment.get_interp_name())
        elif segment["p_type"] == "PT_DYNAMIC" and image.kind != "object":
            started = _read_dynamic(segment, image, raw)
        elif segment["p_type"] == "PT_NOTE":
            add_notes(raw.content[segment["p_offset"] : segment["p_offset"] + segment["p_filesz"]], image)
    # A program that may be loaded anywhere has the type of a library; and a library may have a
    # loader, to be run.
    if image.kind == "library" and started:
        image.kind = "program"


def _read_dynamic(segment: Any, image: Image, raw: _Raw) -> bool:
    """Reads the dynamic table; whether it is that of a program."""
    program = False
    for tag in segment.iter_tags():
        match tag.entry.d_tag:
            case "DT_NEEDED":
                image.needed.append(tag.needed)
            case "DT_SONAME":
                image.soname = tag.soname
            case "DT_RPATH":
                image.rpath = [p for p in tag.rpath.split(":") if p]
            case "DT_RUNPATH":
                image.runpath = [p for p in tag.runpath.split(":") if p]
            case "DT_FLAGS_1":
                program = program or bool(tag.entry.d_val & _PIE)
            case "DT_DEBUG":
                program = program or bool(image.interpreter)
    if not raw.of_type("SHT_DYNSYM"):  # no section table: the segment leads to the symbols, without versions
        for symbol in segment.iter_symbols():
            defined = symbol["st_shndx"] != "SHN_UNDEF"
            if symbol.name and defined:
                image.exports.add(symbol.name)
            elif symbol.name:
                image.imports.append(Symbol(symbol.name, UNDEFINED, GLOBAL))
    return program


def _read_sections(elf: Any, image: Image, raw: _Raw) -> None:
    names = elf["e_shstrndx"]
    table = raw.data(names) if 0 < names < len(raw.headers) else b"\0"
    starts = [h["sh_name"] for h in raw.headers]
    image.sections = [table[s : table.find(b"\0", s)].decode(errors="replace") for s in starts]
    for number in raw.of_type("SHT_DYNSYM"):
        _read_dynamic_symbols(elf, image, raw, number)
    for number in raw.of_type("SHT_SYMTAB"):
        image.symbols = raw.symbols(number)
    for number in raw.of_type("SHT_NOTE"):
        if image.kind == "object":
            add_notes(raw.data(number), image)
    if image.kind != "object":
        return
    for number, name in enumerate(image.sections):
        header = raw.headers[number]
        if header["sh_type"] in ("SHT_REL", "SHT_RELA"):
            target = header["sh_info"]
            if target < len(image.sections) and not image.sections[target].startswith(_SILENT):
                entry = (raw.data(number), header["sh_type"] == "SHT_RELA")
                image._relocations.setdefault(target, []).append(entry)
        elif name.startswith(_INITIAL) or header["sh_flags"] & _RETAIN:
            image.roots.add(number)
        elif name.startswith(".gnu.lto_.symtab"):
            image.symbols += _intermediate_symbols(raw.data(number))


def _read_dynamic_symbols(elf: Any, image: Image, raw: _Raw, number: int) -> None:
    versions: dict[int, tuple[str, str]] = {}
    indexes: tuple[int, ...] = ()
    for section in raw.of_type("SHT_GNU_verneed"):
        for needed, parts in elf.get_section(section).iter_versions():
            versions.update({part["vna_other"]: (part.name, needed.name) for part in parts})
    for section in raw.of_type("SHT_GNU_versym"):
        data = raw.data(section)
        indexes = struct.unpack(f"{raw.order}{len(data) // 2}H", data[: len(data) // 2 * 2])
    for i, symbol in enumerate(raw.symbols(number)):
        if not symbol.name or symbol.binding == LOCAL:
            continue
        if symbol.defined:
            image.exports.add(symbol.name)
        else:
            version, library = versions.get(indexes[i] & 0x7FFF if i < len(indexes) else 0, ("", ""))
            image.imports.append(symbol._replace(version=version, library=library))


def add_notes(data: bytes, image: Image) -> None:
    """Adds the notes of a PT_NOTE segment or a note section to the image's."""
    order = ">" if image._big else "<"
    at = 0
    while at + 12 <= len(data):
        owner, length, _ = struct.unpack_from(order + "3I", data, at)
        body = at + 12 + (owner + 3) // 4 * 4
        name = data[at + 12 : at + 12 + owner].rstrip(b"\0").decode(errors="replace")
        image.notes.setdefault(name, []).append(data[body : body + length])
        at = body + (length + 3) // 4 * 4


def _intermediate_symbols(data: bytes) -> list[Symbol]:
    """gcc's table for linkers: name, group name, kind, visibility, size (8), slot (4); kinds 2 and 3 are undefined."""
    found = []
    at = 0
    while at < len(data):
        end = data.index(b"\0", at)
        name = data[at:end].decode(errors="replace")
        at = data.index(b"\0", end + 1) + 1
        kind, visibility = data[at], data[at + 1]
        at += 14
        section = UNDEFINED if kind in (2, 3) else COMMON if kind == 4 else ABSOLUTE
        found.append(Symbol(name, section, WEAK if kind in (1, 3) else GLOBAL, visibility in _HIDDEN))
    return found
