"""Prints a diagnosis for a terminal: the finding, a table of resident memory, and malloc's arenas or size classes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from heapwright.allocators.runtimes import runtime_named
from heapwright.diagnose.diagnosis import Diagnosis
from heapwright.metrics import show_bytes
from heapwright.terminal_text import counted, print_table, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_MAX_ROWS = 8  # of arenas and size classes
_SHORTEST_NAME = 18  # columns of the name of an arena or a process on a narrow terminal
# part of Division → its name for people
PARTS = {
    "live": "heap: live blocks",
    "mapped": "heap: live blocks, mapped one by one",
    "free_cached": "heap: free, in thread caches",
    "free_inside": "heap: free, on pages with live blocks",
    "free_pages": "heap: free whole pages",
    "runtime_live": "{runtime}: live",
    "runtime_free": "{runtime}: free",
    "other": "{other}",
    "stacks": "main stack",
    "program": "program and libraries",
    "files": "files and shared memory",
}


def rows_of_parts(found: Diagnosis) -> list[tuple[str, int]]:
    """Return the known parts of resident memory with their names, in the order of the table."""
    known = found.figures.known
    rows = []
    for key, name in part_names(found).items():
        value = getattr(found.division, key)
        if key.startswith("runtime") and not found.figures.runtime:
            continue
        if key in ("live", "free_inside", "free_pages") and not known:
            continue
        if key in ("mapped", "free_cached") and not value:
            continue
        rows.append((name, value))
    return rows


def part_names(found: Diagnosis) -> dict[str, str]:
    """Return the names of the parts of resident memory, with the runtimes of these processes."""
    owner = runtime_named(found.figures.managed)
    other = f"{owner.heap}, and other private memory" if owner else "other private memory"
    return {key: name.format(runtime=found.figures.runtime or "runtime", other=other) for key, name in PARTS.items()}


def unread_row(found: Diagnosis) -> str:
    """Return the name of the row for mallocs that cannot be read; empty if there are none."""
    if not found.figures.known:
        return "heap: live and free"
    return f"heap of {found.figures.unread_mallocs}: live and free" if found.figures.unread else ""


def show_diagnosis(found: Diagnosis, label: str, console: Console, each: Sequence[Diagnosis] = ()) -> None:
    """Print a diagnosis.

    Args:
        found: of one process, or of several as a whole.
        label: how to call the processes.
        console: where to print.
        each: the single processes if there are several.
    """
    console.print(visible(found.advice.sentence + "."), style="bold", soft_wrap=True)
    for step in found.advice.steps[1:]:
        console.print(visible(f"Then: {step}."), soft_wrap=True)
    console.print()
    console.print(visible(head(found, label)), soft_wrap=True)
    console.print(_memory_table(found, bool(each)))
    if each:
        _show_processes(each, console)
        return
    heap = found.json["heap"] or {}
    if heap.get("arenas"):
        _show_arenas(heap["arenas"], console)
    elif heap.get("classes"):
        _show_classes(heap["classes"], console)
    if not found.json["consistent"]:
        console.print("The heap changed while it was read: its figures are approximate.", style="yellow")


def head(found: Diagnosis, label: str) -> str:
    """Return a line that names the processes, their threads and their malloc."""
    if "pids" in found.json:
        count = counted(len(found.json["pids"]), "process", "processes")
        mallocs = "mallocs" if len(found.json["allocators"]) > 1 else "malloc"
        return f"{label}: {count}, shared pages counted once; {mallocs}: {found.figures.allocator}"
    command = shlex.join(word for word in found.json["command"] or [] if word) or found.json["executable"] or "?"
    command = command if len(command) <= 60 else command[:59] + "…"
    threads = counted(found.json["threads"], "thread")
    return f"{label}: {command}; {threads}; malloc: {found.figures.allocator}"


def process_name(found: Diagnosis) -> str:
    """Return '12 nginx': the id, and the program without its folder, or the title that it wrote over its words."""
    program = re.sub(r"^\S*/", "", (found.json["command"] or ["?"])[0])
    return visible(f"{found.json['pid']} {program}")


def _memory_table(found: Diagnosis, several: bool) -> Table:
    from rich.table import Table

    table = Table("resident memory", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for _ in range(2):
        table.add_column(justify="right", no_wrap=True)
    whole = found.division.total
    for name, value in rows_of_parts(found):
        table.add_row(f"  {name}", show_bytes(value), f"{100 * value / whole:.1f}%" if whole else "")
    if unread := unread_row(found):
        table.add_row(f"  {unread}", "n/a", "")
    table.add_row("  sum", show_bytes(whole), "")
    if not several:
        for name, key in (("in huge pages", "huge_bytes"), ("swapped out", "swap_bytes")):
            value = found.json[key]
            table.add_row(f"  {name}", "n/a" if value is None else show_bytes(value), "")
    return table


def arena_rows(arenas: Sequence[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Return the arenas with the most memory first, named 'main' and 'arena 3'."""
    named = [("main" if arena["index"] == 0 else f"arena {arena['index']}", arena) for arena in arenas]
    return sorted(named, key=lambda row: -(row[1].get("resident_bytes") or 0))


