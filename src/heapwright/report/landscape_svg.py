"""Draws a landscape for the report: a curve; for two settings a heat map and a curve along each setting.

The heat map has few shades, and each shade is one path of all its cells, so that a map with thousands of points stays
small. `landscape --plot` draws a picture with all shades. The curves are profiles: at each value of one setting they
show the best over the other setting.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from heapwright.metrics import METRICS
from heapwright.report.drawing import BAD, COLOUR, FRONT, GOOD, TEXT, figure_of, picture
from heapwright.report.landscape import draw_scale, edges, fresh_text, point_text, shape_text
from heapwright.study.landscape_result import LandscapePoint, LandscapeResult
from heapwright.terminal_text import counted
from heapwright.units import percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from heapwright.study.view import StudyView


def landscape_svg(view: StudyView, anchor: str) -> str:
    """Draw the curves of a landscape; empty for other studies."""
    landscape = view.landscape
    if landscape is None or landscape.best is None or landscape.best.ratio is None:
        return ""
    label = METRICS[landscape.metric].label
    point = point_text(landscape, landscape.best)
    best = f"Lowest: {point}, {percent(landscape.best.ratio)}, not shown to be better."
    if landscape.gains and landscape.gain is not None:
        best = f"Best: {point}, {fresh_text(landscape.gain)}."
    text = f"{label}: change from the default in per cent. {best} {shape_text(landscape)}."
    return picture(lambda narrow: _draw(landscape, narrow), anchor, "landscape", "Landscape", text)


def heat_svg(view: StudyView, anchor: str) -> str:
    """Draw the heat map of a landscape with two settings; empty for other studies."""
    landscape = view.landscape
    if landscape is None or len(landscape.axes) != 2 or not any(p.ratio for p in landscape.points):
        return ""
    ratios = [p.ratio for p in landscape.points if p.ratio is not None]
    failed = sum(bool(p.failure) for p in landscape.points)
    point = counted(failed, "point")
    text = (
        f"{METRICS[landscape.metric].label} over {landscape.axes[0].key} and {landscape.axes[1].key}, from"
        f" {percent(min(ratios))} to {percent(max(ratios))} compared with the default"
        f"{f'; {point} failed' if failed else ''}. {shape_text(landscape)}."
    )
    return picture(lambda narrow: _heat(landscape, narrow), anchor, "heat", "Heat map", text)


def _heat(landscape: LandscapeResult, narrow: bool) -> tuple[Figure, dict[str, str]]:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    first, second = landscape.axes
    figure, (axes,) = figure_of(narrow, 4.6 if narrow else 5.4)
    xs, ys = (edges(a, np.array([a.at(v) for v in a.values])) for a in (first, second))
    draw_scale(axes, "x", first, 5 if narrow else 12)
    draw_scale(axes, "y", second, 8)
    axes.set_xlim(xs[0], xs[-1])
    axes.set_ylim(ys[0], ys[-1])
    axes.grid(visible=False)
    groups: dict[int, list[Path]] = {}
    limits = _shades([p.ratio - 1 for p in landscape.points if p.ratio is not None])
    for number, point in enumerate(landscape.points):
        if point.ratio is None:
            continue
        i, j = divmod(number, len(second.values))
        level = _level(point.ratio - 1, limits)
        x, y = (xs[i], xs[i + 1]), (ys[j], ys[j + 1])
        corners = [(x[0], y[0]), (x[1], y[0]), (x[1], y[1]), (x[0], y[1]), (x[0], y[0])]
        groups.setdefault(level, []).append(Path(corners, closed=True))
    for level, cells in sorted(groups.items()):
        colour, shade = GOOD if level < 0 else BAD, 0.08 + 0.8 * abs(level) / len(limits) if level else 0.0
        axes.add_patch(
            PathPatch(
                Path.make_compound_path(*cells), facecolor=colour, alpha=shade, linewidth=0, label=_span(level, limits)
            )
        )
    best = landscape.best
    if best is not None and best.ratio is not None:
        at = [first.at(best.values[0])], [second.at(best.values[1])]
        axes.plot(*at, "*", color=COLOUR["memory"], markersize=12, ls="none", label=_star(landscape))
    failed = [p.values for p in landscape.points if p.failure]
    if failed:
        points = [first.at(a) for a, _ in failed], [second.at(b) for _, b in failed]
        axes.plot(*points, "x", color=TEXT, markersize=4, ls="none", label="failed")
    axes.set_title("% change" + ("" if narrow else " against the default (green is better)"), loc="left")
    figure.legend(loc="outside upper left", ncols=2 if narrow else 5)
    return figure, {}


def _star(landscape: LandscapeResult) -> str:
    """Return the legend of the star."""
    return "best" if landscape.gains else "lowest, not shown to be better"


def _shades(changes: list[float]) -> list[float]:
    """Return the limits of the shades on either side of zero, as absolute changes.

    The last shade has no limit. The limits are 1/16, 1/4, 1/2 and 3/4 of the 95th percentile of the absolute changes.
    """
    widest = max(float(np.quantile(np.abs(changes), 0.95)), 0.001)
    return [widest * k / 4 for k in (0.25, 1, 2, 3)]


def _level(change: float, limits: list[float]) -> int:
    """Return the shade of a change: 0 is about no change, −1 … −4 is better, 1 … 4 is worse."""
    level = sum(abs(change) > limit for limit in limits)
    return -level if change < 0 else level


def _span(level: int, limits: list[float]) -> str:
    """Return the range of a shade in per cent: '−1.0 … −2.0', '+3.0 …'."""
    ends = [f"{100 * v:.2g}" for v in limits]
    if level == 0:
        return f"±{ends[0]}"
    sign, at = ("−" if level < 0 else "+"), abs(level)
    return f"{sign}{ends[at - 1]} …" + (f" {sign}{ends[at]}" if at < len(ends) else "")


def profile(landscape: LandscapeResult, at: int) -> list[LandscapePoint]:
    """Return, for each value of axis number `at`, the point with the lowest ratio over the other axis."""
    measured = [p for p in landscape.points if p.ratio is not None]
    groups = itertools.groupby(
        sorted(measured, key=lambda p: landscape.axes[at].values.index(p.values[at])), key=lambda p: p.values[at]
    )
    return [min(group, key=lambda p: p.ratio or math.inf) for _, group in groups]


def _draw(landscape: LandscapeResult, narrow: bool) -> tuple[Figure, dict[str, str]]:
    count = len(landscape.axes)
    rows = count if narrow else 1
    figure, panels = figure_of(narrow, 3.2 * rows, columns=1 if narrow else count, rows=rows)
    tips: dict[str, str] = {}
    for number, (axes, axis) in enumerate(zip(panels, landscape.axes, strict=True)):
        best_points = profile(landscape, number)
        xs = [axis.at(p.values[number]) for p in best_points]
        ys = [100 * ((p.ratio or 1.0) - 1) for p in best_points]
        draw_scale(axes, "x", axis, 5 if narrow or count > 1 else 12)
        axes.axhline(0, color=COLOUR["default"], linewidth=1, label=None if number else "default")
        axes.plot(xs, ys, color=FRONT, linewidth=1.2)
        for i, (x, y, point) in enumerate(zip(xs, ys, best_points, strict=True)):
            gid = f"l{number}-{i}"
            axes.plot([x], [y], "o", color=FRONT, markersize=3.5, gid=gid)
            tips[gid] = f"{point_text(landscape, point)}: {percent(point.ratio or 1.0)}"
        best = landscape.best
        if best is not None and best.ratio is not None:
            at = [axis.at(best.values[number])], [100 * (best.ratio - 1)]
            axes.plot(
                *at, "*", color=COLOUR["memory"], markersize=12, ls="none", label=None if number else _star(landscape)
            )
        over = "" if count == 1 else f", best over {landscape.axes[1 - number].key}"
        axes.set_title(f"% change{over}", loc="left")
    figure.legend(loc="outside upper left", ncols=2)
    return figure, {} if narrow else tips
