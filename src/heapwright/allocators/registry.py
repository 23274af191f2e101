"""Which allocators there are on this machine, and where each one's parameter space stands."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

from heapwright.allocators.space import Context, Space, SpaceFile, build_space, load_space_file
from heapwright.errors import HeapwrightError, UsageError, unknown


@dataclass(frozen=True)
class Allocator:
    """An allocator found on this machine.

    Attributes:
        name: registry name, as in `--allocators`.
        version: its version, or None where it cannot be told.
        path: the library, or None.
        bundled: whether heapwright brought it.
        preload: what LD_PRELOAD needs, or empty for the system malloc.
        file: its parsed parameter-space file.
    """

    name: str
    version: str | None
    path: str | None
    bundled: bool
    preload: str
    file: SpaceFile

    def space(self, threads: bool, expert: bool = False) -> Space:
        """What can be searched for a program with or without threads on this machine."""
        context = Context(self.version or "", os.cpu_count() or 1, threads, expert)
        return build_space(self.file, context, self.name)


def glibc_version() -> str | None:
    """'2.36', or None where the C library is not glibc."""
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        return None
    return text.removeprefix("glibc ") if text else None


def _glibc_path() -> str | None:
    """The libc this process runs on, from its own memory map."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        name = line.split(maxsplit=5)[-1]
        if Path(name).name.startswith(("libc.so", "libc-2")):
            return name
    return None


@cache
def bundled_space(name: str) -> SpaceFile:
    """The parameter-space file that comes with heapwright for this allocator."""
    with as_file(files("heapwright.allocators") / "spaces" / f"{name}.toml") as path:
        return load_space_file(path)


def find_allocators() -> dict[str, Allocator]:
    """Every allocator known and found here, by name."""
    found: dict[str, Allocator] = {}
    version = glibc_version()
    if version is not None:
        found["glibc"] = Allocator("glibc", version, _glibc_path(), False, "", bundled_space("glibc"))
    return found


def get_allocator(name: str) -> Allocator:
    """The allocator of this name.

    Raises:
        UsageError: not known or not found here.
    """
    found = find_allocators()
    if name not in found:
        if not found:
            raise HeapwrightError("this system's C library is not glibc: nothing to tune yet")
        raise unknown("allocator", name, found)
    return found[name]


def allocator_from_file(path: Path) -> Allocator:
    """An allocator described by the user's own parameter-space file.

    Raises:
        UsageError: the file cannot be used; file, line and key are named.
    """
    file = load_space_file(path)
    if not file.param:
        raise UsageError(f"{path}: param: there is no [[param]] to search")
    version = glibc_version() if file.allocator.name == "glibc" else None
    return Allocator(file.allocator.name, version, None, False, file.allocator.preload, file)
