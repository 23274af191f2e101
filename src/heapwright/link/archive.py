"""Reads archives of objects, as `ar` writes them: with the members in them, or thin, with the paths of the members.

    !<arch>\\n  (or !<thin>\\n)
    header of 60 bytes: name 16, date 12, owner 6, group 6, mode 8, size 10, "`\\n"
    the member, then one byte if its size is odd          (not in a thin archive)
    …
Special members: '/' and '/SYM64/' the symbol index, '//' long names, which 'name/offset' refers to.

The symbol index: a number n, n places of members' headers, n names that end in 0; numbers of 4 bytes (8 in
'/SYM64/'), highest byte first. The linker takes a member that defines an undefined symbol. The index names the member,
so only the members that are taken are read. For an archive without an index, one is made from its members.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from heapwright.elf.image import Image, read_image
from heapwright.errors import HeapwrightError
from heapwright.link.bitcode import is_bitcode, read_bitcode

FULL, THIN = b"!<arch>\n", b"!<thin>\n"
_HEADER = 60


class Archive:
    """An archive; its members are read when they are first asked for.

    Raises:
        HeapwrightError: it is not an archive, or a damaged one, or a member of a thin archive is missing.
    """

    def __init__(self, path: Path, content: bytes) -> None:
        self.path = path
        self._content = content
        self._thin = content.startswith(THIN)
        self._placed: dict[str, int] = {}
        self._members: dict[int, Image | None] = {}
        self._places = {header: (name, start, size) for header, name, start, size in self._walk()}

    def _damaged(self, what: str) -> HeapwrightError:
        return HeapwrightError(f"{self.path}: damaged archive ({what})", "build it again")

    def _walk(self) -> Iterator[tuple[int, str, int, int]]:
        """Place of the header, name, place and size of each member that is not one of the special ones."""
        content, long_names, at = self._content, b"", len(FULL)
        while at < len(content):
            header = content[at : at + _HEADER]
            if len(header) < _HEADER or header[58:] != b"`\n":
                raise self._damaged("a member's header is not where it should be")
            digits = header[48:58].strip()
            if not digits.isdigit():  # of bytes: 0 to 9 and nothing else
                raise self._damaged("the size of a member is not a number")
            size = int(digits)
            name = header[:16].decode(errors="replace").rstrip()
            special = name in ("/", "//", "/SYM64/") or name.startswith("__.SYMDEF")
            start = at + _HEADER
            inside = special or not self._thin
            if inside and start + size > len(content):
                raise self._damaged("the file ends inside a member")
            if name in ("/", "/SYM64/"):
                self._read_index(content[start : start + size], 8 if name == "/SYM64/" else 4)
            elif name == "//":
                long_names = content[start : start + size]
            elif not special:
                if name.startswith("/") and name[1:].isdecimal():
                    offset = int(name[1:])
                    name = long_names[offset : long_names.find(b"\n", offset)].decode(errors="replace")
                yield at, name.removesuffix("/"), start, size
            at = start + (size + size % 2 if inside else 0)

    def _read_index(self, data: bytes, width: int) -> None:
        count = int.from_bytes(data[:width], "big")
        names = data[width * (count + 1) :].split(b"\0")
        if len(names) < count:
            raise self._damaged("its symbol index is too short")
        for i in range(count):
            header = int.from_bytes(data[width * (i + 1) : width * (i + 2)], "big")
            self._placed.setdefault(names[i].decode(errors="replace"), header)

    @cached_property
    def index(self) -> dict[str, int]:
        """Symbol → the member that defines it, for `member`."""
        if self._placed:
            return {name: header for name, header in self._placed.items() if header in self._places}
        found: dict[str, int] = {}
        for header in self._places:
            image = self.member(header)
            for name in image.defined if image else ():
                found.setdefault(name, header)
        return found

    @property
    def members(self) -> list[Image]:
        """All its objects."""
        return [image for header in self._places if (image := self.member(header))]

    def member(self, header: int) -> Image | None:
        """Return one member; None if it is not an object (a text file, a library), as the linker ignores it too."""
        if header not in self._members:
            self._members[header] = self._read(*self._places[header])
        return self._members[header]

    def _read(self, name: str, start: int, size: int) -> Image | None:
        title = f"{self.path}({Path(name).name})"
        content = self._content[start : start + size]
        if self._thin:
            try:
                content = (self.path.parent / name).read_bytes()
            except OSError as error:
                where = self.path.parent / name
                raise HeapwrightError(
                    f"{title}: {error.strerror}: {where}", "a thin archive needs its members"
                ) from None
        if is_bitcode(content):
            return read_bitcode(content, title)
        if content[:4] != b"\x7fELF":
            return None
        image = read_image(content, title)
        return image if image.kind == "object" else None


def is_archive(content: bytes) -> bool:
    """Whether a file with these first bytes is an archive."""
    return content.startswith((FULL, THIN))
