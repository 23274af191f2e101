"""Writes a landscape as lines for a terminal, JSON, CSV and a picture.

A point is one combination of values of the swept settings. The picture of one setting is a curve, mostly
over a logarithmic axis; of two settings a heat map. Both mark the default, and the lowest point with a star, which is
filled if fresh runs show that the point is better than the default. Arrows point to lower values, where points differ
by more than noise.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heapwright.errors import UsageError
from heapwright.metrics import METRICS, show_bytes
from heapwright.report.matplotlib_cache import load_matplotlib
from heapwright.report.picture import write_picture
from heapwright.report.terminal import paragraph
from heapwright.study.landscape_axes import SweptAxis
from heapwright.study.landscape_result import FreshComparison, LandscapePoint, LandscapeResult
from heapwright.terminal_text import counted
from heapwright.units import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_BARS = "▁▂▃▄▅▆▇█"
_MAX_ARROWS = 17  # along each axis of a heat map


def check_plot(out: Path | None, option: str = "--plot") -> None:
    """Check the format of the picture before anything is measured; `option` names it.

    Raises:
        UsageError: the suffix is not .svg, .png or .pdf.
    """
    if out is not None and out.suffix not in (".svg", ".png", ".pdf"):
        raise UsageError(
            f"{option} {out}: unknown picture format '{out.suffix}'", "use a name that ends in .svg, .png or .pdf"
        )


def value_text(axis: SweptAxis, value: str | float) -> str:
    """Return a value of an axis as text: '131072' → '128 KiB' on an axis of bytes."""
    if axis.unit != "B" or axis.scale == "names":
        return f"{value:g}" if isinstance(value, float) else str(value)
    return show_bytes(float(value)).replace(".00 ", " ").replace(".0 ", " ")


def point_text(landscape: LandscapeResult, point: LandscapePoint) -> str:
    """Return the settings of a point: 'mmap_threshold=512, trim_threshold=128 KiB'."""
    return ", ".join(f"{a.key}={value_text(a, v)}" for a, v in zip(landscape.axes, point.values, strict=True))


def landscape_lines(landscape: LandscapeResult, width: int) -> list[str]:
    """Return the lines for a terminal of `width` columns."""
    metric = METRICS[landscape.metric]
    measured = [p for p in landscape.points if p.ratio is not None]
    failed = [p for p in landscape.points if p.failure]
    names = " × ".join(a.key for a in landscape.axes)
    grid = f" of {' × '.join(str(len(a.values)) for a in landscape.axes)}" if len(landscape.axes) > 1 else ""
    texts = [f"{metric.label} over {names}, {landscape.allocator}: {counted(len(measured), 'point')}{grid} measured"]
    if failed:
        example = f"{point_text(landscape, failed[0])}: {failed[0].failure}"
        texts.append(f"{counted(len(failed), 'point')} failed, for example {example}")
    if len(landscape.axes) == 1 and measured:
        texts += _profile(landscape)
    texts.append(f"default: {metric.show(landscape.default_median)}")
    if landscape.best is not None and landscape.best.ratio is not None:
        texts.append(_best_line(landscape, landscape.best))
        texts.append(f"shape: {shape_text(landscape)}")
        texts.append(noise_text(landscape))
        texts.append("'heapwright tune' searches all settings together and confirms what it finds.")
    return [paragraph(text, width, "  ") for text in texts]


def _best_line(landscape: LandscapeResult, best: LandscapePoint) -> str:
    """Return the sentence on the lowest point: whether fresh runs show that it is better than the default."""
    point, median = point_text(landscape, best), METRICS[landscape.metric].show(best.median)
    if landscape.gain is None:
        return f"lowest: {point}: {median}, {percent(best.ratio or 1.0)}; not measured again"
    fresh = f"{fresh_text(landscape.gain)} in {counted(landscape.gain.pairs, 'fresh pair')} with the default"
    if landscape.gains:
        return f"best: {point}: {median}, {fresh}"
    return (
        f"no point is shown to be better than the default: the lowest of the sweep, {point},"
        f" had {percent(best.ratio or 1.0)} there and {fresh}"
    )


def fresh_text(fresh: FreshComparison) -> str:
    """Return a change with its interval: '−13.9% [−14.2, −13.5]'."""
    low, high = (percent(r).removesuffix("%") for r in (fresh.ratio.low, fresh.ratio.high))
    return f"{percent(fresh.ratio.value)} [{low}, {high}]"


def noise_text(landscape: LandscapeResult) -> str:
    """Return the noise by which differences between points are judged."""
    repeated = counted(landscape.repeated, "point")
    text = f"noise: ±{100 * landscape.error:.2f}% for one point, from {repeated} that ran more than once"
    if landscape.contrast is None:
        return text
    contrast = landscape.contrast
    return f"{text}; highest against lowest point in {counted(contrast.pairs, 'fresh pair')}: {fresh_text(contrast)}"


def shape_text(landscape: LandscapeResult) -> str:
    """Return the shape with its figures in words."""
    s = landscape.smoothness
    verdict = s.verdict
    if landscape.gains and landscape.contrast is not None and not landscape.differs:
        verdict += ": points are not told apart, but the lowest one is better than the default"
    if s.step is None:
        return verdict
    correlation = "" if s.autocorrelation is None else f", autocorrelation of neighbours {s.autocorrelation:.2f}"
    return (
        f"{verdict}{correlation}; neighbours differ by {100 * s.step:.2f}%,"
        f" by noise alone they would by {100 * s.noise_step:.2f}%"
    )


def _profile(landscape: LandscapeResult) -> list[str]:
    """Return a curve of block characters; a higher block is a larger ratio."""
    axis = landscape.axes[0]
    ratios = [p.ratio for p in landscape.points]
    known = [r for r in ratios if r is not None]
    low, high = min(known), max(known)
    reach = (high - low) or 1.0
    bars = "".join(" " if r is None else _BARS[min(7, int(8 * (r - low) / reach))] for r in ratios)
    ends = f"{value_text(axis, axis.values[0])} … {value_text(axis, axis.values[-1])}"
    return [f"{bars}  {ends}; from {percent(low)} to {percent(high)}"]


# The picture


def plot_landscape(landscape: LandscapeResult, out: Path) -> None:
    """Write the picture, completely or not at all.

    Raises:
        OSError: `out` cannot be written.
    """
    load_matplotlib("agg")
    from matplotlib.figure import Figure

    plane = len(landscape.axes) == 2
    figure = Figure(figsize=(8, 6.4) if plane else (8, 4.6), layout="constrained")
    axes = figure.subplots()
    if plane:
        _heat(figure, axes, landscape)
    else:
        _curve(axes, landscape)
    axes.set_title(
        f"{METRICS[landscape.metric].label}, ratio to the default; {shape_text(landscape)}", fontsize=9, wrap=True
    )
    figure.legend(loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    write_picture(figure, out)


def draw_scale(axes: Axes, which: str, axis: SweptAxis, ticks: int = 12) -> None:
    """Set scale, ticks and label of one side of a picture.

    Args:
        axes: matplotlib's axes.
        which: 'x' or 'y'.
        axis: the setting on that side.
        ticks: how many ticks a logarithmic axis has at most.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator

    side = axes.xaxis if which == "x" else axes.yaxis
    if axis.scale == "log2":
        getattr(axes, f"set_{which}scale")("log", base=2)
        side.set_major_locator(LogLocator(base=2, numticks=ticks))
        side.set_major_formatter(FuncFormatter(lambda v, _: value_text(axis, float(v)) if v >= 1 else ""))
        side.set_minor_locator(LogLocator(base=2, numticks=99))
        side.set_minor_formatter("")
    elif axis.scale == "names":
        side.set_ticks(range(len(axis.values)), axis.values)
    getattr(axes, f"set_{which}label")(axis.key)


