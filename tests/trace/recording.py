"""Records programs with the command and reads their events back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heapwright.allocators.huge_pages import thp_state
from heapwright.trace.pack import native_program
from tests.command_server import SERVER, at_start

HEAPWRIGHT = Path(sys.executable).parent / "heapwright"
# The programs' own blocks have these sizes (tests/programs/record_cases.c); the C library's and the
# loader's have not.
TAGGED = range(40000, 50000)
MAKES = ("malloc", "calloc", "aligned")


@dataclass(frozen=True)
class Event:
    """A line of `heapwright-trace dump`."""

    time: int
    thread: int
    kind: str
    values: tuple[int, ...]


@dataclass
class Trace:
    """A process as recorded: its events, and what `heapwright record --json` said of it."""

    events: list[Event]
    told: dict[str, Any] = field(default_factory=dict)

    def calls(self, thread: bool = False) -> list[str]:
        """Returns the events of tagged objects, by size: 'malloc 40001', 'free 40001'.

        Args:
            thread: add the numbers of threads, and their ends.
        """
        sizes: dict[int, int] = {}
        lines = []
        for event in self.events:
            line = ""
            if event.kind in MAKES and event.values[1] in TAGGED:
                sizes[event.values[0]] = event.values[1]
                line = " ".join([event.kind, *map(str, event.values[1:])])
            elif event.kind == "realloc" and event.values[0] in sizes:
                line = f"realloc {sizes[event.values[0]]} {event.values[1]}"
                sizes[event.values[0]] = event.values[1]
            elif event.kind in ("free", "free_sized", "usable_size") and event.values[0] in sizes:
                line = f"{event.kind} {sizes[event.values[0]]}"
            elif event.kind in ("thread_start", "thread_end") and thread:
                line = event.kind
            if line:
                lines.append(f"{event.thread}: {line}" if thread else line)
        return lines

    def count(self, *kinds: str) -> int:
        """Events of these kinds."""
        return sum(event.kind in kinds for event in self.events)


def dump(trace: Path) -> list[Event]:
    """The events of a trace, raw or packed."""
    done = subprocess.run(
        [native_program("heapwright-trace"), "dump", trace], capture_output=True, text=True, check=True
    )
    lines = (line.split() for line in done.stdout.splitlines())
    return [Event(int(w[0]), int(w[1]), w[2], tuple(map(int, w[3:]))) for w in lines]


def count_events(trace: Path) -> int:
    """The number of events of a trace, raw or packed; much quicker than `dump` if there are many."""
    done = subprocess.run([native_program("heapwright-trace"), "info", trace], capture_output=True, check=True)
    return int(json.loads(done.stdout)["events"])


def heapwright_record(
    *words: str | Path,
    env: Mapping[str, str] | None = None,
    folder: Path,
    stdin: bytes = b"",
) -> subprocess.CompletedProcess[bytes]:
    """`heapwright record` with these words, in a folder; a fork if the variables allow it."""
    line, whole = [str(HEAPWRIGHT), "record", *map(str, words)], {**os.environ, **(env or {})}
    if at_start(env or {}):
        return subprocess.run(line, cwd=folder, env=whole, input=stdin, capture_output=True)
    return subprocess.CompletedProcess(line, *SERVER.run(line, folder, whole, stdin))


def record_told(
    folder: Path,
    *command: str | Path,
    options: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Records into t.hwt; returns the JSON of the processes, the busiest first."""
    told = folder / "told.json"
    done = heapwright_record("-o", "t.hwt", "--force", "--json", told, *options, "--", *command, env=env, folder=folder)
    assert done.returncode == 0, done.stderr.decode()
    processes: list[dict[str, Any]] = json.loads(told.read_text())["processes"]
    return processes


def recorded(
    folder: Path,
    *command: str | Path,
    options: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
) -> list[Trace]:
    """The processes of a command, the busiest first."""
    told = record_told(folder, *command, options=options, env=env)
    return [Trace(dump(folder / process["trace"]), process) for process in told]


def ends_of_huge_pages() -> int:
    """Returns how many more bytes a large block can make resident: a huge page at each end, if all have them."""
    return 2 << 21 if thp_state() == "always" else 0
