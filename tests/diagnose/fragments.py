"""Runs tests/programs/fragments.c, and asks it and heapwright-diagnose for the same figures."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heapwright.trace.pack import native_program


@dataclass(frozen=True)
class Info:
    """What malloc_info says of all arenas: bytes, and the number of blocks with a mapping of their own."""

    system: int
    free: int
    mapped_blocks: int
    mapped: int
    arenas: int


class Fragments:
    """The program while it runs and waits for requests."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, what: str) -> str:
        """Sends a request and returns the first line of the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return self._line()

    def info(self) -> Info:
        """Asks for malloc_info."""
        text = self.ask("info")
        while "</malloc>" not in text:
            text += self._line()
        sums = text[text.rindex("</heap>") :]

        def total(kind: str) -> tuple[int, int]:
            found = re.search(rf'<total type="{kind}" count="(\d+)" size="(\d+)"', sums)
            return (int(found[1]), int(found[2])) if found else (0, 0)

        system = re.search(r'<system type="current" size="(\d+)"', sums)
        assert system
        free = total("fast")[1] + total("rest")[1]
        return Info(int(system[1]), free, *total("mmap"), text.count("<heap nr"))

    def diagnose(self) -> dict[str, Any]:
        """Runs heapwright-diagnose on the program."""
        return diagnose(int(self.ask("pid")))


def diagnose(pid: int) -> dict[str, Any]:
    """Runs heapwright-diagnose; returns its JSON."""
    done = subprocess.run(
        [native_program("heapwright-diagnose"), str(pid)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextmanager
def running(*command: str | Path) -> Iterator[Fragments]:
    """Runs the program until the end of the block."""
    words: Sequence[str | Path] = command
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Fragments(process)
        finally:
            process.kill()


def check(program: Fragments) -> dict[str, Any]:
    """Compares the two accounts of the heap; returns that of heapwright-diagnose."""
    heap: dict[str, Any] = program.diagnose()["glibc"]
    info = program.info()
    assert heap["consistent"]
    assert len(heap["arenas"]) == info.arenas
    assert abs(heap["free_bytes"] - info.free) <= 0.001 * info.free
    assert abs(heap["live_bytes"] - (info.system - info.free + info.mapped)) <= 0.001 * info.system
    assert (heap["mapped_blocks"], heap["mapped_bytes"]) == (info.mapped_blocks, info.mapped)
    # The blocks have 300,000 touched bytes, but the one of the pointers, which is mostly untouched.
    assert 0.5 * 300_000 * info.mapped_blocks <= heap["mapped_resident_bytes"] <= info.mapped
    for arena in heap["arenas"]:
        assert arena["free_pages_bytes"] <= arena["resident_bytes"] <= arena["system_bytes"] + 65536
        assert arena["live_bytes"] + arena["free_bytes"] == arena["system_bytes"]
        assert arena["fast_bytes"] + arena["top_bytes"] + arena["largest_free_bytes"] <= arena["free_bytes"]
        assert arena["trimmable_bytes"] <= arena["free_pages_bytes"] <= arena["free_bytes"]
    return heap
