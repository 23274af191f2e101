"""Finds libraries that carry a malloc of their own, and the settings of that malloc.

Apache Arrow, polars, DuckDB and others bring jemalloc or mimalloc under names of their own. No preloaded malloc serves
such a library, and a recording holds none of its blocks. But a jemalloc with a prefix reads a variable of its own:
`_RJEM_MALLOC_CONF` in polars, `DUCKDB_JE_MALLOC_CONF` in DuckDB.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from heapwright.allocators.embedded import jemalloc_facts
from heapwright.allocators.program_file import elf_view, families_in, read_mapped
from heapwright.allocators.registry import bundled_space
from heapwright.allocators.space_spec import SpaceFile

# The settings of a library's jemalloc that are searched. Each costs runs of the whole program, and
# these change most.
SEARCHED = ("dirty_decay_ms", "narenas", "tcache", "thp")


class LibraryMalloc(NamedTuple):
    """The mallocs that a library carries for itself, or several libraries whose jemallocs read the same variable.

    Attributes:
        paths: the libraries.
        families: whose mallocs they are: 'jemalloc', 'mimalloc'.
        variable: the variable that its jemalloc reads; empty if it is unknown.
        version: of its jemalloc; empty if it is unknown.
    """

    paths: tuple[Path, ...]
    families: tuple[str, ...]
    variable: str = ""
    version: str = ""

    @property
    def name(self) -> str:
        """The first library's short name: 'polars_runtime' of _polars_runtime.abi3.so."""
        return self.paths[0].name.partition(".")[0].strip("_").removeprefix("lib") or "library"

    @property
    def has_settings(self) -> bool:
        """Whether its settings are known. Of a library with several mallocs it is unknown which of them it uses."""
        return self.families == ("jemalloc",) and bool(self.variable)

    def space(self, name: str) -> SpaceFile:
        """The settings to search, under this name; none if they are unknown."""
        file = bundled_space("jemalloc")
        allocator = msgspec.structs.replace(file.allocator, name=name, env=self.variable, probe="")
        known = [
            msgspec.structs.replace(spec, unless={}, replayable=False) for spec in file.param if spec.key in SEARCHED
        ]
        return msgspec.structs.replace(file, allocator=allocator, param=known if self.has_settings else [])


def find_library_mallocs(files: Sequence[str]) -> list[LibraryMalloc]:
    """Find the libraries that carry a malloc of their own, which no other malloc can replace.

    Args:
        files: paths of the program and the libraries that a process has mapped.
    """
    found: dict[str, LibraryMalloc] = {}
    for path in map(Path, sorted(files)):
        with elf_view(path) as view:  # the texts first: a process may map gigabytes of libraries
            # A library with tcmalloc's text only names it: tcmalloc itself always defines malloc.
            families = tuple(f for f in families_in(view.data) if f != "tcmalloc") if view is not None else ()
            variable, version = jemalloc_facts(view.data) if view is not None and "jemalloc" in families else ("", "")
        file = read_mapped(path) if families else None
        if file is None or file.defines_malloc or file.interpreter or file.carries_unused:
            continue
        one = LibraryMalloc((path,), families, variable, version)
        key = variable if one.has_settings else str(path)
        found[key] = found[key]._replace(paths=(*found[key].paths, path)) if key in found else one
    return list(found.values())


def own_malloc_clause(libraries: Sequence[str], malloc: str) -> str:
    """'_polars_runtime.abi3.so has a malloc of its own (jemalloc 5.3.1), which no other malloc replaces'.

    Args:
        libraries: their paths.
        malloc: its name for people.
    """
    each = "has a malloc of its own" if len(libraries) == 1 else "have mallocs of their own"
    names = " and ".join(Path(path).name for path in libraries)
    return f"{names} {each} ({malloc}), which no other malloc replaces"


def library_warnings(files: Sequence[str]) -> list[str]:
    """A warning for each malloc of libraries that a comparison of other mallocs does not reach.

    Args:
        files: see `find_library_mallocs`.
    """
    return [
        f"{own_malloc_clause([str(path) for path in one.paths], ' and '.join(one.families))}."
        for one in find_library_mallocs(files)
    ]
