"""The report's pictures: the search, what was confirmed, memory over time.

Shape tells kinds apart as well as colour does, every picture is described in words for those who cannot see it, and
what has a name is named where it stands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from heapwright.metrics import METRICS, show_bytes, show_seconds
from heapwright.report.drawing import (
    COLOUR,
    DOMINATED,
    FAINT,
    FRONT,
    GOOD,
    GOOD_GROUND,
    MARKER,
    MUTED,
    TEXT,
    figure_of,
    picture,
)
from heapwright.report.terminal import interval, ordered_picks, percent
from heapwright.study.view import Config, Confirmation, Evaluation, Series, StudyView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_POINTS = 160  # drawn of the front, and of the others
_TELLING = 120  # up to so many points, each tells its settings when pointed at; beyond, the front's do


def describe(config: Config, default: Config) -> str:
    """'mxfast=0, top_pad=4096', 'jemalloc: narenas=2' where it is not the default's allocator, or 'nothing set'."""
    settings = ", ".join(f"{k}={v}" for k, v in config.settings.items())
    if config.allocator == default.allocator:
        return settings or "nothing set"
    return f"{config.allocator}: {settings}" if settings else config.allocator


def _change(ratio: float) -> float:
    return 100 * (ratio - 1)


def thinned(found: Sequence[Evaluation], most: int) -> list[Evaluation]:
    """At most so many, evenly."""
    return list(found[:: max(1, math.ceil(len(found) / max(1, most)))])


# The search


def search_svg(view: StudyView, anchor: str) -> str:
    """What was searched: objective against objective; with a single one, one setting after the other."""
    shown = _shown(view)
    if not shown or view.terrain:
        return ""
    if len(view.objectives) == 1:
        return _history(view, shown, anchor)
    x_key, y_key = view.objectives[1], view.objectives[0]
    text = (
        f"{len(shown)} settings as {METRICS[x_key].label} against {METRICS[y_key].label}, in per cent of change"
        f" against the default, which is at zero; left and down is better. {_described(view)}"
    )
    return picture(lambda narrow: _pareto(view, shown, narrow), anchor, "search", "Pareto front", text)


def _shown(view: StudyView) -> list[Evaluation]:
    return [e for e in view.evaluations if e.feasible and all(k in e.ratios for k in view.objectives)]


def unseen(view: StudyView) -> int:
    """How many settings are so much worse that they lie outside the picture of the search."""
    shown = _shown(view)
    keys = view.objectives[:2]
    tops = [_frame(view, shown, key)[1] for key in keys]
    return sum(any(_change(e.ratios[k]) > top for k, top in zip(keys, tops, strict=True)) for e in shown)


def _frame(view: StudyView, shown: list[Evaluation], key: str) -> tuple[float, float]:
    """The axis of one objective: the front, the picks and their intervals whole, others unless far worse."""
    core = [_change(e.ratios[key]) for e in shown if e.on_front]
    core += [_change(v) for p in view.picks.values() if key in p.confirmed for v in _ends(p.confirmed[key])]
    return limits(core, [_change(e.ratios[key]) for e in shown])


