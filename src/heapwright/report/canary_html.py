"""Renders a canary as one self-contained HTML page: the claims, both curves, and the ratio over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heapwright.canary.blocks import RatioSeries
from heapwright.canary.judge import CanaryResult
from heapwright.canary.run import CLAIMS, LABELS, CanaryState
from heapwright.report.canary import canary_sentence, notes, show_change, show_value
from heapwright.report.drawing import COLOUR, MUTED, figure_of, picture
from heapwright.report.page import render_page, save_page
from heapwright.terminal_text import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_POINTS = 240  # of a curve; a page for a week is as small as one for an hour


def write_page(found: CanaryState, out: Path) -> None:
    """Write the page to a file, completely or not at all.

    Args:
        found: the canary so far.
        out: the file.

    Raises:
        HeapwrightError: the file cannot be written.
    """
    save_page(render(found), out)


def render(found: CanaryState) -> str:
    """Return the page as text."""
    from markupsafe import Markup

    numbers = [
        {
            "label": visible(LABELS.get(name, name)),
            # drawing.picture made the picture and escaped all text, so it is marked as safe.
            "svg": Markup(_curves(name, found.blocks[name], result, f"number{i}")),
            "cells": (
                show_value(name, result.control),
                show_value(name, result.treatment),
                show_change(result),
                result.verdict,
            ),
        }
        for i, (name, result) in enumerate(found.results.items())
    ]
    return render_page(
        "canary.html.j2",
        head=visible(f"{', '.join(found.header.treatment)} beside {', '.join(found.header.control)}"),
        kind="" if any(r.verdict in CLAIMS for r in found.results.values()) else "trade",
        sentence=canary_sentence(found),
        numbers=numbers,
        notes=notes(found),
    )


def _thinned(values: Sequence[float]) -> list[float]:
    """Means of equal runs of values, at most `_MAX_POINTS`."""
    step = -(-len(values) // _MAX_POINTS) or 1
    return [sum(values[i : i + step]) / len(values[i : i + step]) for i in range(0, len(values), step)]


def _curves(name: str, blocks: RatioSeries, result: CanaryResult, key: str) -> str:
    if len(blocks.times) < 2:
        return ""
    label = visible(LABELS.get(name, name))
    text = (
        f"{label} over time: control {show_value(name, result.control)}, treatment"
        f" {show_value(name, result.treatment)}, change {show_change(result)}."
    )
    return picture(lambda narrow: _draw(name, blocks, result, narrow), "canary", key, label, text)


def _draw(name: str, blocks: RatioSeries, result: CanaryResult, narrow: bool) -> tuple[Figure, dict[str, str]]:
    figure, (left, right) = figure_of(
        narrow, 5.4 if narrow else 3.2, columns=1 if narrow else 2, rows=2 if narrow else 1
    )
    per, unit = (3600.0, "hours") if blocks.times[-1] > 7200 else (60.0, "minutes")
    times = [t / per for t in _thinned(blocks.times)]
    scale = 2**20 if name == "memory_bytes" else 0.01 if name == "cpu_share" else 1
    shown = {"memory_bytes": "MiB", "cpu_share": "% of a CPU", "faults_per_s": "per second"}.get(name, "value")
    for side, colour, values in (
        ("control", MUTED, blocks.control),
        ("treatment", COLOUR["memory"], blocks.treatment),
    ):
        left.plot(times, [v / scale for v in _thinned(values)], color=colour, linewidth=1.6, label=side)
    left.set_title(shown, loc="left")
    left.set_ylim(bottom=0)
    ratio = [100 * (t / c - 1) for c, t in zip(_thinned(blocks.control), _thinned(blocks.treatment), strict=True)]
    right.plot(times, ratio, color=COLOUR["memory"], linewidth=1.2)
    if result.low is not None and result.high is not None and result.ratio is not None:
        right.axhspan(100 * (result.low - 1), 100 * (result.high - 1), color=COLOUR["memory"], alpha=0.15, linewidth=0)
        right.axhline(100 * (result.ratio - 1), color=COLOUR["memory"], linewidth=1.0, linestyle="--")
    right.axhline(0, color=MUTED, linewidth=0.8)
    right.set_title("treatment over control, change in % and its interval", loc="left")
    for axes in (left, right):
        axes.set_xlim(left=0)
        axes.set_xlabel(f"{unit} since the first reading")
    figure.legend(loc="outside upper left", ncols=2)
    return figure, {}
