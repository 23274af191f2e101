"""Draws the search and its progress for the report.

Kinds of points differ in shape as well as in colour. Every picture has a description in words for readers who cannot
see it. The default and the picks are labelled beside their points.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from heapwright.interleaving.configuration import Config
from heapwright.metrics import METRICS
from heapwright.report.drawing import (
    ALLOCATORS,
    COLOUR,
    DOMINATED,
    FRONT,
    GOOD,
    GOOD_GROUND,
    MARKER,
    MUTED,
    figure_of,
    picture,
)
from heapwright.report.point_labels import write_labels
from heapwright.report.terminal import interval, ordered_picks
from heapwright.search.quality import hypervolume_so_far
from heapwright.study.view import Confirmation, Evaluation, StudyView
from heapwright.terminal_text import counted
from heapwright.units import percent, percent_change

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LONG_NAME = 9  # characters; three columns of longer names do not fit into a narrow picture
SHAPES = ("o", "X", "P", "h", "d", "<", ">", "*", "p", (4, 1, 0))  # markers of allocators; of picks: MARKER
MAX_POINTS = 160  # drawn at most, of the front and of the other points each
# With at most so many points each tooltip names its settings; with more, only the tooltips of the
# front do.
_MAX_LONG_TIPS = 120


def settings_text(config: Config, default: Config) -> str:
    """Return the settings of a configuration as text.

    Examples: 'mxfast=0, top_pad=4096'; 'jemalloc: narenas=2' if its allocator is not the default's; 'nothing set'.
    """
    settings = ", ".join(f"{k}={v}" for k, v in config.settings.items())
    if config.allocator == default.allocator:
        return settings or "nothing set"
    return f"{config.allocator}: {settings}" if settings else config.allocator


def thinned(found: Sequence[Evaluation], limit: int) -> list[Evaluation]:
    """Return every n-th evaluation, so that there are at most `limit`."""
    return list(found[:: max(1, math.ceil(len(found) / max(1, limit)))])


def stairs(xs: Sequence[int], ys: Sequence[float]) -> tuple[list[int], list[float]]:
    """Remove the points of a step curve at which it does not change, except the first and the last."""
    steps = [i for i in range(len(xs)) if i in (0, len(xs) - 1) or ys[i] != ys[i - 1]]
    return [xs[i] for i in steps], [ys[i] for i in steps]


# The search


def search_svg(view: StudyView, anchor: str) -> str:
    """Draw the configurations of the search in the plane of two objectives; a single objective over their order."""
    shown = _drawable(view)
    if not shown or view.landscape:
        return ""
    if len(view.objectives) == 1:
        return _history(view, shown, anchor)
    x_key, y_key = view.objectives[1], view.objectives[0]
    text = (
        f"{METRICS[y_key].label} over {METRICS[x_key].label} of each configuration ({len(shown)}), in per cent of"
        f" change from the default, which is at zero; left and down is better. {_described(view)}"
    )
    return picture(lambda narrow: _pareto(view, shown, narrow), anchor, "search", "Pareto front", text)


def _drawable(view: StudyView) -> list[Evaluation]:
    """Return the feasible evaluations that have a ratio for every objective."""
    return [e for e in view.evaluations if e.feasible and all(k in e.ratios for k in view.objectives)]


def count_outside_picture(view: StudyView) -> int:
    """Return the number of configurations that are so much worse that they lie outside the picture of the search."""
    shown = _drawable(view)
    keys = view.objectives[:2]
    tops = [_frame(view, shown, key)[1] for key in keys]
    return sum(any(percent_change(e.ratios[k]) > top for k, top in zip(keys, tops, strict=True)) for e in shown)


def _frame(view: StudyView, shown: list[Evaluation], key: str) -> tuple[float, float]:
    """Return the limits of one objective's axis.

    They include the front, the picks and their intervals, and other configurations that are not much worse.
    """
    core = [percent_change(e.ratios[key]) for e in shown if e.on_front]
    core += [percent_change(v) for p in view.picks.values() if key in p.confirmed for v in _ends(p.confirmed[key])]
    return limits(core, [percent_change(e.ratios[key]) for e in shown])


def _described(view: StudyView) -> str:
    """Describe the confirmed picks in words."""
    return " ".join(
        f"The {label} pick: "
        + ", ".join(f"{METRICS[k].label} {percent(c.ratio)} {interval(c)}" for k, c in _objectives(view, p.confirmed))
        + "."
        for label, p in ordered_picks(view)
        if p.confirmed
    )


def _objectives(view: StudyView, confirmed: dict[str, Confirmation]) -> list[tuple[str, Confirmation]]:
    return [(k, confirmed[k]) for k in view.objectives if k in confirmed]


def _tip(view: StudyView, e: Evaluation) -> str:
    changes = ", ".join(f"{METRICS[k].label} {percent(e.ratios[k])}" for k in view.objectives)
    long = len(view.evaluations) <= _MAX_LONG_TIPS or (e.on_front and len(view.front) <= _MAX_LONG_TIPS // 2)
    settings = settings_text(e.config, view.default) + "\n" if long else ""
    kind = "replay" if e.replayed else "run"
    predicted = "predicted " if e.replayed else ""
    return f"#{e.number}: {settings}{predicted}{changes}; {e.runs} {kind if e.runs == 1 else f'{kind}s'}"


def limits(core: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """Return the limits of an axis that shows all of `core`, and those of `others` that are not far above it."""
    low, high = min([0.0, *core, *others]), max([0.0, *core])
    reach = high + 1.5 * max(high - low, 1.0)
    high = max([high, *(v for v in others if v <= reach)])
    pad = 0.07 * max(high - low, 0.5)
    return low - pad, high + pad


class _Plane(NamedTuple):
    """The plane of two objectives, in per cent of change from the default.

    Attributes:
        x_key, y_key: the metrics of the axes.
    """

    x_key: str
    y_key: str

    def place(self, e: Evaluation) -> tuple[float, float]:
        """Return x and y of an evaluation."""
        return percent_change(e.ratios[self.x_key]), percent_change(e.ratios[self.y_key])


def _pareto(view: StudyView, shown: list[Evaluation], narrow: bool) -> tuple[Figure, dict[str, str]]:
    """Draw the evaluations and the picks in the plane of two objectives; return the tooltips by id."""
    plane = _Plane(view.objectives[1], view.objectives[0])
    figure, (axes,) = figure_of(narrow, 4.4 if narrow else 4.9)
    xlim, ylim = (_frame(view, shown, key) for key in plane)
    _draw_gain_area(axes, xlim, ylim)
    members = thinned(sorted((e for e in shown if e.on_front), key=plane.place), MAX_POINTS)
    dominated = [e for e in shown if not e.on_front]
    inside = [e for e in dominated if plane.place(e)[0] <= xlim[1] and plane.place(e)[1] <= ylim[1]]
    drawn = [
        e for replayed in (False, True) for e in thinned([x for x in inside if x.replayed is replayed], MAX_POINTS)
    ]
    if members and len(view.objectives) == 2:
        axes.step(*zip(*map(plane.place, members), strict=True), where="post", color=FRONT, linewidth=1)
    tips = _draw_evaluations(view, plane, drawn, members, axes, narrow)
    axes.plot([0], [0], MARKER["default"], color=COLOUR["default"], markersize=7)
    labels = [("default", "default", 0.0, 0.0), *_draw_picks(view, plane, axes)]
    axes.set_xlabel(f"{METRICS[plane.x_key].label}, % change (left is better)")
    axes.set_title(f"{METRICS[plane.y_key].label}, % change" + ("" if narrow else " (down is better)"), loc="left")
    names = allocators_of(view)
    several = len(names) > 1
    columns = 2 if any(len(name) > _LONG_NAME for name in names) else 3
    figure.legend(loc="outside upper left", ncols=(columns if several else 1) if narrow else (7 if several else 2))
    write_labels(figure, axes, labels, [plane.place(e) for e in [*members, *drawn]])
    return figure, tips


def _draw_gain_area(axes: Axes, xlim: tuple[float, float], ylim: tuple[float, float]) -> None:
    """Set the limits of the axes, and mark the area that is better than the default in both objectives."""
    axes.set_xlim(*xlim)
    axes.set_ylim(*ylim)
    axes.fill_between([xlim[0], 0], ylim[0], 0, color=GOOD_GROUND, linewidth=0, zorder=0)
    axes.axhline(0, color=MUTED, linewidth=0.7, zorder=1)
    axes.axvline(0, color=MUTED, linewidth=0.7, zorder=1)
    axes.annotate(
        "better in both",
        (0, 0),
        (4, 4),
        "axes fraction",
        "offset points",
        color=GOOD,
        va="bottom",
        fontsize=9,
        zorder=1,
    )


def _draw_evaluations(
    view: StudyView,
    plane: _Plane,
    drawn: Sequence[Evaluation],
    members: Sequence[Evaluation],
    axes: Axes,
    narrow: bool,
) -> dict[str, str]:
    """Draw a point for each evaluation, and return the tooltips by id.

    Args:
        view: the study.
        plane: the objectives of the axes.
        drawn: evaluations that are not on the front.
        members: evaluations on the front.
        axes: where to draw.
        narrow: whether the picture is for a phone, whose points have no tooltips.
    """
    tips: dict[str, str] = {}
    for found, look in _marker_styles(view, drawn, members, axes):
        if narrow:  # a phone has no pointer, so no point needs a tooltip
            axes.plot([plane.place(e)[0] for e in found], [plane.place(e)[1] for e in found], **look)
            continue
        for e in found:
            x, y = plane.place(e)
            axes.plot([x], [y], **look, gid=f"e{e.number}")
            tips[f"e{e.number}"] = _tip(view, e)
    return tips


def _draw_picks(view: StudyView, plane: _Plane, axes: Axes) -> list[tuple[str, str, float, float]]:
    """Draw the confirmed picks with their intervals; return text, key of the colour, x and y of their labels."""
    labels: list[tuple[str, str, float, float]] = []
    for label, pick in ordered_picks(view):
        cx, cy = pick.confirmed.get(plane.x_key), pick.confirmed.get(plane.y_key)
        if cx is None or cy is None:
            continue
        x, y = percent_change(cx.ratio), percent_change(cy.ratio)
        axes.errorbar(
            [x],
            [y],
            xerr=[[max(0, x - percent_change(cx.low))], [max(0, percent_change(cx.high) - x)]],
            yerr=[[max(0, y - percent_change(cy.low))], [max(0, percent_change(cy.high) - y)]],
            fmt=MARKER[pick.name],
            color=COLOUR[pick.name],
            markersize=8,
            capsize=3,
            elinewidth=1.5,
            zorder=4,
        )
        labels.append((f"{label} pick", pick.name, x, y))
    return labels


def allocators_of(view: StudyView) -> list[str]:
    """Return the allocators of the evaluations, in order of appearance."""
    return list(dict.fromkeys(e.config.allocator for e in view.evaluations))


def _marker_styles(
    view: StudyView, drawn: Sequence[Evaluation], members: Sequence[Evaluation], axes: Axes
) -> list[tuple[list[Evaluation], dict[str, Any]]]:
    """Group the points by their look, and add the legend to `axes`.

    With several allocators each has a colour and a marker; with one the front differs from the other points.

    Args:
        view: the study.
        drawn: evaluations that are not on the front.
        members: evaluations on the front.
        axes: gets one empty plot for each entry of the legend.

    Returns:
        Evaluations of one look, with the arguments of matplotlib's `plot` for them.
    """
    base: dict[str, Any] = {"linestyle": "none", "clip_on": False}
    names = allocators_of(view)
    if len(names) < 2:
        plain = {**base, "marker": "o", "color": DOMINATED, "markersize": 3.5}
        front = {**base, "marker": "o", "color": FRONT, "markersize": 5.0}
        predicted = {**plain, "markersize": 2.2, "zorder": 1.5}
        axes.plot([], [], **plain, label="searched")
        if any(e.replayed for e in drawn):
            axes.plot([], [], **predicted, label="predicted by replays")
        if members:
            axes.plot([], [], **front, label="Pareto front of the search")
        measured = [e for e in drawn if not e.replayed]
        return [([e for e in drawn if e.replayed], predicted), (measured, plain), ([*members], front)]
    groups = []
    for i, name in enumerate(names):
        colour, shape = ALLOCATORS[i % len(ALLOCATORS)], SHAPES[i % len(SHAPES)]
        look = {**base, "marker": shape, "color": colour}
        axes.plot([], [], **look, markersize=6, label=name)
        hollow = {**look, "markersize": 4.0, "markerfacecolor": "none", "markeredgewidth": 0.9}
        own = [e for e in drawn if e.config.allocator == name]
        small = {**hollow, "markersize": 2.2, "markeredgewidth": 0.6, "zorder": 1.5}
        groups.append(([e for e in own if e.replayed], small))
        groups.append(([e for e in own if not e.replayed], hollow))
        groups.append(([e for e in members if e.config.allocator == name], {**look, "markersize": 6.5}))
    return groups


def _history(view: StudyView, shown: list[Evaluation], anchor: str) -> str:
    (key,) = view.objectives
    metric = METRICS[key]

    def draw(narrow: bool) -> tuple[Figure, dict[str, str]]:
        figure, (axes,) = figure_of(narrow, 3.4 if narrow else 3.6)
        tips: dict[str, str] = {}
        changes = [percent_change(e.ratios[key]) for e in shown]
        low, high = _frame(view, shown, key)
        inside = [e for e in shown if percent_change(e.ratios[key]) <= high]
        several = len(allocators_of(view)) > 1
        drawn = [e for e in thinned(inside, MAX_POINTS) if not (several and e.on_front)]
        for found, look in _marker_styles(view, drawn, [e for e in inside if several and e.on_front], axes):
            for e in found:
                axes.plot([e.number], [percent_change(e.ratios[key])], **look, gid=f"e{e.number}")
                tips[f"e{e.number}"] = _tip(view, e)
        numbers = [e.number for e in shown]
        axes.step(
            *stairs(numbers, list(itertools.accumulate(changes, min))),
            where="post",
            color=FRONT,
            linewidth=1.4,
            label="best so far",
        )
        axes.axhline(0, color=COLOUR["default"], linewidth=1, label="default")
        after = numbers[-1] + max(1.0, 0.04 * len(shown))
        for label, pick in ordered_picks(view):
            if key not in pick.confirmed:
                continue
            c = pick.confirmed[key]
            reach = [
                [percent_change(c.ratio) - percent_change(c.low)],
                [percent_change(c.high) - percent_change(c.ratio)],
            ]
            bar: dict[str, Any] = {"fmt": MARKER[pick.name], "color": COLOUR[pick.name], "markersize": 7, "capsize": 3}
            axes.errorbar([after], [percent_change(c.ratio)], yerr=reach, **bar, label=f"{label} pick, confirmed")
        axes.set_ylim(low, high)
        axes.set_xlabel("configurations, in the order of the search")
        axes.set_title(f"{metric.label}, % change" + ("" if narrow else " (down is better)"), loc="left")
        figure.legend(loc="outside upper left", ncols=2 if narrow else 4)
        return figure, {} if narrow else tips

    change = "in per cent of change from the default"
    text = f"{metric.label} of each configuration ({len(shown)}), {change}. {_described(view)}"
    return picture(draw, anchor, "search", "The search in its order", text)


def course_svg(view: StudyView, anchor: str) -> str:
    """Draw the incumbent of each objective and the hypervolume of the Pareto front after each configuration."""
    shown = _drawable(view)
    if len(view.objectives) < 2 or len(shown) < 2 or view.landscape:
        return ""
    numbers = [e.number for e in shown]
    best = {key: list(itertools.accumulate((e.ratios[key] for e in shown), min)) for key in view.objectives}
    volume = hypervolume_so_far([[e.ratios[k] for k in view.objectives] for e in shown])
    last = max((i for i in range(1, len(volume)) if volume[i] > volume[i - 1]), default=0)
    text = (
        f"After {counted(len(shown), 'configuration')} the best values are: "
        + ", ".join(f"{METRICS[k].label} {percent(best[k][-1])}" for k in view.objectives)
        + f". The hypervolume of the front is {volume[-1]:.4g}; it last grew at configuration {numbers[last]}."
    )

    def draw(narrow: bool) -> tuple[Figure, dict[str, str]]:
        figure, panels = figure_of(narrow, 4.6 if narrow else 2.9, columns=1 if narrow else 2, rows=2 if narrow else 1)
        for i, key in enumerate(view.objectives):
            look: dict[str, Any] = {
                "color": ALLOCATORS[i % len(ALLOCATORS)],
                "linestyle": ("-", "--", ":", "-.")[i % 4],
            }
            xs, ys = stairs(numbers, [percent_change(v) for v in best[key]])
            panels[0].step(xs, ys, where="post", linewidth=1.6, label=METRICS[key].label, **look)
        panels[0].set_title("best so far, % change", loc="left")
        panels[1].step(*stairs(numbers, volume), where="post", color=FRONT, linewidth=1.6)
        panels[1].set_title("hypervolume of the front", loc="left")
        for axes in panels:
            axes.set_xlabel("configurations searched")
        figure.legend(loc="outside upper left", ncols=1 if narrow else 4)
        return figure, {}

    return picture(draw, anchor, "course", "Progress of the search", text)


def _ends(c: Confirmation) -> tuple[float, float]:
    return c.low, c.high
