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
_SEARCHED = ("dirty_decay_ms", "narenas", "tcache", "thp")


class LibraryMalloc(NamedTuple):
    """The mallocs that a library carries for itself.

    Attributes:
        path: the library.
        families: whose mallocs they are: 'jemalloc', 'mimalloc', 'tcmalloc'.
        variable: the variable that its jemalloc reads; empty if it is unknown.
        version: of its jemalloc; empty if it is unknown.
    """

    path: Path
    families: tuple[str, ...]
    variable: str = ""
    version: str = ""

    @property
    def name(self) -> str:
        """The library's short name: 'polars_runtime' of _polars_runtime.abi3.so."""
        return self.path.name.partition(".")[0].strip("_").removeprefix("lib") or "library"

    def space(self) -> SpaceFile | None:
        """The settings to search; None if none are known, or if it is unknown which of several mallocs it uses."""
        if self.families != ("jemalloc",) or not self.variable:
            return None
        file = bundled_space("jemalloc")
        allocator = msgspec.structs.replace(file.allocator, name=self.name, env=self.variable, probe="")
        params = [msgspec.structs.replace(spec, unless={}) for spec in file.param if spec.key in _SEARCHED]
        return msgspec.structs.replace(file, allocator=allocator, param=params)


def find_library_mallocs(files: Sequence[str]) -> list[LibraryMalloc]:
    """Find the libraries that carry a malloc of their own, which no other malloc can replace.

    Args:
        files: paths of the program and the libraries that a process has mapped.
    """
    found = []
    for path in map(Path, sorted(files)):
        with elf_view(path) as view:  # the texts first: a process may map gigabytes of libraries
            families = families_in(view.data) if view is not None else ()
            variable, version = jemalloc_facts(view.data) if view is not None and "jemalloc" in families else ("", "")
        file = read_mapped(path) if families else None
        if file is not None and not (file.defines_malloc or file.interpreter or file.carries_unused):
            found.append(LibraryMalloc(path, families, variable, version))
    return found
