"""Finds the allocators on this machine, with the parameter space of each."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

import msgspec

from heapwright import __version__
from heapwright.allocators.huge_pages import has_huge_page_pool, thp_state
from heapwright.allocators.library_report import known_keys, reported_version
from heapwright.allocators.peers import Peer, family_of, find_peers, known_peers, library_version
from heapwright.allocators.space import Space, build_space
from heapwright.allocators.space_file import load_space_file
from heapwright.allocators.space_spec import (
    AllocatorSpec,
    Context,
    SpaceFile,
    needed_variables,
    preload_variables,
    preloadable,
)
from heapwright.errors import HeapwrightError, UsageError, unknown
from heapwright.files import NATIVE

OURS = ("exgen", "exgen-secure", "reaper", "reaper-secure")


@dataclass(frozen=True)
class Allocator:
    """An allocator found on this machine.

    Attributes:
        name: registry name, as in `--allocators`.
        version: its version, or None if it is unknown.
        path: the library, or None.
        bundled: whether heapwright brought it.
        preload: what LD_PRELOAD needs, or empty for the system malloc.
        file: its parsed parameter-space file.
        env: further variables that it needs, or that make it the variant in its name.
        ordinary: whether it is worth searching unasked: not hardened, not a variant of another.
    """

    name: str
    version: str | None
    path: str | None
    bundled: bool
    preload: str
    file: SpaceFile
    env: dict[str, str] = field(default_factory=dict)
    ordinary: bool = True

    @property
    def embedded(self) -> bool:
        """Whether it is linked into the program, and serves it without being preloaded."""
        return bool(self.file.allocator.program)

    @property
    def library(self) -> str | None:
        """The file that holds it: the first that is preloaded, or the C library; None if it is unknown."""
        return self.preload.partition(":")[0] or self.path

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that run a program under this allocator; other preloaded libraries follow it."""
        return {**needed_variables(self.env, base), **preload_variables(self.preload, base)}

    def space(self, threads: bool, expert: bool = False) -> Space:
        """Return the parameter space for a program with or without threads on this machine."""
        known = known_keys(self.file.allocator) if self.file.param else None
        context = Context(
            upstream_version(self.version or ""),
            os.cpu_count() or 1,
            threads,
            expert,
            known,
            thp_state(),
            has_huge_page_pool(),
        )
        return build_space(self.file, context, self.name)


def upstream_version(version: str) -> str:
    """A package's version without the distribution's part: '1:2.10-1' → '2.10'."""
    return re.split(r"[-+ ~]", version.partition(":")[2] or version)[0]


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


