"""Tables for people at a terminal; at most 80 columns, plain where stdout is no terminal."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heapwright.metrics import METRICS, NUMERIC
from heapwright.shown import visible
from heapwright.study.choose import chosen_pick
from heapwright.study.claim import headline
from heapwright.study.view import Confirmation, Pick, StudyView, Summary

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WIDEST = 100  # of a paragraph, however wide the terminal
_STYLES = {"better": "green", "worse": "red", "same": "", "unproven": "yellow"}


def percent(ratio: float) -> str:
    """0.828 → '−17.2%'."""
    return f"{100 * (ratio - 1):+.1f}%".replace("-", "−")


def interval(c: Confirmation) -> str:
    """'[−18.4, −15.9]', in per cent."""
    return f"[{100 * (c.low - 1):+.1f}, {100 * (c.high - 1):+.1f}]".replace("-", "−")


def ordered_picks(view: StudyView) -> list[tuple[str, Pick]]:
    """The picks by configuration, the one the claim speaks of first."""
    best = headline(view.picks, view.objectives)
    return sorted(view.distinct_picks(), key=lambda named: best is None or named[1].config.id != best.config.id)


def paragraph(text: str, width: int, indent: str = "") -> str:
    """Wrapped at spaces, later lines indented; intervals in brackets and 'p = 0.008' are never torn apart."""
    glue = "\ue000"  # of the private use area; stands for a space that must not break
    glued = re.sub(r"\[[^\[\]]{1,40}\]|\S+ [=<] \S+", lambda m: m[0].replace(" ", glue), " ".join(text.split()))
    lines = textwrap.wrap(
        glued,
        min(width, _WIDEST),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace(glue, " ")


def _table(*headings: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def measure_table(runs: Sequence[Mapping[str, Any]], summary: Mapping[str, Summary], console: Console) -> None:
    """What `measure` found: one line a metric; with several runs the median and the spread."""
    several = len(runs) > 1
    table = _table("metric", "median" if several else "value", *(["min … max", "MAD"] if several else []))
    for column in table.columns[1:]:
        column.justify = "right"
    for key in NUMERIC:
        metric, found = METRICS[key], summary.get(key)
        if found is None:
            table.add_row(metric.label, "n/a")
        elif several:
            spread = f"{metric.show(found.min)} … {metric.show(found.max)}"
            table.add_row(metric.label, metric.show(found.median), spread, metric.show(found.mad))
        else:
            table.add_row(metric.label, metric.show(found.median))
    console.print(table)


def print_summary(view: StudyView, console: Console, report: Path) -> None:
    """What `tune` says at its end: the claim, the confirmation, the line to paste, what to beware of."""

    def say(text: str, style: str | None = None, indent: str = "") -> None:
        wrapped = visible(paragraph(text, console.width, indent), "\n")
        console.print(wrapped, style=style, markup=False, soft_wrap=True)

    console.print()
    say(view.claim, "bold")
    if view.picks:
        console.print()
        console.print(_confirmation(view))
    console.print()
    pick = chosen_pick(view, None) if view.phase == "done" else None
    if pick is not None:
        console.print("paste:", style="bold")
        for key, value in pick.config.env.items():
            console.print(visible(f"  export {key}={shlex.quote(value)}"), markup=False, soft_wrap=True)
        for key in pick.config.settings:
            say(f"{key}: {view.explain(pick.config, key)}", indent="  ")
    for text in view.hazards:
        say(f"hazard: {text}", "yellow", "  ")
    for text in view.warnings:
        say(f"warning: {text}", "yellow", "  ")
    infeasible = sum(not e.feasible for e in view.evaluations)
    failed = f", {infeasible} of them crashed, timed out or changed the output" if infeasible else ""
    say(f"{len(view.evaluations)} settings searched{failed}; {how_searched(view)}; meter: {view.meter}")
    if view.quality:
        say(f"front of the search: {quality_text(view)}", indent="  ")
    console.print(visible(f"study:  {view.path}"), markup=False, soft_wrap=True)
    console.print(visible(f"report: {report}"), markup=False, soft_wrap=True)


def how_searched(view: StudyView) -> str:
    """'by gp (96 evaluations are few …), warm-started with 6 settings'."""
    warm = f", warm-started with {view.warm} settings" if view.warm else ""
    return f"by {view.method}{f' ({view.method_why})' if view.method_why else ''}{warm}"


def _percent(value: float) -> str:
    """Two significant digits, never an exponent."""
    return f"{value:.2g}%" if value < 99.5 else f"{value:.0f}%"


def quality_text(view: StudyView) -> str:
    """The front in figures, in one sentence; empty before the search."""
    q = view.quality
    if q is None:
        return ""
    spans = ", ".join(f"{100 * span:.1f}% of {METRICS[key].label}" for key, span in q.spans.items())
    slope = ""
    if q.slope is not None:
        first, second = (METRICS[k].label for k in view.objectives)
        slope = f"; each 1% less {first} costs {_percent(-q.slope)} of {second}"
    members = f"{q.size} {'member' if q.size == 1 else 'members'}"
    reach = f", spanning {spans}{slope}" if q.size > 1 else ""
    return (
        f"{members}{reach}; hypervolume {q.hypervolume:.4f} against {q.reference:g} times the default"
        f" (the default alone: {q.default_hypervolume:.4g})"
    )


def _confirmation(view: StudyView) -> Table:
    from rich.text import Text

    table = _table("pick", "metric", "default", "pick", "change", "95% interval", "verdict")
    for column in table.columns[2:]:  # names give way before figures do
        column.no_wrap = True
        column.justify = "right" if column.header != "verdict" else "left"
    for label, pick in ordered_picks(view):
        for key in view.objectives:
            c = pick.confirmed.get(key)
            if c is None:
                continue
            metric, style = METRICS[key], _STYLES[c.verdict]
            verdict = Text(c.verdict, style)
            values = (metric.show(c.default_median), metric.show(c.pick_median))
            table.add_row(label, metric.short, *values, percent(c.ratio), interval(c), verdict)
            label = ""
    return table