def _show_arenas(arenas: Sequence[dict[str, Any]], console: Console) -> None:
    table: list[list[str]] = []
    rows = arena_rows(arenas)
    for name, arena in rows[:_MAX_ROWS]:
        cached = arena.get("thread_cache_bytes") or 0  # in live_bytes, as in malloc_info
        cells = [_bytes(arena, "resident_bytes")]
        cells += [show_bytes(arena["live_bytes"] - cached), show_bytes(arena["free_bytes"] + cached)]
        cells += [_bytes(arena, key) for key in ("free_pages_bytes", "trimmable_bytes")]
        threads = arena.get("threads")
        table.append([f"  {name}", "n/a" if threads is None else str(threads), *cells])
    if len(rows) > _MAX_ROWS:
        rest = sum(arena.get("resident_bytes") or 0 for _, arena in rows[_MAX_ROWS:])
        table.append([f"  {len(rows) - _MAX_ROWS} more", "", show_bytes(rest)])
    headings = ("glibc's arenas", "threads", "resident", "live", "free", "free pages", "trimmable")
    print_table(console, headings, table, shortest=_SHORTEST_NAME)


def _show_classes(classes: Sequence[dict[str, Any]], console: Console) -> None:
    table: list[list[str]] = []
    rows = sorted(classes, key=lambda c: -c["free_bytes"])
    for one in rows[:_MAX_ROWS]:
        counts = (f"{one['live_blocks']:,}", f"{one['free_blocks']:,}")
        table.append([f"  {one['size']:,} B", *counts, _bytes(one, "live_bytes"), _bytes(one, "free_bytes")])
    rest = rows[_MAX_ROWS:]
    if rest:
        sums = {
            key: sum(one[key] for one in rest) for key in ("live_blocks", "free_blocks", "live_bytes", "free_bytes")
        }
        counts = (f"{sums['live_blocks']:,}", f"{sums['free_blocks']:,}")
        table.append([f"  {len(rest)} more", *counts, _bytes(sums, "live_bytes"), _bytes(sums, "free_bytes")])
    print_table(console, ("size classes", "live blocks", "free blocks", "live", "free"), table)


def _show_processes(each: Sequence[Diagnosis], console: Console) -> None:
    table: list[list[str]] = []
    for one in sorted(each, key=lambda one: -one.json["resident_bytes"]):
        free = show_bytes(one.figures.free) if one.figures.known else "n/a"
        pss = one.json["pss_bytes"]
        cells = (show_bytes(one.json["resident_bytes"]), "n/a" if pss is None else show_bytes(pss), free)
        table.append([f"  {process_name(one)}", *cells, one.figures.allocator])
    headings = ("processes", "resident", "shared counted once", "free in malloc", "malloc")
    print_table(console, headings, table, shortest=_SHORTEST_NAME)


def _bytes(found: dict[str, Any], key: str) -> str:
    value = found.get(key)
    return "n/a" if value is None else show_bytes(value)
