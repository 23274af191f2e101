"""Renders the runs of `measure` as one self-contained HTML page: the figures, and memory over time."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heapwright.measure.meter import Run
from heapwright.metrics import METRICS, NUMERIC, show_bytes, show_seconds
from heapwright.report.drawing import ALLOCATORS, COLOUR, figure_of, picture
from heapwright.report.page import render_page, save_page
from heapwright.terminal_text import counted, visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LINES = {
    "rss": ("resident memory", COLOUR["memory"]),
    "heap": ("mapped heap", ALLOCATORS[1]),
    "huge": ("in huge pages", ALLOCATORS[2]),
}


def write_page(runs: Mapping[str, Sequence[Run]], commands: Mapping[str, Sequence[str]], out: Path) -> None:
    """Write the page to a file, completely or not at all. It shows the first run of each input.

    Args:
        runs: the runs of each input.
        commands: the command of each input.
        out: the file.

    Raises:
        HeapwrightError: the file cannot be written.
    """
    save_page(render({name: found[0] for name, found in runs.items()}, commands), out)


def render(runs: Mapping[str, Run], commands: Mapping[str, Sequence[str]]) -> str:
    """Return the page as text.

    Args:
        runs: a run of each input.
        commands: the command of each input.
    """
    from markupsafe import Markup

    parts = [
        {
            "name": visible(name) if len(runs) > 1 else "",
            "command": visible(shlex.join(commands[name])),
            # drawing.picture made the picture and escaped all text, so it is marked as safe.
            "svg": Markup(_memory_over_time(run, f"run{number}")),
            "rows": [
                (METRICS[key].label, METRICS[key].show(run.metrics[key]))
                for key in NUMERIC
                if run.metrics.get(key) is not None
            ],
            "warnings": [visible(warning) for warning in run.warnings],
        }
        for number, (name, run) in enumerate(runs.items())
    ]
    return render_page("measurement.html.j2", parts=parts)


def _memory_over_time(run: Run, key: str) -> str:
    series = run.series or {}
    if len(series.get("t", [])) < 2:
        return ""
    lines = _lines_of(series)
    text = " ".join(f"{label}: at most {show_bytes(max(series[name]))}." for name, (label, _) in lines.items())
    text += f" {counted(len(series['t']), 'point')}, each with the largest values since the point before."
    return picture(lambda narrow: _draw(series, narrow), "measurement", key, "Memory over time", text)


def _lines_of(series: Mapping[str, Sequence[float]]) -> dict[str, tuple[str, str]]:
    """Return the lines to draw; huge pages only if there were any."""
    return {name: line for name, line in _LINES.items() if name != "huge" or any(series.get(name, ()))}


def _draw(series: Mapping[str, Sequence[float]], narrow: bool) -> tuple[Figure, dict[str, str]]:
    figure, (axes,) = figure_of(narrow, 3.4)
    lines = _lines_of(series)
    top = max(max(series[name]) for name in lines)
    scale, unit = (2**30, "GiB") if top >= 2**30 else (2**20, "MiB") if top >= 2**20 else (2**10, "KiB")
    times, per = series["t"], 1.0
    since = "seconds"
    for limit, length, name in ((7200, 3600.0, "hours"), (180, 60.0, "minutes")):
        if times[-1] > limit:
            per, since = length, name
            break
    for name, (label, colour) in lines.items():
        axes.plot([t / per for t in times], [v / scale for v in series[name]], color=colour, linewidth=1.6, label=label)
    axes.set_title(unit, loc="left")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"{since} since the start; the run took at least {show_seconds(times[-1])}")
    figure.legend(loc="outside upper left", ncols=1 if narrow else len(lines))
    return figure, {}