def _described(view: StudyView) -> str:
    """The confirmed picks in words."""
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
    tell = len(view.evaluations) <= _TELLING or (e.on_front and len(view.front) <= _TELLING // 2)
    what = describe(e.config, view.default) + "\n" if tell else ""
    return f"#{e.number}: {what}{changes}; {e.runs} {'run' if e.runs == 1 else 'runs'}"


def limits(core: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """An axis that shows all of `core` and what of `others` is not far above it."""
    low, high = min([0.0, *core, *others]), max([0.0, *core])
    reach = high + 1.5 * max(high - low, 1.0)
    high = max([high, *(v for v in others if v <= reach)])
    pad = 0.07 * max(high - low, 0.5)
    return low - pad, high + pad


def _pareto(view: StudyView, shown: list[Evaluation], narrow: bool) -> tuple[Figure, dict[str, str]]:
    x_key, y_key = view.objectives[1], view.objectives[0]
    figure, (axes,) = figure_of(narrow, 4.4 if narrow else 4.9)
    tips: dict[str, str] = {}

    def place(e: Evaluation) -> tuple[float, float]:
        return _change(e.ratios[x_key]), _change(e.ratios[y_key])

    members = thinned(sorted((e for e in shown if e.on_front), key=place), MAX_POINTS)
    dominated = [e for e in shown if not e.on_front]
    picks = [(n, p) for n, p in ordered_picks(view) if x_key in p.confirmed and y_key in p.confirmed]
    xlim, ylim = (_frame(view, shown, key) for key in (x_key, y_key))
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

    inside = [e for e in dominated if place(e)[0] <= xlim[1] and place(e)[1] <= ylim[1]]
    drawn = thinned(inside, MAX_POINTS)
    if members and len(view.objectives) == 2:
        axes.step(*zip(*map(place, members), strict=True), where="post", color=FRONT, linewidth=1)
    for label, found, colour, size in (
        ("searched", drawn, DOMINATED, 3.5),
        ("Pareto front of the search", members, FRONT, 5.0),
    ):
        look: dict[str, Any] = {"color": colour, "linestyle": "none", "marker": "o", "clip_on": False}
        if narrow:  # nothing to point with: all in one
            xs, ys = [place(e)[0] for e in found], [place(e)[1] for e in found]
            axes.plot(xs, ys, **look, markersize=size, label=label)
            continue
        for i, e in enumerate(found):
            x, y = place(e)
            axes.plot([x], [y], **look, markersize=size, gid=f"e{e.number}", label=None if i else label)
            tips[f"e{e.number}"] = _tip(view, e)
    labels = [("default", "default", 0.0, 0.0)]
    axes.plot([0], [0], MARKER["default"], color=COLOUR["default"], markersize=7)
    for label, pick in picks:
        cx, cy = pick.confirmed[x_key], pick.confirmed[y_key]
        x, y = _change(cx.ratio), _change(cy.ratio)
        axes.errorbar(
            [x],
            [y],
            xerr=[[max(0, x - _change(cx.low))], [max(0, _change(cx.high) - x)]],
            yerr=[[max(0, y - _change(cy.low))], [max(0, _change(cy.high) - y)]],
            fmt=MARKER[pick.name],
            color=COLOUR[pick.name],
            markersize=8,
            capsize=3,
            elinewidth=1.5,
            zorder=4,
        )
        labels.append((f"{label} pick", pick.name, x, y))
    axes.set_xlabel(f"{METRICS[x_key].label}, % change (left is better)")
    axes.set_title(f"{METRICS[y_key].label}, % change" + ("" if narrow else " (down is better)"), loc="left")
    figure.legend(loc="outside upper left", ncols=1 if narrow else 2)
    _name(figure, axes, labels, [place(e) for e in [*members, *drawn]])
    return figure, tips


def _name(
    figure: Figure, axes: Axes, labels: list[tuple[str, str, float, float]], points: list[tuple[float, float]]
) -> None:
    """Writes names beside their points, where they cover the fewest points and no other name."""
    figure.draw_without_rendering()
    scale = figure.dpi / 72
    inner = axes.get_window_extent()
    spots = [axes.transData.transform(p) for p in points]
    taken: list[tuple[float, float, float, float]] = []
    marks = [axes.transData.transform((x, y)) for _, _, x, y in labels]
    for (text, key, _, _), (px, py) in zip(labels, marks, strict=True):
        wide, high = 6.3 * len(text) * scale, 13 * scale
        best: tuple[float, float, float, float, float] | None = None
        for dx, dy in ((1, 1), (1, -1), (-1, 1), (-1, -1), (0, 1), (0, -1), (1, 2.2), (-1, 2.2), (1, -2.2), (-1, -2.2)):
            left = px + (dx * 10 * scale if dx > 0 else -10 * scale - wide if dx < 0 else -wide / 2)
            low = py + dy * 12 * scale - high / 2
            box = (left, low, left + wide, low + high)
            bad = sum(3.0 for t in taken if _overlap(box, t))
            bad += sum(3.0 for m in marks if _inside(box, m, 6 * scale)) + sum(_inside(box, s, 2) for s in spots)
            bad += 20.0 * (box[0] < inner.x0 or box[2] > inner.x1 or box[1] < inner.y0 or box[3] > inner.y1)
            if best is None or bad < best[0]:
                best = (bad, *box)
        assert best is not None
        taken.append(best[1:])
        x, y = axes.transData.inverted().transform((best[1], best[2] + 3 * scale))
        axes.text(x, y, text, color=COLOUR[key], fontweight="bold", zorder=5)


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _inside(box: tuple[float, float, float, float], point: Any, margin: float) -> bool:
    return bool(box[0] - margin < point[0] < box[2] + margin and box[1] - margin < point[1] < box[3] + margin)


def _history(view: StudyView, shown: list[Evaluation], anchor: str) -> str:
    (key,) = view.objectives
    metric = METRICS[key]

    def draw(narrow: bool) -> tuple[Figure, dict[str, str]]:
        figure, (axes,) = figure_of(narrow, 3.4 if narrow else 3.6)
        tips: dict[str, str] = {}
        changes = [_change(e.ratios[key]) for e in shown]
        best = [min(changes[: i + 1]) for i in range(len(changes))]
        low, high = _frame(view, shown, key)
        inside = [e for e in shown if _change(e.ratios[key]) <= high]
        for i, e in enumerate(thinned(inside, MAX_POINTS)):
            at, label = ([e.number], [_change(e.ratios[key])]), None if i else "searched"
            axes.plot(*at, "o", color=DOMINATED, markersize=3.5, gid=f"e{e.number}", label=label, ls="none")
            tips[f"e{e.number}"] = _tip(view, e)
        numbers = [e.number for e in shown]
        axes.step(numbers, best, where="post", color=FRONT, linewidth=1.4, label="best so far")
        axes.axhline(0, color=COLOUR["default"], linewidth=1, label="default")
        after = numbers[-1] + max(1.0, 0.04 * len(shown))
        for label, pick in ordered_picks(view):
            if key not in pick.confirmed:
                continue
            c = pick.confirmed[key]
            reach = [[_change(c.ratio) - _change(c.low)], [_change(c.high) - _change(c.ratio)]]
            look: dict[str, Any] = {"fmt": MARKER[pick.name], "color": COLOUR[pick.name], "markersize": 7, "capsize": 3}
            axes.errorbar([after], [_change(c.ratio)], yerr=reach, **look, label=f"{label} pick, confirmed")
        axes.set_ylim(low, high)
        axes.set_xlabel("settings, in the order they were tried")
        axes.set_title(f"{metric.label}, % change" + ("" if narrow else " (down is better)"), loc="left")
        figure.legend(loc="outside upper left", ncols=2 if narrow else 4)
        return figure, {} if narrow else tips

    text = f"{metric.label} of {len(shown)} settings, in per cent of change against the default. {_described(view)}"
    return picture(draw, anchor, "search", "The search, setting by setting", text)


def _ends(c: Confirmation) -> tuple[float, float]:
    return c.low, c.high


# The confirmation


def forest_svg(view: StudyView, anchor: str) -> str:
    """Every confirmed pick and objective as an interval around its change."""
    rows: list[tuple[str, str, Confirmation | None]] = []
    for label, pick in ordered_picks(view):
        found = _objectives(view, pick.confirmed)
        if found:
            rows.append((f"{label} pick", pick.name, None))
            rows += [(METRICS[k].label, pick.name, c) for k, c in found]
    if not rows:
        return ""
    text = f"Per cent of change against the default, with 95% intervals; left of zero is better. {_described(view)}"
    return picture(lambda narrow: _forest(view, rows, narrow), anchor, "forest", "Confirmed changes", text)


def _forest(
    view: StudyView, rows: list[tuple[str, str, Confirmation | None]], narrow: bool
) -> tuple[Figure, dict[str, str]]:
    figure, (axes,) = figure_of(narrow, 0.6 + (0.42 if narrow else 0.27) * len(rows))
    margin = 100 * float(view.options.get("margin", 0.005))
    if not narrow:
        axes.axvspan(-margin, margin, color=FAINT, linewidth=0)
        axes.axvline(0, color=TEXT, linewidth=0.8)
    tips: dict[str, str] = {}
    side = axes.get_yaxis_transform()
    for i, (label, name, c) in enumerate(reversed(rows)):
        if c is None:
            at = (0.0, i - 0.25) if narrow else (-0.03, i - 0.1)
            side_at = "left" if narrow else "right"
            colour = COLOUR[name]
            axes.text(at[0], at[1], label, transform=side, ha=side_at, va="center", color=colour, fontweight="bold")
            continue
        x, low, high = (_change(v) for v in (c.ratio, c.low, c.high))
        value = f"{percent(c.ratio)} {interval(c)} {c.verdict}"
        here = i - 0.22 if narrow else i
        if narrow:  # the words stand between the lines: nothing may cross them
            axes.fill_between([-margin, margin], here - 0.2, here + 0.2, color=FAINT, linewidth=0)
            axes.plot([0, 0], [here - 0.2, here + 0.2], color=TEXT, linewidth=0.8)
        axes.plot([low, high], [here, here], color=COLOUR[name], linewidth=2.5, gid=f"f{i}", solid_capstyle="butt")
        axes.plot([x], [here], MARKER[name], color=COLOUR[name], markersize=6)
        tips[f"f{i}"] = f"{label}: {value}"
        if narrow:
            axes.text(0, i + 0.22, f"{METRICS[c.metric].short} {value}", transform=side, va="center", fontsize=9)
        else:
            axes.text(-0.03, i, label, transform=side, ha="right", va="center")
            axes.text(1.02, i, value, transform=side, ha="left", va="center")
    axes.set_yticks([])
    axes.set_ylim(-0.7, len(rows) - 0.4)
    axes.grid(visible=False, axis="both" if narrow else "y")
    axes.spines["left"].set_visible(False)
    axes.margins(x=0.08)
    axes.set_xlabel("% change against the default (left is better)")
    return figure, tips


# Memory over time


def memory_svg(view: StudyView, anchor: str) -> str:
    """Resident memory and mapped heap over time, default and picks."""
    runs = [("default", "default", view.series["default"])] if "default" in view.series else []
    runs += [
        (f"{label} pick", p.name, view.series[p.name]) for label, p in ordered_picks(view) if p.name in view.series
    ]
    runs = [run for run in runs if run[2].t]
    if not runs:
        return ""
    text = " ".join(
        f"{label}: at most {show_bytes(max(s.rss))} resident and {show_bytes(max(s.heap))} of mapped heap,"
        f" over after {show_seconds(s.t[-1])}."
        for label, _, s in runs
    )
    return picture(lambda narrow: _memory(runs, narrow), anchor, "memory", "Memory over time", text)


def _memory(runs: list[tuple[str, str, Series]], narrow: bool) -> tuple[Figure, dict[str, str]]:
    figure, panels = figure_of(narrow, 5.4 if narrow else 3.5, columns=1 if narrow else 2, rows=2 if narrow else 1)
    for i, (axes, title) in enumerate(zip(panels, ("resident memory", "mapped heap"), strict=True)):
        lines = [(label, name, s.t, s.heap if i else s.rss) for label, name, s in runs]
        top = max(max(values) for *_, values in lines)
        scale, unit = (2**30, "GiB") if top >= 2**30 else (2**20, "MiB") if top >= 2**20 else (2**10, "KiB")
        for label, name, t, values in lines:
            shown = [v / scale for v in values]
            axes.plot(
                t,
                shown,
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
