"""Finds what a linked program can reach from its start, section by section, like the linker's --gc-sections.

With -ffunction-sections a section holds one function. Otherwise it holds all functions of a file. Calls within a
section leave no relocation, so if one of its functions is reached, all are. Exception tables and debug information
refer to everything but call nothing, so they are not followed.

The search ends at a function outside the objects, in a shared library or a known archive. The table of
`known_libraries` has its effect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from heapwright.elf.image import LOCAL, WEAK, Image, Symbol
from heapwright.link.bitcode import Bitcode
from heapwright.link.closure import Closure
from heapwright.link.known_libraries import known_library, libraries
from heapwright.link.linker_command import LinkLine

_WHOLE = -1  # stands for a section: an object of intermediate code


@dataclass(frozen=True)
class ReachableCall:
    """A function outside the objects that can be reached.

    Attributes:
        symbol: its name.
        library: where it is defined: a shared library's soname, an archive's member; empty: nowhere.
        origin: the object that refers to it.
        via: the objects on the way there, first that of the start.
        weak: it may be missing, or intermediate code may define it.
    """

    symbol: str
    library: str
    origin: str
    via: tuple[str, ...]
    weak: bool


def reachable_calls(line: LinkLine, closure: Closure) -> list[ReachableCall]:
    """Everything outside that the objects of a link can reach, each symbol once, nearest first."""
    return list(_Walk(line, closure).run())


class _Walk:
    def __init__(self, line: LinkLine, closure: Closure) -> None:
        self.line = line
        self.closure = closure
        self.queue: deque[tuple[Image, int]] = deque()
        self.before: dict[tuple[int, int], tuple[Image, int] | None] = {}
        self.named: dict[int, dict[str, list[int]]] = {}

    def run(self) -> Iterator[ReachableCall]:
        """Breadth first, so that the ways found are short."""
        for image, section in self._roots():
            self._visit(image, section, None)
        seen: set[str] = set()
        while self.queue:
            image, section = self.queue.popleft()
            for symbol in self._references(image, section):
                target = self._definition(image, symbol)
                if target:
                    self._visit(*target, (image, section))
                elif symbol.name and symbol.name not in seen and not symbol.name.startswith("__start_"):
                    seen.add(symbol.name)
                    yield self._call(image, section, symbol)
                elif symbol.name.startswith(("__start_", "__stop_")):
                    self._visit_named(symbol.name.split("_", 3)[-1], (image, section))

    def _roots(self) -> Iterator[tuple[Image, int]]:
        closure = self.closure
        start = closure.definitions.get(self.line.entry) or closure.definitions.get("main")
        for image in closure.objects:
            if known_library(image.name):
                continue
            yield from ((image, section) for section in sorted(image.roots))
            if isinstance(image, Bitcode) or image.intermediate:
                yield image, _WHOLE
            elif start is None or self.line.exported:
                yield from ((image, s.section) for s in image.defined.values() if not s.hidden or start is None)
        for name in (self.line.entry, "main"):
            owner = closure.definitions.get(name)
            if owner:
                yield owner, owner.defined[name].section
        for library in closure.libraries.values():  # what libraries call back
            for symbol in library.imports:
                owner = closure.definitions.get(symbol.name)
                if owner and not known_library(owner.name):
                    yield owner, owner.defined[symbol.name].section

    def _visit(self, image: Image, section: int, origin: tuple[Image, int] | None) -> None:
        key = (id(image), section)
        if key not in self.before:
            self.before[key] = origin
            self.queue.append((image, section))

    def _visit_named(self, name: str, origin: tuple[Image, int]) -> None:
        """Sections whose beginning and end the linker gives names to; their contents are found that way."""
        for image in self.closure.objects:
            for number, section in enumerate(image.sections):
                if section == name:
                    self._visit(image, number, origin)

    def _references(self, image: Image, section: int) -> list[Symbol]:
        if isinstance(image, Bitcode):
            names = {n for one in libraries() for n in one.exact_names() if n} | self.closure.definitions.keys()
            return image.mentions(sorted(names))
        if section == _WHOLE:
            return [s for s in image.symbols if not s.defined and s.name]
        return image.references(section)

    def _definition(self, image: Image, symbol: Symbol) -> tuple[Image, int] | None:
        """Where a symbol leads within the objects; None if it leads outside."""
        if symbol.defined and (symbol.binding == LOCAL or not symbol.name):
            return image, symbol.section
        owner = self.closure.definitions.get(symbol.name)
        if owner is None or known_library(owner.name):
            return None
        return owner, _WHOLE if isinstance(owner, Bitcode) or owner.intermediate else owner.defined[symbol.name].section

    def _call(self, image: Image, section: int, symbol: Symbol) -> ReachableCall:
        owner = self.closure.definitions.get(symbol.name)
        library = self.closure.exports.get(symbol.name)
        where = owner.name if owner else (library.soname or Path(library.name).name) if library else ""
        way: list[str] = []
        step: tuple[Image, int] | None = (image, section)
        while step:
            if not way or way[-1] != step[0].name:
                way.append(step[0].name)
            step = self.before[(id(step[0]), step[1])]
        intermediate = (o for o in self.closure.objects if isinstance(o, Bitcode))
        weak = symbol.binding == WEAK or any(o.mentions([symbol.name]) for o in intermediate)
        return ReachableCall(symbol.name, where, image.name, tuple(reversed(way)), weak)
