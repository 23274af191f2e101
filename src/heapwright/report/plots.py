"""The report's pictures: matplotlib's SVG, made to follow the page's colours.

matplotlib draws in sentinel colours which are then replaced by CSS variables, so that one picture serves light
and dark pages. Shape tells kinds apart as well as colour does.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from heapwright.metrics import METRICS, show_bytes
from heapwright.study.view import Evaluation, StudyView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# sentinel → CSS
_COLOURS = {
    "#010203": "currentColor",
    "#010204": "var(--faint)",
    "#010205": "var(--default)",
    "#010206": "var(--memory)",
    "#010207": "var(--time)",
    "#010208": "var(--balanced)",
    "#010209": "var(--front)",
    "#01020a": "var(--dominated)",
}
_TEXT, _FAINT = "#010203", "#010204"
COLOUR = {"default": "#010205", "memory": "#010206", "time": "#010207", "balanced": "#010208"}
_FRONT, _DOMINATED = "#010209", "#01020a"
MARKER = {"default": "s", "memory": "v", "time": "^", "balanced": "D"}
MAX_DOMINATED = 400  # points drawn beside the front


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "heapwright",
            "font.family": "sans-serif",
            "font.size": 10,
            "text.color": _TEXT,
            "axes.labelcolor": _TEXT,
            "axes.edgecolor": _FAINT,
            "xtick.color": _TEXT,
            "ytick.color": _TEXT,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.color": _FAINT,
            "grid.linewidth": 0.4,
            "legend.frameon": False,
            "figure.constrained_layout.use": True,
        }
    )
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    return figure, figure.subplots()


def _svg(figure: Figure, title: str, description: str, points: dict[str, str], anchor: str) -> str:
    """The figure as an inline <svg>, with a title and tooltips; `points` are gid → tooltip.

    Its ids begin with `anchor`, so that several stand on one page.
    """
    from markupsafe import escape

    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    # Namespaces are only for standalone files; inside HTML they are known, and xlink's old form is not needed.
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(r"(\d+\.\d)\d+", r"\1", text)
    prefix = anchor + "-" + re.sub(r"\W", "", title)
    text = re.sub(r'(id="|href="#|url\(#)(?!pt-)', rf"\g<1>{prefix}-", text)
    for sentinel, css in _COLOURS.items():
        text = text.replace(sentinel, css)
    for gid, tip in points.items():
        text = text.replace(f'id="{prefix}-{gid}">', f'id="{prefix}-{gid}" class="pt"><title>{escape(tip)}</title>', 1)
    head = f'role="img" aria-label="{escape(title)}"'
    text = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', rf'<svg viewBox="\1" {head}>', text, count=1)
    start = text.index(">") + 1
    return f"{text[:start]}<title>{escape(title)}</title><desc>{escape(description)}</desc>{text[start:]}"


def describe(settings: dict[str, str]) -> str:
    """'mxfast=0, top_pad=4096', or 'nothing set'."""
    return ", ".join(f"{k}={v}" for k, v in settings.items()) or "nothing set"


def _change(ratio: float) -> float:
    return 100 * (ratio - 1)


def pareto_svg(view: StudyView, anchor: str) -> str:
    """Objective against objective, in per cent of the default; empty with fewer than two objectives."""
    if len(view.objectives) < 2 or not view.evaluations:
        return ""
    x_key, y_key = view.objectives[1], view.objectives[0]
    figure, axes = _figure(7.2, 4.2)
    tips: dict[str, str] = {}
    shown = [e for e in view.evaluations if e.feasible and x_key in e.ratios and y_key in e.ratios]
    members = sorted((e for e in shown if e.on_front), key=lambda e: e.ratios[x_key])
    dominated = [e for e in shown if not e.on_front]
    dominated = dominated[:: max(1, math.ceil(len(dominated) / MAX_DOMINATED))]

    def draw(evaluations: Sequence[Evaluation], colour: str, marker: str, size: float, label: str) -> None:
        for i, e in enumerate(evaluations):
            gid = f"e{e.number}"
            x, y = _change(e.ratios[x_key]), _change(e.ratios[y_key])
            name = label if i == 0 else None
            axes.plot([x], [y], marker, color=colour, markersize=size, gid=gid, label=name, linestyle="none")
            tips[gid] = (
                f"#{e.number}: {describe(e.config.settings)}\n"
                f"{METRICS[y_key].label} {y:+.1f}%, {METRICS[x_key].label} {x:+.1f}%, {e.runs} runs"
            )

    draw(dominated, _DOMINATED, "o", 3.5, "searched")
    if members:
        xs, ys = ([_change(e.ratios[k]) for e in members] for k in (x_key, y_key))
        axes.step(xs, ys, where="post", color=_FRONT, linewidth=1)
    draw(members, _FRONT, "o", 6, "Pareto front (search)")
    axes.plot([0], [0], MARKER["default"], color=COLOUR["default"], markersize=8, label="default", linestyle="none")
    for label, pick in view.distinct_picks():
        name = pick.name
        cx, cy = pick.confirmed.get(x_key), pick.confirmed.get(y_key)
        if cx is None or cy is None:
            continue
        x, y = _change(cx.ratio), _change(cy.ratio)
        axes.errorbar(
            [x],
            [y],
            xerr=[[x - _change(cx.low)], [_change(cx.high) - x]],
            yerr=[[y - _change(cy.low)], [_change(cy.high) - y]],
            fmt=MARKER[name],
            color=COLOUR[name],
            markersize=8,
            capsize=2,
            label=f"{label} pick, confirmed",
        )
    axes.set_xlabel(f"{METRICS[x_key].label}, % change against the default")
    axes.set_ylabel(f"{METRICS[y_key].label}, % change")
    axes.legend(fontsize=9)
    text = f"{len(shown)} settings; left and down is better; the picks with their confirmed 95% intervals."
    return _svg(figure, "Pareto front", text, tips, anchor)


def forest_svg(view: StudyView, anchor: str) -> str:
    """Every confirmed pick and objective as an interval around its ratio."""
    picks = view.distinct_picks()
    rows = [(n, p.name, k, p.confirmed[k]) for n, p in picks for k in view.objectives if k in p.confirmed]
    if not rows:
        return ""
    figure, axes = _figure(7.2, 0.7 + 0.34 * len(rows))
    margin = 100 * float(view.options.get("margin", 0.005))
    axes.axvspan(-margin, margin, color=_FAINT, alpha=0.5, linewidth=0)
    axes.axvline(0, color=_TEXT, linewidth=0.8)
    tips: dict[str, str] = {}
    for i, (label, name, key, c) in enumerate(reversed(rows)):
        x, low, high = _change(c.ratio), _change(c.low), _change(c.high)
        axes.plot([low, high], [i, i], color=COLOUR[name], linewidth=2, gid=f"f{i}")
        axes.plot([x], [i], MARKER[name], color=COLOUR[name], markersize=7)
        tips[f"f{i}"] = f"{label} pick, {METRICS[key].label}: {x:+.1f}% [{low:+.1f}, {high:+.1f}], {c.verdict}"
    axes.set_yticks(range(len(rows)), [f"{n}: {METRICS[k].short}" for n, _, k, _ in reversed(rows)])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("% change against the default")
    return _svg(figure, "Confirmed changes", "95% intervals; left of zero is better.", tips, anchor)


def memory_svg(view: StudyView, anchor: str) -> str:
    """Resident memory and mapped heap over time, default and picks."""
    if not view.series:
        return ""
    figure, axes = _figure(7.2, 3.6)
    top = max(max([*s.rss, *s.heap], default=1) for s in view.series.values())
    scale, unit = (2**30, "GiB") if top >= 2**30 else (2**20, "MiB") if top >= 2**20 else (2**10, "KiB")
    drawn: set[int] = set()
    for name, series in view.series.items():
        config = view.default.id if name == "default" else view.picks[name].config.id  # type: ignore[index]
        if config in drawn:
            continue
        drawn.add(config)
        label = next((label for label, p in view.distinct_picks() if p.config.id == config), name)
        style: dict[str, Any] = {"color": COLOUR[name], "linewidth": 1.4}
        axes.plot(series.t, [v / scale for v in series.rss], label=label, **style)
        axes.plot(series.t, [v / scale for v in series.heap], linestyle=(0, (3, 2)), alpha=0.7, **style)
    axes.set_xlabel("seconds since the start; solid: resident, dashed: mapped heap")
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=9)
    return _svg(figure, "Memory over time", f"One run each; the highest point is {show_bytes(top)}.", {}, anchor)
