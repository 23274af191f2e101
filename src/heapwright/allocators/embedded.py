"""Recognises an allocator that is linked into a program by its texts, because its functions may have any name.

A Rust program with `#[global_allocator]` does not export malloc. So the loader cannot tell that jemalloc or mimalloc
serves it, and no preloaded library can replace it. But each allocator contains texts that no other code has, also in
stripped programs, and reads settings from variables. So a study searches the settings of such an allocator by its own
variables, without preloading. The space is that of its family, with the prefix of its variable, for the version that
is linked in (`library_report` asks it).
"""

from __future__ import annotations

import mmap
import re
from pathlib import Path

import msgspec

from heapwright import __version__
from heapwright.allocators.library_report import ask_library, can_ask
from heapwright.allocators.program_file import ProgramFile, family_in, read_program
from heapwright.allocators.registry import OURS, Allocator, bundled_space
from heapwright.allocators.space_spec import AllocatorSpec

# A prefix stands before the variable of a jemalloc whose functions have one: _RJEM_MALLOC_CONF,
# JE_MALLOC_CONF.
_JEMALLOC_VARIABLE = re.compile(rb"(?<![A-Za-z0-9_])([A-Z0-9_]*_)MALLOC_CONF\0")
_JEMALLOC_VERSION = re.compile(rb"(?<![\d.])(\d{1,3}\.\d{1,3}\.\d{1,3})-\d+-g[0-9a-f]{40}\0")


def find_embedded(program: str, ask: bool = True) -> Allocator | None:
    """Finds the allocator that is linked into a program, as one to search without preloading.

    Args:
        program: a path, or a name on PATH; of a script its interpreter is looked at.
        ask: whether the program may be started, to ask its allocator for its version and settings. The loader
            initialises the program then, which runs code of it.

    Returns:
        The allocator, named by its family, with the version that is linked in where that can be told; None where the
        program has none, or has one that serves none of its allocations.
    """
    found = read_program(program)
    if found is None or found.foreign or found.linked_shared:
        return None
    try:
        with found.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read(found, data, ask)
    except (OSError, ValueError):
        return None


def _read(found: ProgramFile, data: mmap.mmap, ask: bool) -> Allocator | None:
    path = str(found.path.resolve())
    if found.linked:
        return _allocator(found.linked, __version__, path) if found.linked in OURS[::2] else None
    family = family_in(data)
    if family == "tcmalloc" and not (found.static or found.own_malloc):  # it always defines malloc; this only names it
        return None
    # CPython 3.13 and later carry mimalloc, and use it only when PYTHONMALLOC says so.
    if not family or (family == "mimalloc" and data.find(b"PYTHONMALLOC\0") >= 0):
        return None
    variable, version = jemalloc_facts(data) if family == "jemalloc" else ("", "")
    allocator = _allocator(family, version, path, variable)
    spec = allocator.file.allocator
    if ask and spec.probe != "names" and can_ask(path):
        answer = ask_library(spec, {})
        if answer.ran and not answer.values:  # it does not start with the program, or does not read the variable
            return None
        return _allocator(family, answer.version or version, path, variable)
    return allocator


def jemalloc_facts(data: mmap.mmap) -> tuple[str, str]:
    """The variable and the version of a jemalloc whose functions have a prefix; each empty if it is not told.

    Args:
        data: the program or library that it is linked into.
    """
    prefix, version = _JEMALLOC_VARIABLE.search(data), _JEMALLOC_VERSION.search(data)
    return f"{prefix[1].decode()}MALLOC_CONF" if prefix else "", version[1].decode() if version else ""


def _allocator(name: str, version: str, program: str, variable: str = "") -> Allocator:
    file = bundled_space(name)
    env = variable or file.allocator.env
    spec: AllocatorSpec = msgspec.structs.replace(file.allocator, env=env, program=program)
    return Allocator(name, version or None, None, False, "", msgspec.structs.replace(file, allocator=spec))


def embedded_name(embedded: Allocator) -> str:
    """Names an embedded allocator for people: 'mimalloc 2.1.7'."""
    return f"{embedded.name} {embedded.version or ''}".strip()


def embedded_obstacle(embedded: Allocator, allocator: Allocator, program: str) -> str:
    """Return why an allocator cannot serve a program with another one linked in; empty if it is that one.

    Args:
        embedded: the allocator that is linked into the program.
        allocator: the allocator to run it with.
        program: a path, or a name on PATH.
    """
    if allocator.embedded or not (allocator.preload or allocator.name == "glibc"):  # a space file of the user's own
        return ""
    return f"{allocator.name} cannot serve {Path(program).name}: {embedded_name(embedded)} is linked into it"
