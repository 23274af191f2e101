"""Finds the libraries that are loaded with a program: the closure of its NEEDED entries, as the loader finds them.

The search for references stops at a known library (`known_libraries`), whose entry covers the libraries that it needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from heapwright.elf.image import Image, Symbol, read_file
from heapwright.link.known_libraries import known_library
from heapwright.link.library_search import find_loaded, replace_origin


@dataclass
class LoadedFile:
    """A file that is loaded.

    Attributes:
        name: its soname, or for the program its path.
        via: the names from the program to it.
        missing: libraries that it needs and that were not found.
    """

    name: str
    path: Path
    image: Image
    via: tuple[str, ...]
    missing: list[str] = field(default_factory=list)


@dataclass
class LoadedFiles:
    """A program or library with all libraries that are loaded with it.

    Attributes:
        reached: the program first, then the libraries outside the table of known ones, in the order of loading.
        everything: all libraries by soname, known ones too.
    """

    reached: list[LoadedFile]
    everything: dict[str, LoadedFile]

    def others(self) -> Iterable[LoadedFile]:
        """The libraries."""
        return self.everything.values()

    def provider(self, symbol: Symbol) -> str:
        """The library that a symbol is bound to: the one its version names, or the first that has it; or empty."""
        if symbol.library in self.everything:
            return symbol.library
        if self.reached and symbol.name in self.reached[0].image.exports:
            return self.reached[0].name
        return next((name for name, item in self.everything.items() if symbol.name in item.image.exports), "")


def load_all(path: Path, image: Image, beside: Iterable[Image] = ()) -> LoadedFiles:
    """Find all libraries that are loaded with a program or library.

    Args:
        path: the file.
        image: its content.
        beside: further libraries of the same link, where symbols may be found.

    Raises:
        HeapwrightError: a library is damaged.
    """
    first = LoadedFile(image.soname if image.kind == "library" and image.soname else str(path), path, image, ())
    first.via = (first.name,)
    loaded = LoadedFiles([first], {})
    queue: list[tuple[LoadedFile, tuple[str, ...]]] = [(first, ())]
    while queue:
        item, inherited = queue.pop(0)
        known = item is not first and known_library(item.name) is not None
        if not known and item is not first:
            loaded.reached.append(item)
        own = tuple(replace_origin(item.image.rpath, item.path, image.bits)) if not item.image.runpath else ()
        rpath = (*own, *inherited)
        for name in item.image.needed:
            if name in loaded.everything:
                continue
            runpath = replace_origin(item.image.runpath, item.path, image.bits)
            where = find_loaded(name, image.machine, image.bits, () if runpath else rpath, runpath)
            if where is None:
                item.missing.append(name)
                continue
            found = LoadedFile(name, where, read_file(where), (*item.via, name))
            loaded.everything[name] = found
            queue.append((found, rpath))
    for other in beside:
        if other is not image:
            loaded.everything.setdefault(
                other.soname or other.name, LoadedFile(other.soname or other.name, Path(other.name), other, ())
            )
    return loaded