def _curve(axes: Axes, landscape: LandscapeResult) -> None:
    axis = landscape.axes[0]
    points = [(axis.at(p.values[0]), p.ratio) for p in landscape.points if p.ratio is not None]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    draw_scale(axes, "x", axis)
    axes.axhline(1, color="#333", linewidth=1.2, label="default (unset)")
    if axis.default is not None:
        axes.axvline(axis.default, color="#333", linewidth=0.8, linestyle=":", label="initial value when unset")
    axes.fill_between(
        xs, [y * math.exp(-2 * landscape.error) for y in ys], [y * math.exp(2 * landscape.error) for y in ys],
        color="#0a7", alpha=0.15, linewidth=0,
    )  # fmt: skip
    axes.plot(xs, ys, "o-", color="#0a7", markersize=3, linewidth=1.2)
    threshold = max(2 * math.sqrt(2) * landscape.error, 5e-4)
    for (x0, y0), (x1, y1) in itertools.pairwise(points) if landscape.differs else ():
        if abs(math.log(y1 / y0)) > threshold:
            start, end = ((x0, y0), (x1, y1)) if y1 < y0 else ((x1, y1), (x0, y0))
            axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": "#c50", "lw": 1.1})
    failed = [axis.at(p.values[0]) for p in landscape.points if p.failure]
    if failed:
        axes.plot(failed, [1.0] * len(failed), "x", color="#b00", label="failed")
    _mark_best(axes, landscape)
    axes.set_ylabel("ratio to the default (down is better)")
    axes.grid(linewidth=0.3)
    axes.set_axisbelow(True)


