"""Calls zig's C or C++ compiler for another platform, as CMake's compiler.

    tools/platform_compiler.py ZIG cc|c++ TARGET ARGUMENT…

ZIG is zig's executable, TARGET a target of zig (x86_64-linux-gnu.2.17). zig's front end knows only
some of the linker's options. This program leaves out those that it does not know: gcc's run-time
library, which zig replaces by its own, and `-z initfirst`, which is one bit in the finished library.
This program sets that bit. It links as C, because zig would otherwise build its C++ library first,
which nothing here needs. The exit status is zig's.
"""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

INITFIRST = ["-Xlinker", "-z", "-Xlinker", "initfirst"]  # as CMake passes it
DT_FLAGS_1 = 0x6FFFFFFB
DF_1_INITFIRST = 0x20
PT_DYNAMIC = 2


def set_initfirst(path: Path) -> None:
    """Sets DF_1_INITFIRST in a 64-bit little-endian library.

    Raises:
        ValueError: the library has no DT_FLAGS_1.
    """
    data = bytearray(path.read_bytes())
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for header in range(table, table + size * count, size):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", data, header)
        if kind != PT_DYNAMIC:
            continue
        for entry in range(offset, offset + length, 16):
            tag, value = struct.unpack_from("<QQ", data, entry)
            if tag == DT_FLAGS_1:
                struct.pack_into("<QQ", data, entry, tag, value | DF_1_INITFIRST)
                path.write_bytes(data)
                return
    raise ValueError(f"{path} has no DT_FLAGS_1")


def main() -> int:
    """Runs zig and returns its exit status."""
    zig, language, target, *given = sys.argv[1:]
    arguments = [argument for argument in given if argument != "-lgcc"]
    places = range(len(arguments) - len(INITFIRST) + 1)
    first = next((at for at in places if arguments[at : at + len(INITFIRST)] == INITFIRST), None)
    if first is not None:
        del arguments[first : first + len(INITFIRST)]
    if "-c" not in given:
        language = "cc"
        # zig's own run-time library has the functions that gcc's has
        arguments = [argument for argument in arguments if argument != "-nodefaultlibs"]
        if target.endswith("musl") and "-shared" not in given:
            arguments.append("-dynamic")  # else zig would build a static musl
    status = subprocess.run([zig, language, "-target", target, *arguments], check=False).returncode
    if status == 0 and first is not None and "-o" in given:
        set_initfirst(Path(given[given.index("-o") + 1]))
    return status


if __name__ == "__main__":
    sys.exit(main())
