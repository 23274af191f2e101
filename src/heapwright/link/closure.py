"""Resolves a link as the linker does: every object, and the archive members that define undefined symbols.

It goes through the archives in order, and repeats until no further member is taken, like a group of the linker. So a
link that works only with a group also works here without one; the linker reports that error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from heapwright.elf.image import LOCAL, WEAK, Image, read_image
from heapwright.errors import HeapwrightError, UsageError
from heapwright.link.archive import Archive, is_archive
from heapwright.link.bitcode import Bitcode, is_bitcode, read_bitcode
from heapwright.link.linker_command import LinkInput, LinkLine


@dataclass
class Closure:
    """A resolved link.

    Attributes:
        objects: what goes into the program.
        definitions: symbol → the object of `objects` that defines it.
        libraries: the shared libraries, those left out by --as-needed aside.
        exports: symbol → the first shared library that has it.
        archives: those of which only needed members are linked.
    """

    objects: list[Image] = field(default_factory=list)
    definitions: dict[str, Image] = field(default_factory=dict)
    libraries: dict[Path, Image] = field(default_factory=dict)
    exports: dict[str, Image] = field(default_factory=dict)
    archives: list[Archive] = field(default_factory=list)

    def offers(self, symbol: str) -> bool:
        """Whether an archive has a member that defines the symbol."""
        return any(symbol in archive.index for archive in self.archives)

    def machine(self) -> tuple[str, int]:
        """Return machine and word size of the objects, ('EM_X86_64', 64); ('', 0) if all are intermediate code."""
        return next(((o.machine, o.bits) for o in self.objects if o.machine), ("", 0))


def read_input(path: Path) -> Image | Archive:
    """Opens an object, an archive, a program or a library.

    Raises:
        UsageError: it cannot be read.
        HeapwrightError: it is none of these, or damaged.
    """
    hint = "name objects, archives, programs or libraries"
    if path.is_dir():
        raise UsageError(f"{path} is a directory", hint)
    if not path.is_file() and path.exists():
        raise UsageError(f"{path} is not a regular file", hint)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint) from None
    if is_archive(content):
        return Archive(path, content)
    if is_bitcode(content):
        return read_bitcode(content, str(path))
    if content[:4] != b"\x7fELF":
        raise HeapwrightError(f"{path} {_what_else(content)}", hint)
    return read_image(content, str(path))


def _what_else(content: bytes) -> str:
    if not content:
        return "is empty"
    if content.startswith(b"#!"):
        interpreter = content[2:80].split(b"\n")[0].decode(errors="replace").strip()
        return f"is a script for {interpreter}: inspect that program"
    if content.startswith((b"\xfe\xed\xfa", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"MZ")):
        return "is a program for another operating system"
    return "is not an ELF file" + (", but text" if b"\0" not in content[:4096] else "")


def resolve(line: LinkLine) -> Closure:
    """Resolves a link.

    Raises:
        HeapwrightError: an input cannot be read, or is for another machine than the others.
    """
    return _Resolver(line).run()


class _Resolver:
    def __init__(self, line: LinkLine) -> None:
        self.line = line
        self.closure = Closure()
        self.waiting: list[tuple[LinkInput, Image]] = []
        self.taken: set[int] = set()
        self.undefined: dict[str, bool] = {}  # name → whether a strong reference needs it

    def run(self) -> Closure:
        """Take the objects in their order, and go through each archive until it adds no member."""
        for item in self.line.inputs:
            found = read_input(item.path)
            if isinstance(found, Archive):
                if item.whole:
                    for member in found.members:
                        self._take(member)
                else:
                    self.closure.archives.append(found)
                    self._take_from(found)
            elif found.kind == "object":
                self._take(found)
            elif found.kind == "library":
                self._library(item, found)
            else:
                raise HeapwrightError(f"{item.path} is a program, which cannot be linked into another")
        gave = True
        while gave:
            gave = sum(self._take_from(archive) for archive in self.closure.archives) > 0
        for item, library in self.waiting:
            if any(name in self.undefined for name in library.exports):
                self.closure.libraries[item.path] = library
        return self.closure

    def _library(self, item: LinkInput, library: Image) -> None:
        closure = self.closure
        for name in library.exports:
            closure.exports.setdefault(name, library)
        if item.as_needed:
            self.waiting.append((item, library))
        else:
            closure.libraries.setdefault(item.path, library)

    def _take(self, image: Image) -> None:
        closure = self.closure
        machine = closure.machine()
        if image.machine and machine[0] and (image.machine, image.bits) != machine:
            raise HeapwrightError(
                f"{image.name} is for {_title(image.machine, image.bits)}, the objects before it for {_title(*machine)}"
            )
        self.taken.add(id(image))
        closure.objects.append(image)
        for symbol in image.symbols:
            if symbol.binding == LOCAL or not symbol.name:
                continue
            if symbol.defined:
                closure.definitions.setdefault(symbol.name, image)
            else:
                strong = symbol.binding != WEAK
                self.undefined[symbol.name] = self.undefined.get(symbol.name, False) or strong

    def _take_from(self, archive: Archive) -> bool:
        """Take the needed members of an archive; return whether there were any."""
        gave, again = False, True
        while again:
            again = False
            for name in self._wanted(archive.index):
                if name in self.closure.definitions or name in self.closure.exports:
                    continue
                member = archive.member(archive.index[name])
                if member and id(member) not in self.taken:
                    self._take(member)
                    again = gave = True
        return gave

    def _wanted(self, index: Mapping[str, int]) -> list[str]:
        wanted = [name for name, strong in self.undefined.items() if strong and name in index]
        for image in self.closure.objects:
            if isinstance(image, Bitcode):
                wanted += [s.name for s in image.mentions(index)]
        return wanted


def _title(machine: str, bits: int) -> str:
    return f"{machine.removeprefix('EM_').replace('_', '-').lower()} ({bits} bits)"