def _heat(figure: Figure, axes: Axes, landscape: LandscapeResult) -> None:
    import numpy as np
    from matplotlib.colors import TwoSlopeNorm

    first, second = landscape.axes
    shape = (len(first.values), len(second.values))
    logs = np.array([math.nan if p.ratio is None else math.log(p.ratio) for p in landscape.points]).reshape(shape)
    ratios = np.exp(logs)
    xs, ys = (np.array([a.at(v) for v in a.values]) for a in (first, second))
    draw_scale(axes, "x", first)
    draw_scale(axes, "y", second)
    # Values beyond the 95th percentile share the last colour; otherwise few very bad points would
    # hide the shape.
    known = ratios[~np.isnan(ratios)] if (~np.isnan(ratios)).any() else np.array([1.0])
    low, high = min(float(known.min()), 0.999), max(float(np.quantile(known, 0.95)), 1.001)
    norm = TwoSlopeNorm(1.0, low, high)
    cells = (edges(a, at) for a, at in ((first, xs), (second, ys)))
    mesh = axes.pcolormesh(*cells, ratios.T, cmap="RdYlBu_r", norm=norm, rasterized=True)
    bar = figure.colorbar(mesh, ax=axes, label="ratio to the default (blue is better)", extend="max")
    bar.set_ticks(
        [low, 1.0, 1 + (high - 1) / 2, high], labels=[f"{v:.3g}" for v in (low, 1.0, 1 + (high - 1) / 2, high)]
    )
    _arrows(axes, landscape, logs, xs, ys)
    if first.default is not None or second.default is not None:
        x, y = (a.default if a.default is not None else float(v[0]) for a, v in ((first, xs), (second, ys)))
        look: dict[str, Any] = {"color": "#333", "markersize": 9, "fillstyle": "none", "markeredgewidth": 1.8}
        axes.plot([x], [y], "s", **look, ls="none", label="initial value when unset")
    failed = [p for p in landscape.points if p.failure]
    if failed:
        at = [(first.at(p.values[0]), second.at(p.values[1])) for p in failed]
        axes.plot(*zip(*at, strict=True), "x", color="#b00", ls="none", markersize=4, label="failed")
    _mark_best(axes, landscape)


def edges(axis: SweptAxis, at: Any) -> Any:
    """Return the edges of the cells around positions on an axis: halfway between them, on a log axis in the exponent.

    Args:
        axis: the setting.
        at: (n,) array of positions.

    Returns:
        (n + 1,) array of edges.
    """
    import numpy as np

    logs = np.log2(at) if axis.scale == "log2" else at
    if len(logs) == 1:
        ends = np.array([logs[0] - 0.5, logs[0] + 0.5])
    else:
        middle = (logs[1:] + logs[:-1]) / 2
        ends = np.concatenate([[2 * logs[0] - middle[0]], middle, [2 * logs[-1] - middle[-1]]])
    return np.exp2(ends) if axis.scale == "log2" else ends


def _arrows(axes: Axes, landscape: LandscapeResult, logs: Any, xs: Any, ys: Any) -> None:
    """Draw arrows of equal length that point downhill, where the slope over two steps exceeds the noise.

    Args:
        axes: matplotlib's axes.
        landscape: gives the noise.
        logs: (n_x, n_y) array of log ratios.
        xs, ys: (n_x,) and (n_y,) arrays of positions.
    """
    import numpy as np

    if min(logs.shape) < 3 or not landscape.differs:
        return
    down = [-g for g in np.gradient(logs)]
    size = np.hypot(*down)
    steep = size > max(math.sqrt(2) * landscape.error, 2e-4)
    strides = [max(1, math.ceil(n / _MAX_ARROWS)) for n in logs.shape]
    chosen = np.zeros_like(steep)
    chosen[:: strides[0], :: strides[1]] = True
    i, j = np.nonzero(steep & chosen)
    if len(i):
        u, v = (g[i, j] / size[i, j] for g in down)
        axes.quiver(xs[i], ys[j], u, v, angles="uv", scale=42, width=0.0022, color="#222", alpha=0.7)


def _mark_best(axes: Axes, landscape: LandscapeResult) -> None:
    best = landscape.best
    if best is None or best.ratio is None:
        return
    x = landscape.axes[0].at(best.values[0])
    y = best.ratio if len(landscape.axes) == 1 else landscape.axes[1].at(best.values[1])
    if landscape.gains and landscape.gain is not None:
        label = f"best: {point_text(landscape, best)} ({fresh_text(landscape.gain)})"
    else:
        label = f"lowest: {point_text(landscape, best)} ({percent(best.ratio)}), not shown to be better"
    look: dict[str, Any] = {"color": "#c2185b", "markeredgecolor": "white"}
    if not landscape.gains:
        look = {"color": "none", "markeredgecolor": "#c2185b"}
    axes.plot([x], [y], "*", markersize=15, label=label, ls="none", zorder=5, **look)
