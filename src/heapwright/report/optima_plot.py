"""Describes the measures of a landscape in words and as JSON, and draws its local optima network."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heapwright.report.landscape import draw_scale
from heapwright.report.matplotlib_cache import load_matplotlib
from heapwright.report.picture import write_picture
from heapwright.study.landscape_analysis import LandscapeAnalysis, analyse_landscape

if TYPE_CHECKING:
    from heapwright.study.landscape_result import LandscapeResult


def analysis_of(landscape: LandscapeResult) -> LandscapeAnalysis:
    """Return the measures of a swept landscape. Differences below twice the noise of a comparison count as none."""
    costs = [None if p.ratio is None else math.log(p.ratio) for p in landscape.points]
    tolerance = 2 * math.sqrt(2) * landscape.error
    return analyse_landscape(costs, [len(a.values) for a in landscape.axes], tolerance)


def _number(value: float | None, form: str) -> str:
    return "n/a" if value is None else "infinite" if math.isinf(value) else form.format(value)


def analysis_text(found: LandscapeAnalysis) -> str:
    """Return the measures in one sentence."""
    optima = len(found.network.optima)
    return (
        f"neutrality {_number(found.neutrality, '{:.0%}')} of steps within ±{100 * found.tolerance:.2f}%; correlation"
        f" length {_number(found.correlation_length, '{:.1f} steps')}; fitness-distance correlation"
        f" {_number(found.fitness_distance, '{:.2f}')}; {optima} local {'optimum' if optima == 1 else 'optima'}"
    )


def analysis_json(landscape: LandscapeResult) -> dict[str, Any]:
    """Return the measures as `landscape --json` writes them; an infinite length is null."""
    found = analysis_of(landscape)
    length = found.correlation_length

    def settings(point: int) -> dict[str, str]:
        return {a.key: v for a, v in zip(landscape.axes, landscape.points[point].values, strict=True)}

    return {
        "tolerance": found.tolerance,
        "neutrality": found.neutrality,
        "autocorrelation": found.autocorrelation,
        "correlation_length": None if length is None or math.isinf(length) else length,
        "fitness_distance_correlation": found.fitness_distance,
        "local_optima": [
            {"settings": settings(o.point), "ratio": math.exp(o.cost), "basin": o.basin} for o in found.network.optima
        ],
        "transitions": [{"from": a, "to": b, "probability": p} for (a, b), p in sorted(found.network.edges.items())],
    }


def plot_optima(landscape: LandscapeResult, out: Path) -> None:
    """Draw the local optima network: a node for each optimum, its area by the basin, lines by the probability.

    Raises:
        OSError: the file cannot be written.
    """
    load_matplotlib("agg")
    from matplotlib.figure import Figure

    network = analysis_of(landscape).network
    figure = Figure(figsize=(8, 5.6), layout="constrained")
    axes = figure.subplots()
    plane = len(landscape.axes) == 2
    places = []
    for optimum in network.optima:
        values = landscape.points[optimum.point].values
        x = landscape.axes[0].at(values[0])
        places.append((x, landscape.axes[1].at(values[1]) if plane else math.exp(optimum.cost)))
    for (a, b), probability in network.edges.items():
        if a != b:
            axes.annotate(
                "",
                places[b],
                places[a],
                arrowprops={
                    "arrowstyle": "-|>",
                    "connectionstyle": "arc3,rad=0.25",
                    "linewidth": 0.4 + 3 * probability,
                    "color": "#888",
                    "shrinkA": 8,
                    "shrinkB": 8,
                },
            )
    total = sum(o.basin for o in network.optima) or 1
    drawn = axes.scatter(
        [x for x, _ in places],
        [y for _, y in places],
        s=[40 + 1200 * o.basin / total for o in network.optima],
        c=[math.exp(o.cost) for o in network.optima],
        cmap="viridis",
        edgecolors="#333",
        zorder=3,
    )
    figure.colorbar(drawn, ax=axes, label="ratio to the default")
    draw_scale(axes, "x", landscape.axes[0])
    if plane:
        draw_scale(axes, "y", landscape.axes[1])
    else:
        axes.set_ylabel("ratio to the default")
    axes.margins(0.15)
    axes.set_title("Local optima; the area is the basin, a line the probability of a random step", fontsize=9)
    write_picture(figure, out)
