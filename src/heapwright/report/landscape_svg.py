"""A landscape in the report, in the page's colours: a curve; of a plane, one along each setting.

The heat map of a plane is a picture for a file (`landscape --plot`); in the page, which is drawn in lines that follow
its colours and can be read aloud, a plane is shown as profiles: the best over the other setting, along each axis.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from heapwright.metrics import METRICS
from heapwright.report.drawing import COLOUR, FRONT, figure_of, picture
from heapwright.report.landscape import draw_scale, place_text, shape_text
from heapwright.report.terminal import percent
from heapwright.study.terrain import Place, Terrain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from heapwright.study.view import StudyView


def landscape_svg(view: StudyView, anchor: str) -> str:
    """The landscape of a sweep; nothing for any other study."""
    terrain = view.terrain
    if terrain is None or terrain.best is None or terrain.best.ratio is None:
        return ""
    label = METRICS[terrain.metric].label
    best = f"{place_text(terrain, terrain.best)}, {percent(terrain.best.ratio)}"
    text = f"{label} in per cent of change against the default. Best: {best}. {shape_text(terrain)}."
    return picture(lambda narrow: _draw(terrain, narrow), anchor, "landscape", "Landscape", text)


def profile(terrain: Terrain, at: int) -> list[Place]:
    """Along one axis the best place over the other; of a curve, its places."""
    measured = [p for p in terrain.places if p.ratio is not None]
    groups = itertools.groupby(
        sorted(measured, key=lambda p: terrain.axes[at].values.index(p.values[at])), key=lambda p: p.values[at]
    )
    return [min(group, key=lambda p: p.ratio or math.inf) for _, group in groups]


def _draw(terrain: Terrain, narrow: bool) -> tuple[Figure, dict[str, str]]:
    count = len(terrain.axes)
    rows = count if narrow else 1
    figure, panels = figure_of(narrow, 3.2 * rows, columns=1 if narrow else count, rows=rows)
    tips: dict[str, str] = {}
    for number, (axes, axis) in enumerate(zip(panels, terrain.axes, strict=True)):
        found = profile(terrain, number)
        xs = [axis.at(p.values[number]) for p in found]
        ys = [100 * ((p.ratio or 1.0) - 1) for p in found]
        draw_scale(axes, "x", axis, 5 if narrow or count > 1 else 12)
        axes.axhline(0, color=COLOUR["default"], linewidth=1, label=None if number else "default")
        axes.plot(xs, ys, color=FRONT, linewidth=1.2)
        for i, (x, y, place) in enumerate(zip(xs, ys, found, strict=True)):
            gid = f"l{number}-{i}"
            axes.plot([x], [y], "o", color=FRONT, markersize=3.5, gid=gid)
            tips[gid] = f"{place_text(terrain, place)}: {percent(place.ratio or 1.0)}"
        best = terrain.best
        if best is not None and best.ratio is not None:
            at = [axis.at(best.values[number])], [100 * (best.ratio - 1)]
            axes.plot(*at, "*", color=COLOUR["memory"], markersize=12, ls="none", label=None if number else "best")
        over = "" if count == 1 else f", best over {terrain.axes[1 - number].key}"
        axes.set_title(f"% change{over}", loc="left")
    figure.legend(loc="outside upper left", ncols=2)
    return figure, {} if narrow else tips
