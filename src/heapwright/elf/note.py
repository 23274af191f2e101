"""Writes and reads the note that `heapwright link` leaves in a program, and the allocator's built-in options.

Both are in one small object that is linked in. This module writes the object itself, without a compiler. Its layout:

    ELF header
    .note.heapwright        owner "heapwright", type 1, description: JSON (the choice and its reason)
    .rodata.heapwright      the options, a string that ends in 0; only if there are any
    .symtab                 heapwright_built_in_options: the string; weak, so that a program may have its own
    .strtab, .shstrtab
    section headers
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass
from typing import Any

from heapwright.elf.image import Image
from heapwright.errors import HeapwrightError

OWNER = "heapwright"
OPTIONS_SYMBOL = "heapwright_built_in_options"
_ALLOC = 2
_PROGBITS, _SYMTAB, _STRTAB, _NOTE = 1, 2, 3, 7
_WEAK_OBJECT = 2 << 4 | 1
MACHINES = {"EM_X86_64": 62, "EM_AARCH64": 183, "EM_RISCV": 243}


@dataclass(frozen=True)
class LinkedAllocator:
    """The allocator that was linked in.

    Attributes:
        allocator: its name, or 'none'.
        version: of heapwright, which linked it.
        how: 'static' or 'shared'.
        verdict: of the program when it was linked.
        why: the reason for the choice.
        options: built in.
    """

    allocator: str
    version: str
    how: str
    verdict: str
    why: str
    options: str = ""

    def as_json(self) -> dict[str, str]:
        """As it stands in the note."""
        return asdict(self)


def read_note(image: Image) -> LinkedAllocator | None:
    """Return the note that `heapwright link` left in a program; None if there is none, or none that can be read."""
    for data in image.notes.get(OWNER, ()):
        try:
            value: Any = json.loads(data.rstrip(b"\0"))
            return LinkedAllocator(**{key: str(value.get(key, "")) for key in LinkedAllocator.__dataclass_fields__})
        except (ValueError, AttributeError, RecursionError):
            continue
    return None


def _padded(data: bytes, to: int = 4) -> bytes:
    return data + b"\0" * (-len(data) % to)


def note_object(linked: LinkedAllocator, machine: str) -> bytes:
    """The object to link in.

    Raises:
        HeapwrightError: heapwright's allocators are not for this machine.
    """
    if machine not in MACHINES:
        raise HeapwrightError(f"heapwright has no allocators for {machine.removeprefix('EM_')}")
    text = json.dumps(linked.as_json()).encode()
    owner = OWNER.encode() + b"\0"
    note = struct.pack("<3I", len(owner), len(text), 1) + _padded(owner) + _padded(text)
    options = linked.options.encode() + b"\0" if linked.options else b""
    strings = b"\0" + OPTIONS_SYMBOL.encode() + b"\0"
    symbols = bytes(24)
    if options:
        symbols += struct.pack("<IBBHQQ", 1, _WEAK_OBJECT, 0, 2, 0, len(options))
    bodies = [
        ("", 0, 0, b"", 0, 0, 0),
        (".note.heapwright", _NOTE, _ALLOC, note, 0, 0, 0),
        (".rodata.heapwright", _PROGBITS, _ALLOC, options, 0, 0, 0),
        (".symtab", _SYMTAB, 0, symbols, 4, 1, 24),
        (".strtab", _STRTAB, 0, strings, 0, 0, 0),
        (".note.GNU-stack", _PROGBITS, 0, b"", 0, 0, 0),
    ]
    names = b"".join(name.encode() + b"\0" for name, *_ in bodies)
    start = names + b".shstrtab\0"
    bodies.append((".shstrtab", _STRTAB, 0, start, 0, 0, 0))
    content, headers, name_at = bytes(64), b"", 0
    for name, kind, flags, body, link, info, entry in bodies:
        content = _padded(content, 8)
        headers += struct.pack(
            "<IIQQQQIIQQ", name_at, kind, flags, 0, len(content), len(body), link, info, 8 if kind == 2 else 4, entry
        )
        content += body
        name_at += len(name) + 1
    content = _padded(content, 8)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = struct.pack(
        "<HHIQQQIHHHHHH", 1, MACHINES[machine], 1, 0, 0, len(content), 0, 64, 0, 0, 64, len(bodies), len(bodies) - 1
    )
    return ident + header + content[64:] + headers
