"""Defines memory divided by kind of mapping, as the native meter reads it."""

from __future__ import annotations

import msgspec

_MIN_TREE_SHARE, _MIN_OTHER_SHARE = 0.5, 0.1  # shares of a tree's memory


class MemoryParts(msgspec.Struct):
    """Resident memory by kind of mapping (native/meter/parts.h), in bytes.

    Attributes:
        program: the executable and its libraries; files: other files, and memory that processes share.
        stacks: main stacks.
        heap: the C library's heap and its arenas.
        other: all other anonymous memory: blocks that malloc maps by themselves, other allocators, threads' stacks.
    """

    program: float
    files: float
    stacks: float
    heap: float
    other: float

    @property
    def total(self) -> float:
        """The sum of all parts, in bytes."""
        return self.program + self.files + self.stacks + self.heap + self.other


class Breakdown(msgspec.Struct):
    """The parts of a process tree's memory at the meter's largest reading of proportional memory.

    Attributes:
        rss, pss: by resident and by proportional set size, summed over processes.
        busiest: the path of the program whose process had the most proportional memory.
        busiest_pss: how much that was, in bytes.
        busiest_files: the paths of that program and of its libraries.
    """

    rss: MemoryParts
    pss: MemoryParts
    processes: int
    busiest: str
    busiest_pss: float
    busiest_files: list[str] = []

    @property
    def main_program(self) -> str:
        """The path of the program of the process that had more than half of the memory; empty if none had."""
        return self.busiest if self.busiest_pss > _MIN_TREE_SHARE * self.pss.total else ""

    @property
    def files_of_other_memory(self) -> list[str]:
        """The paths of the program and libraries whose own mallocs may hold much memory outside of libc's heap.

        None if little memory is outside of it: then no malloc of theirs matters.
        """
        return self.busiest_files if self.pss.other > _MIN_OTHER_SHARE * self.pss.total else []
