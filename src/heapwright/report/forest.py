"""Draws forest plots: confirmed changes, their pairs, the effect of each setting, and several studies side by side.

All share one layout. Below a heading, each line has a label, an interval and its figures. A line marks zero, and a band
marks the equivalence margin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from heapwright.interleaving.phases import Phase
from heapwright.metrics import METRICS
from heapwright.report.drawing import COLOUR, FAINT, MARKER, TEXT, figure_of, picture
from heapwright.report.terminal import interval, ordered_picks
from heapwright.study.claim import recommended_pick
from heapwright.study.view import Pick, StudyView
from heapwright.units import percent, percent_change, percent_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Line(NamedTuple):
    """One line of a plot; a heading if it has no change.

    Attributes:
        label, short: the text to the left, in the wide and in the narrow picture.
        name: the pick, or 'default', that gives its colour and marker.
        change: the ratio to the default and the ends of its interval.
        text: the figures to the right.
        dots: the ratio of each pair and its tooltip.
    """

    label: str
    short: str
    name: str
    change: tuple[float, float, float] | None = None
    text: str = ""
    dots: Sequence[tuple[float, str]] = ()


def margin_percent(view: StudyView) -> float:
    """Return the equivalence margin in per cent."""
    return 100 * float(view.options.get("margin", 0.005))


def described(lines: Sequence[Line]) -> str:
    """Return the lines in words, for readers who cannot see the picture."""
    parts = [f"{line.label}: {line.text}." if line.change else f"{line.label}:" for line in lines]
    return " ".join(parts)


def forest_svg(view: StudyView, anchor: str) -> str:
    """Draw the change of every objective with its interval, for every confirmed pick."""
    lines: list[Line] = []
    for label, pick in ordered_picks(view):
        found = _confirmed(view, pick)
        if found:
            lines += [Line(f"{label} pick", "", pick.name), *found]
    if not lines:
        return ""
    text = f"Change from the default in per cent, with 95% intervals; left of zero is better. {described(lines)}"
    return picture(
        lambda narrow: draw(lines, margin_percent(view), narrow), anchor, "forest", "Confirmed changes", text
    )


def _confirmed(view: StudyView, pick: Pick) -> list[Line]:
    return [
        Line(
            METRICS[key].label,
            METRICS[key].short,
            pick.name,
            (c.ratio, c.low, c.high),
            f"{percent(c.ratio)} {interval(c)} {c.verdict_text}",
        )
        for key in view.objectives
        if (c := pick.confirmed.get(key)) is not None
    ]


def pairs_svg(view: StudyView, anchor: str) -> str:
    """Draw each pair of the confirmation as a dot, in the order of measurement from bottom to top."""
    lines: list[Line] = []
    for label, pick in ordered_picks(view):
        if not pick.pairs or not pick.confirmed:
            continue
        lines.append(Line(f"{label} pick", "", pick.name))
        for line, key in zip(_confirmed(view, pick), [k for k in view.objectives if k in pick.confirmed], strict=True):
            dots = []
            for number, pair in enumerate(pick.pairs, 1):
                before, after = pair.default.get(key), pair.pick.get(key)
                if before and after:
                    metric, on = METRICS[key], f" ({pair.input})" if pair.input != "default" else ""
                    values = f"{metric.show(before)} → {metric.show(after)}"
                    dots.append((after / before, f"pair {number}{on}: {values}, {percent(after / before)}"))
            better = sum(ratio < 1 for ratio, _ in dots)
            lines.append(line._replace(dots=dots, text=f"{better} of {len(dots)} pairs lower"))
    if not lines:
        return ""
    text = (
        f"Change from the default in per cent, for every confirmation pair; left of zero is better. {described(lines)}"
    )
    return picture(
        lambda narrow: draw(lines, margin_percent(view), narrow), anchor, "pairs", "Confirmation pairs", text
    )


def removals_svg(view: StudyView, anchor: str) -> str:
    """Draw the change when one setting is removed; right of zero means that the setting helps."""
    lines: list[Line] = []
    for label, pick in ordered_picks(view):
        if not any(r.changes for r in pick.removals):
            continue
        lines.append(Line(f"{label} pick without", "", pick.name))
        largest_loss = {r.key: max((c[0] for c in r.changes.values()), default=math.inf) for r in pick.removals}
        for r in sorted(pick.removals, key=lambda r: -largest_loss[r.key]):
            for key, (ratio, low, high) in r.changes.items():
                metric = METRICS[key]
                text = f"{percent(ratio)} {percent_interval(low, high)} {'kept' if r.kept else 'dropped'}"
                label = f"{r.key}: {metric.label}"
                lines.append(Line(label, f"{r.key}: {metric.short}", pick.name, (ratio, low, high), text))
    if not lines:
        return ""
    text = f"Change in per cent when one setting is removed, with 95% intervals. {described(lines)}"
    margin = margin_percent(view)
    side = "% change without it (right: the setting helps)"
    return picture(lambda n: draw(lines, margin, n, side), anchor, "worth", "Effect of each setting", text)


def studies_svg(views: Sequence[StudyView], titles: Sequence[str]) -> str:
    """Draw the changes of the pick of each study's claim, one study below the other."""
    lines: list[Line] = []
    for number, (view, title) in enumerate(zip(views, titles, strict=True), 1):
        best = recommended_pick(view.picks, view.objectives)
        if best is not None and view.phase == Phase.DONE:
            short = title if len(title) <= 32 else title[:31] + "…"
            lines += [Line(f"{number}. {short}", "", best.name), *_confirmed(view, best)]
    if not lines:
        return ""
    margin = max(margin_percent(view) for view in views)
    text = f"The pick of each study's claim: change from its default in per cent. {described(lines)}"
    return picture(lambda narrow: draw(lines, margin, narrow), "all", "studies", "Studies compared", text)


