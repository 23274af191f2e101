"""Tells which names occur in objects of LLVM's intermediate code (clang -flto).

Only LLVM's own libraries can read this code, and its format changes between versions. But its names are plain bytes in
one table. So this module can tell whether a given name occurs, but cannot list the names. That is enough, because
callers ask for names that others define. A name within a longer one counts too; that can only make more functions count
as reached.
"""

from __future__ import annotations

from collections.abc import Iterable

from heapwright.elf.image import GLOBAL, UNDEFINED, Image, Symbol

_MAGIC = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")


class Bitcode(Image):
    """An object of intermediate code: it has no sections and no symbols, only names that occur."""

    content: bytes = b""

    def mentions(self, names: Iterable[str]) -> list[Symbol]:
        """Return those of the names that occur, as undefined symbols."""
        return [Symbol(name, UNDEFINED, GLOBAL) for name in names if name.encode() in self.content]


def is_bitcode(content: bytes) -> bool:
    """Whether a file with these first bytes is LLVM's intermediate code."""
    return content[:4] in _MAGIC


def read_bitcode(content: bytes, name: str) -> Bitcode:
    """An object of intermediate code."""
    image = Bitcode(name, "object", "", 0)
    image.content = content
    return image
