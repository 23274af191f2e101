"""Draws memory over time for the report: of the default and of the picks, from their series."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from heapwright.metrics import show_bytes, show_seconds
from heapwright.report.drawing import COLOUR, MARKER, figure_of, picture
from heapwright.report.terminal import ordered_picks
from heapwright.study.view import Series, StudyView

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def memory_svg(view: StudyView, anchor: str) -> str:
    """Draw resident memory, mapped heap and huge pages over time, for the default and the picks."""
    runs = [("default", "default", view.series["default"])] if "default" in view.series else []
    runs += [
        (f"{label} pick", p.name, view.series[p.name]) for label, p in ordered_picks(view) if p.name in view.series
    ]
    runs = [(label, name, _until_exit(s)) for label, name, s in runs if s.t]
    if not runs:
        return ""
    text = " ".join(
        f"{label}: at most {show_bytes(max(s.rss))} resident and {show_bytes(max(s.heap))} of mapped heap,"
        + (f" at most {show_bytes(max(s.huge))} in huge pages," if any(s.huge) else "")
        + f" ended after {show_seconds(s.t[-1])}."
        for label, _, s in runs
    )
    return picture(lambda narrow: _memory(runs, narrow), anchor, "memory", "Memory over time", text)


def _until_exit(series: Series) -> Series:
    """Return a series in which readings of an exiting process, whose memory is gone, keep the values before it."""
    count = len(series.rss)
    while count > 1 and not series.rss[count - 1]:
        count -= 1

    def kept(values: list[float]) -> list[float]:
        return [*values[:count], *(values[count - 1 : count] * (len(values) - count))]

    return replace(series, rss=kept(series.rss), heap=kept(series.heap), huge=kept(series.huge))


def _memory(runs: list[tuple[str, str, Series]], narrow: bool) -> tuple[Figure, dict[str, str]]:
    columns = {"resident memory": "rss", "mapped heap": "heap"}
    if any(any(s.huge) for _, _, s in runs):
        columns["in huge pages"] = "huge"
    count = len(columns)
    height = 2.7 * count if narrow else 3.5
    figure, panels = figure_of(narrow, height, columns=1 if narrow else count, rows=count if narrow else 1)
    for i, (axes, (title, column)) in enumerate(zip(panels, columns.items(), strict=True)):
        lines = [(label, name, s.t, values) for label, name, s in runs if (values := getattr(s, column))]
        top = max(max(values) for *_, values in lines)
        scale, unit = (2**30, "GiB") if top >= 2**30 else (2**20, "MiB") if top >= 2**20 else (2**10, "KiB")
        for label, name, t, values in lines:
            scaled = [v / scale for v in values]
            axes.plot(
                t,
                scaled,
                color=COLOUR[name],
                marker=MARKER[name],
                markevery=[len(t) - 1],
                markersize=6,
                linewidth=1.6,
                label=None if i else label,
            )
        axes.set_title(f"{title}, {unit}", loc="left")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("seconds since the start")
    figure.legend(loc="outside upper left", ncols=1 if narrow else len(runs))
    return figure, {}
