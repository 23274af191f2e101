"""Renders a diagnosis as one self-contained HTML page, in the style of the report and with pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heapwright.diagnose.diagnosis import Diagnosis
from heapwright.metrics import show_bytes
from heapwright.report.diagnosis import PARTS, arena_rows, head, part_names, process_name, rows_of_parts, unread_row
from heapwright.report.drawing import ALLOCATORS, COLOUR, DOMINATED, MUTED, figure_of, picture
from heapwright.report.page import render_page, save_page
from heapwright.terminal_text import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_BARS = 12
_MAX_LABEL = 18  # characters beside a bar
# part → colour: live memory in one tone, free memory in signal colours, the rest muted
_COLOURS = {
    "live": COLOUR["memory"],
    "mapped": ALLOCATORS[5],
    "free_cached": ALLOCATORS[0],
    "free_inside": COLOUR["time"],
    "free_pages": ALLOCATORS[2],
    "runtime_live": ALLOCATORS[3],
    "runtime_free": ALLOCATORS[4],
    "other": COLOUR["balanced"],
    "stacks": ALLOCATORS[1],
    "program": MUTED,
    "files": DOMINATED,
}
_Bars = list[tuple[str, list[tuple[str, int]]]]  # a bar's name, and its parts


def write_page(found: Diagnosis, each: Sequence[Diagnosis], label: str, out: Path) -> None:
    """Write the page to a file, completely or not at all.

    Args:
        found: the diagnosis of one process, or of several as a whole.
        each: the single processes if there are several.
        label: how to call the processes.
        out: the file.

    Raises:
        HeapwrightError: the file cannot be written.
    """
    save_page(render(found, each, label), out)


def render(found: Diagnosis, each: Sequence[Diagnosis], label: str) -> str:
    """Return the page as text.

    Args:
        found: the diagnosis of one process, or of several as a whole.
        each: the single processes if there are several.
        label: how to call the processes.
    """
    from markupsafe import Markup

    names = part_names(found)
    whole: _Bars = [("", [(key, getattr(found.division, key)) for key in PARTS])]
    heap = found.json.get("heap") or {}
    arenas: _Bars = [(name, _of_arena(arena)) for name, arena in arena_rows(heap.get("arenas") or [])]
    processes: _Bars = [
        (_label(process_name(one)), [(key, getattr(one.division, key)) for key in PARTS])
        for one in sorted(each, key=lambda one: -one.division.total)
    ]
    # drawing.picture made these pictures and escaped all text from outside, so they are marked as
    # safe.
    pictures = [
        (title, Markup(_stacked(bars[:_MAX_BARS], names, key, title)), _left_out(bars, what))
        for key, title, what, bars in (
            ("whole", "Resident memory", "", whole),
            ("processes", "Resident memory by process, shared pages in each", "processes", processes),
            ("arenas", "Memory by arena of glibc", "arenas", arenas if len(arenas) > 1 else []),
        )
        if bars and any(value for _, parts in bars for _, value in parts)
    ]
    total = found.division.total
    return render_page(
        "diagnosis.html.j2",
        label=visible(label),
        head=visible(head(found, label)),
        kind="trade" if found.advice.kind == "free" else "",
        sentence=visible(found.advice.sentence),
        steps=[visible(step) for step in found.advice.steps],
        rows=[
            (name, show_bytes(value), f"{100 * value / total:.1f}%" if total else "")
            for name, value in rows_of_parts(found)
        ],
        total=show_bytes(total),
        unread=unread_row(found),
        pictures=pictures,
    )


def _left_out(bars: _Bars, what: str) -> str:
    """Return a sentence on the bars that the picture does not have, or empty."""
    rest = bars[_MAX_BARS:]
    if not rest:
        return ""
    size = show_bytes(sum(value for _, parts in rest for _, value in parts))
    return f"The picture shows the largest {_MAX_BARS} of {len(bars)} {what}; the others have {size} together."


def _label(name: str) -> str:
    """Shorten a name for the side of a picture."""
    return name if len(name) <= _MAX_LABEL else name[: _MAX_LABEL - 1] + "…"


def _of_arena(arena: dict[str, Any]) -> list[tuple[str, int]]:
    """Return the memory of an arena by part: live, free in thread caches, beside live blocks, and in whole pages."""
    pages = arena.get("free_pages_bytes") or 0
    resident = arena.get("resident_bytes") or 0
    live = min(arena["live_bytes"], max(resident - pages, 0))  # with the caches
    cached = min(arena.get("thread_cache_bytes") or 0, live)
    inside = max(resident - live - pages, 0)
    return [("live", live - cached), ("free_cached", cached), ("free_inside", inside), ("free_pages", pages)]


def _stacked(bars: _Bars, names: dict[str, str], key: str, title: str) -> str:
    """Draw stacked bars."""
    text = " ".join(
        f"{name or title}: " + ", ".join(f"{names[part]} {show_bytes(value)}" for part, value in parts if value) + "."
        for name, parts in bars
    )
    return picture(lambda narrow: _draw(bars, names, narrow), "diagnosis", key, title, text)


def _draw(bars: _Bars, names: dict[str, str], narrow: bool) -> tuple[Figure, dict[str, str]]:
    used = [part for part in _COLOURS if any(dict(parts).get(part) for _, parts in bars)]
    columns = 1 if narrow else 3
    legend = (len(used) + columns - 1) // columns * 0.24
    figure, (axes,) = figure_of(narrow, 0.9 + 0.36 * len(bars) + legend)
    top = max(sum(value for _, value in parts) for _, parts in bars)
    scale, unit = (2**30, "GiB") if top >= 2**30 else (2**20, "MiB") if top >= 2**20 else (2**10, "KiB")
    left = [0.0] * len(bars)
    tips: dict[str, str] = {}
    for part in used:
        for i, (name, parts) in enumerate(bars):
            value = dict(parts).get(part, 0)
            if not value:
                continue
            (bar,) = axes.barh(i, value / scale, left=left[i], height=0.66, color=_COLOURS[part])
            gid = f"{part}{i}"
            bar.set_gid(gid)
            tips[gid] = f"{name} {names[part]}: {show_bytes(value)}".strip()
            left[i] += value / scale
    from matplotlib.patches import Patch

    axes.set_yticks(range(len(bars)), [name for name, _ in bars])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, max(left) * 1.02)
    axes.set_xlabel(unit)
    handles = [Patch(color=_COLOURS[part], label=names[part]) for part in used]
    figure.legend(handles=handles, loc="outside upper left", ncols=columns)
    return figure, tips