@cache
def bundled_names() -> tuple[str, ...]:
    """The parameter-space files that come with heapwright."""
    folder = files("heapwright.allocators") / "spaces"
    return tuple(sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")))


def joined_variables() -> dict[str, str]:
    """The variables that hold several settings, with what stands between these: MALLOC_CONF → ','."""
    from heapwright.allocators.runtimes import shipped_runtimes

    specs = [bundled_space(name).allocator for name in bundled_names()]
    specs += [file.allocator for file in shipped_runtimes()]
    return {spec.env: spec.join for spec in specs if spec.env and "{" not in spec.env}


def bundled_file(name: str) -> SpaceFile | None:
    """The parameter-space file that comes with heapwright for the allocator of this name, if there is one."""
    spec = next((s for s in known_peers() if name in (s.name, *(f"{s.name}-{v.suffix}" for v in s.variant))), None)
    space = (spec.space or spec.name) if spec else name
    return bundled_space(space) if space in bundled_names() else None


def library_folder() -> Path:
    """Return the folder of the libraries that heapwright brings."""
    return NATIVE / "lib"


def not_preloadable(path: str | Path) -> UsageError:
    """Return the error for a library of the user that is not `preloadable`."""
    return UsageError(f"LD_PRELOAD cannot name {path}", "move it to a path without spaces and colons")


def own_library(name: str) -> Path:
    """Return the path of a library of heapwright that is to be preloaded.

    Args:
        name: of the file.

    Raises:
        HeapwrightError: LD_PRELOAD cannot name its path.
    """
    path = library_folder() / name
    if not preloadable(path):
        raise HeapwrightError(
            f"LD_PRELOAD cannot name {path}", "install heapwright under a path without spaces and colons"
        )
    return path


def _bundled() -> dict[str, Allocator]:
    """The allocators that heapwright brings; none if LD_PRELOAD cannot name their folder."""
    if not preloadable(library_folder()):
        return {}
    paths = {name: library_folder() / f"lib{name}.so" for name in OURS}
    return {
        name: _preloaded(Peer(name, str(path), __version__, {}, name, "-" not in name), bundled=True)
        for name, path in paths.items()
        if path.is_file()
    }


def find_allocators() -> dict[str, Allocator]:
    """Every allocator known and found here, by name."""
    found: dict[str, Allocator] = {}
    version = glibc_version()
    if version is not None:
        found["glibc"] = Allocator("glibc", version, _glibc_path(), False, "", bundled_space("glibc"))
    found |= _bundled()
    found |= {name: _preloaded(peer) for name, peer in find_peers().items() if preloadable(peer.path)}
    newest = next((found[name] for name in ("mimalloc3", "mimalloc2") if name in found), None)
    return {**found, "mimalloc": newest} if newest and "mimalloc" not in found else found


def _preloaded(peer: Peer, bundled: bool = False) -> Allocator:
    """A library to preload, with the parameter space that comes with heapwright for it if there is one."""
    file = bundled_space(peer.space) if peer.space in bundled_names() else SpaceFile(AllocatorSpec(peer.name))
    spec = msgspec.structs.replace(file.allocator, name=peer.name, preload=peer.path, needs=peer.env)
    file = msgspec.structs.replace(file, allocator=spec)
    version = peer.version or reported_version(spec)
    return Allocator(peer.name, version, peer.path, bundled, peer.path, file, peer.env, peer.ordinary)


def with_preload(allocator: Allocator, library: str) -> Allocator:
    """The allocator with this library preloaded; for glibc too, if the program is linked to another malloc."""
    if library == allocator.preload:
        return allocator
    spec = msgspec.structs.replace(allocator.file.allocator, preload=library)
    file = msgspec.structs.replace(allocator.file, allocator=spec)
    return dataclasses.replace(allocator, preload=library, file=file)


def ordinary_allocators() -> list[Allocator]:
    """The allocators that are searched unasked: found here, not hardened, each library once."""
    found = {one.path: one for one in reversed(find_allocators().values()) if one.ordinary}
    return list(reversed(found.values()))


def get_allocator(name: str, found: Mapping[str, Allocator] | None = None, preloads: bool = True) -> Allocator:
    """The allocator of this name, or the library at this path.

    Args:
        name: its name, or a path.
        found: the allocators of this machine, if the caller has them; finding them takes a quarter of a second.
        preloads: whether the caller preloads it; a linker can use any path.

    Raises:
        UsageError: not known or not found here, or LD_PRELOAD cannot name it.
        HeapwrightError: LD_PRELOAD cannot name heapwright's own libraries, or there is no allocator to tune.
    """
    if "/" in name:
        if not Path(name).is_file():
            raise UsageError(f"no such allocator library: {name}")
        if os.fsencode(name).decode(errors="ignore").encode() != os.fsencode(name):  # it is drawn and stored as text
            raise UsageError(
                f"the path of the allocator library is not UTF-8: {name}", "rename it, or make a link to it"
            )
        path = str(Path(name).resolve())
        if preloads and not preloadable(path):
            raise not_preloadable(path)
        return _preloaded(Peer(Path(name).name, path, library_version(path), space=family_of(path)))
    found = find_allocators() if found is None else found
    if name not in found:
        if not found:
            raise HeapwrightError(
                "heapwright found no allocator that it can tune: the C library of this system is not glibc"
            )
        if name in OURS:
            own_library(f"lib{name}.so")
            what = f"allocator '{name}' comes with heapwright, but is not in this installation"
            raise UsageError(what, "install heapwright again, with a C++ compiler on PATH")
        spec = next((s for s in known_peers() if s.name == name), None)
        if spec is not None:
            raise UsageError(f"allocator '{name}' is not on this machine", f"{spec.how_to_get}, or give its path")
        raise unknown("allocator", name, [*found, *(spec.name for spec in known_peers())])
    return found[name]


def allocator_from_file(path: Path) -> Allocator:
    """An allocator described by the user's own parameter-space file.

    Raises:
        UsageError: the file cannot be used; file, line and key are named.
    """
    file = load_space_file(path)
    if not file.param:
        raise UsageError(f"{path}: param: the file has no [[param]] table, so there is nothing to search")
    version = glibc_version() if file.allocator.name == "glibc" else None
    spec = file.allocator
    return Allocator(spec.name, version, None, False, spec.preload, file, spec.needs)