def draw(
    lines: Sequence[Line], margin: float, narrow: bool, side: str = "% change from the default (left is better)"
) -> tuple[Figure, dict[str, str]]:
    """Draw the lines, the first at the top.

    Args:
        lines: headings and intervals.
        margin: half-width of the band around zero, per cent.
        narrow: whether the picture is for a phone; it then has no tooltips.
        side: label of the x axis.

    Returns:
        The figure, and the tooltip of each element id.
    """
    dotted = any(line.dots for line in lines)
    line_height = (0.58 if narrow else 0.4) if dotted else (0.42 if narrow else 0.27)
    figure, (axes,) = figure_of(narrow, 0.6 + line_height * len(lines))
    if not narrow:
        axes.axvspan(-margin, margin, color=FAINT, linewidth=0)
        axes.axvline(0, color=TEXT, linewidth=0.8)
    tips: dict[str, str] = {}
    across = axes.get_yaxis_transform()
    for i, line in enumerate(reversed(lines)):
        colour = COLOUR[line.name]
        if line.change is None:
            x, y, at = (0.0, i - 0.25, "left") if narrow else (-0.03, i - 0.1, "right")
            axes.text(x, y, line.label, transform=across, ha=at, va="center", color=colour, fontweight="bold")
            continue
        value, low, high = map(percent_change, line.change)
        here = i - 0.22 if narrow else i
        if narrow:  # text is between the lines, so the band and the zero line must not cross it
            axes.fill_between([-margin, margin], here - 0.2, here + 0.2, color=FAINT, linewidth=0)
            axes.plot([0, 0], [here - 0.2, here + 0.2], color=TEXT, linewidth=0.8)
        if line.dots:
            axes.fill_between([low, high], here - 0.3, here + 0.3, color=colour, linewidth=0, alpha=0.18)
            axes.plot([value, value], [here - 0.3, here + 0.3], color=colour, linewidth=1.5)
            xs = [percent_change(ratio) for ratio, _ in line.dots]
            ys = [here - 0.3 + 0.6 * (number + 0.5) / len(xs) for number in range(len(xs))]
            look: dict[str, Any] = {"marker": "o", "color": colour, "markersize": 3, "clip_on": False, "ls": "none"}
            if narrow:
                axes.plot(xs, ys, **look)
            else:
                for number, (x, y, (_, tip)) in enumerate(zip(xs, ys, line.dots, strict=True)):
                    axes.plot([x], [y], **look, gid=f"p{i}-{number}")
                    tips[f"p{i}-{number}"] = tip
        else:
            axes.plot([low, high], [here, here], color=colour, linewidth=2.5, gid=f"f{i}", solid_capstyle="butt")
            axes.plot([value], [here], MARKER[line.name], color=colour, markersize=6)
            tips[f"f{i}"] = f"{line.label}: {line.text}"
        if narrow:
            axes.text(0, i + 0.22, f"{line.short} {line.text}", transform=across, va="center", fontsize=9)
        else:
            axes.text(-0.03, i, line.label, transform=across, ha="right", va="center")
            axes.text(1.02, i, line.text, transform=across, ha="left", va="center")
    axes.set_yticks([])
    axes.set_ylim(-0.7, len(lines) - 0.4)
    axes.grid(visible=False, axis="both" if narrow else "y")
    axes.spines["left"].set_visible(False)
    axes.margins(x=0.08)
    axes.set_xlabel(side)
    return figure, {} if narrow else tips
