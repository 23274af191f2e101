"""Draws the results of the benchmark suite as the papers do: cost, memory, run time and speed-up over threads.

An allocator has the same colour and marker in all figures. The same library in another environment (`-nothp`) has the
colour of its allocator, a hollow marker and a dashed line. Points are medians. Their bars go from the minimum to the
maximum of the rounds. Points of one thread count are drawn slightly apart, so that their bars do not overlap.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heapwright.comparison.bench import Suite
from heapwright.comparison.bench_results import Cell, overall
from heapwright.comparison.suite import Benchmark
from heapwright.files import write_whole
from heapwright.report.benchmarks import time_key
from heapwright.report.matplotlib_cache import load_matplotlib
from heapwright.terminal_text import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point = tuple[float, float, float, float]  # x, median, minimum, maximum

# Neighbouring colours differ in lightness, for readers who are colour-blind; markers tell apart the
# others.
_COLOURS = (
    "#222222",
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#8c6d1f",
    "#56b4e9",
    "#e69f00",
    "#6a3d9a",
    "#a6cee3",
    "#b2182b",
    "#66a61e",
    "#7f7f7f",
)
_MARKERS = "os^DvPX*<>phd"
_UNIT = {"s": (1e3, "ms"), "bytes": (1 / (1 << 20), "MiB")}
_AXIS = {
    "ns_per_pair": "CPU time per malloc/free pair, minus the void allocator's [ns]",
    "cycles_per_pair": "cycles per malloc/free pair, minus the void allocator's",
    "overhead": "peak RSS / live bytes",
    "wall_s": "run time [ms]",
    "rss_bytes": "RSS at the end, when no block is live [MiB]",
}
_SPEED_UPS = ("scalability", "cache-thrash", "cache-scratch")
_THREADS = "threads"


def _styles(suite: Suite) -> dict[str, dict[str, Any]]:
    """Return colour and marker of each allocator, and whether it is a variant of another."""
    names = [a.name for a in suite.allocators]
    styles: dict[str, dict[str, Any]] = {}
    number = 0
    for name in names:
        base = next((n for n in styles if name.startswith(f"{n}-") and not styles[n]["variant"]), None)
        if base is None:
            colour, marker = _COLOURS[number % len(_COLOURS)], _MARKERS[number % len(_MARKERS)]
            number += 1
        else:
            colour, marker = styles[base]["colour"], styles[base]["marker"]
        styles[name] = {"colour": colour, "marker": marker, "variant": base is not None}
    return styles


def _new(suite: Suite, title: str, x: str, y: str, bars: str = "minimum to maximum") -> tuple[Figure, Axes]:
    """Return an empty figure.

    Args:
        suite: gives the number of rounds and the state of huge pages, which the top right corner shows.
        title: at the top left.
        x, y: labels of the axes.
        bars: what the error bars show; empty if there are none.
    """
    mpl = load_matplotlib("svg")
    mpl.rcParams.update(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "heapwright",
            "font.size": 10,
            "font.family": "sans-serif",
        }
    )
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 4.6), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, loc="left", fontsize=11)
    rounds = f"{counted(suite.rounds, 'round')}, bars: {bars}; " if bars else ""
    axes.set_title(f"{rounds}THP {suite.host['thp'] or 'n/a'}", loc="right", fontsize=8, color="#666")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(linewidth=0.4, color="#ccc")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _log_x(axes: Axes, values: Sequence[float], label: Callable[[float], str] = lambda v: f"{v:g}") -> None:
    """Set a logarithmic x axis with a tick at each measured value, and with room for points drawn apart."""
    from matplotlib.ticker import FixedLocator, NullLocator

    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(list(values)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(list(values), [label(v) for v in values])
    axes.set_xlim(min(values) / 1.25, max(values) * 1.25)


def _draw(axes: Axes, suite: Suite, lines: dict[str, list[Point]], log: bool = False) -> None:
    """Draw one line for each allocator.

    Args:
        axes: matplotlib's axes.
        suite: gives the order of allocators.
        lines: allocator → points.
        log: use a logarithmic y axis if the values are far apart.
    """
    styles = _styles(suite)
    for number, (name, points) in enumerate(lines.items()):
        style = styles[name]
        shift = 2 ** (0.16 * (number / max(1, len(lines) - 1) - 0.5))
        axes.errorbar(
            [x * shift for x, *_ in points],
            [median for _, median, _, _ in points],
            yerr=[[m - low for _, m, low, _ in points], [high - m for _, m, _, high in points]],
            color=style["colour"],
            marker=style["marker"],
            markerfacecolor="white" if style["variant"] else style["colour"],
            linestyle="--" if style["variant"] else "-",
            linewidth=1.2,
            markersize=6,
            elinewidth=0.8,
            capsize=2,
            label=name,
        )
    if log and lines:
        _readable_log(axes, [m for points in lines.values() for _, m, _, _ in points])


def _readable_log(axes: Axes, values: Sequence[float]) -> None:
    """Set a logarithmic y axis if values differ by a factor of four; else one slow allocator would hide the others."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = min(values), max(values)
    if low <= 0 or high / low < 4:
        axes.set_ylim(bottom=min(0, low))
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _legend(figure: Figure) -> None:
    figure.legend(loc="outside right upper", fontsize=9, frameon=False)


def _cells(suite: Suite, benchmark: str, allocator: str) -> list[Cell]:
    """Return an allocator's measured cells of a benchmark, by number of threads."""
    cells = (suite.cells[benchmark, allocator, count] for count in suite.threads(benchmark))
    return [cell for cell in cells if cell.measured]


def _by_threads(suite: Suite, benchmark: str, metric: str, scale: float = 1.0) -> dict[str, list[Point]]:
    lines: dict[str, list[Point]] = {}
    for allocator in suite.allocators:
        for cell in _cells(suite, benchmark, allocator.name):
            spread = cell.spread(metric)
            if spread:
                median, low, high = (scale * v for v in spread)
                lines.setdefault(allocator.name, []).append((cell.threads, median, low, high))
    return lines


def _unit(metric: str) -> tuple[float, str]:
    return _UNIT.get(metric.rpartition("_")[2], (1.0, ""))


def against_threads(suite: Suite, benchmark: Benchmark, metric: str) -> Figure | None:
    """Draw a metric over the number of threads; None if nothing was measured.

    Args:
        suite: the results.
        benchmark: the benchmark.
        metric: key of the metric.
    """
    scale, unit = _unit(metric)
    lines = _by_threads(suite, benchmark.name, metric, scale)
    if not lines:
        return None
    label = _AXIS.get(metric, f"{metric.removesuffix('_bytes').replace('_', ' ')} [{unit}]")
    figure, axes = _new(suite, benchmark.name, _THREADS, label)
    _log_x(axes, suite.threads(benchmark.name))
    _draw(axes, suite, lines, log=True)
    _legend(figure)
    return figure


def speed_up(suite: Suite, benchmark: str) -> Figure | None:
    """Draw the speed-up over the number of threads, with a dotted line for the ideal on this machine's cores.

    The speed-up is the time with the fewest threads divided by the time. The benchmark scalability gives every thread
    the same work, so its ideal is 1 up to the number of cores. The others divide their work among the threads.
    """
    counts = suite.threads(benchmark)
    lines: dict[str, list[Point]] = {}
    for allocator in suite.allocators:
        cells = _cells(suite, benchmark, allocator.name)
        first = cells[0].medians.get("wall_s") if cells and cells[0].threads == counts[0] else None
        for cell in cells if first else []:
            spread = cell.spread("wall_s")
            if spread and first:
                median, low, high = spread
                lines.setdefault(allocator.name, []).append((cell.threads, first / median, first / high, first / low))
    if not lines or len(counts) < 2:
        return None
    figure, axes = _new(
        suite, f"{benchmark}: speed-up", _THREADS, f"time with {counts[0]} / time with this many threads"
    )
    cores = suite.host["cores"]
    ideal = [min(c, cores) / min(counts[0], cores) for c in counts]
    if benchmark == "scalability":
        ideal = [share * counts[0] / c for share, c in zip(ideal, counts, strict=True)]
    axes.plot(counts, ideal, ":", color="#888", label=f"ideal on {counted(cores, 'core')}")
    _log_x(axes, counts)
    _draw(axes, suite, lines)
    axes.set_ylim(bottom=0)
    _legend(figure)
    return figure


def _iterations(suite: Suite) -> list[Benchmark]:
    return sorted((b for b in suite.benchmarks if b.iterations), key=lambda b: b.iterations or 0)


def against_iterations(suite: Suite, over_reference: bool) -> Figure | None:
    """Draw scalability's run time, or its speed-up over the reference allocator, over the iterations of each thread."""
    lines: dict[str, list[Point]] = {}
    benchmarks = _iterations(suite)
    for allocator in suite.allocators:
        for benchmark in benchmarks:
            for cell in _cells(suite, benchmark.name, allocator.name):
                x = float(benchmark.iterations or 0)
                ratio, spread = cell.ratios.get("wall_s"), cell.spread("wall_s")
                if over_reference and ratio:
                    low = 1 / ratio.high if ratio.low > 0 else 1 / ratio.value
                    high = 1 / ratio.low if ratio.low > 0 else 1 / ratio.value
                    lines.setdefault(allocator.name, []).append((x, 1 / ratio.value, low, high))
                elif not over_reference and spread:
                    median, low, high = (1e3 * v for v in spread)
                    lines.setdefault(allocator.name, []).append((x, median, low, high))
    if not lines:
        return None
    count = suite.threads(benchmarks[0].name)[0]
    label = f"speed-up over {suite.reference}" if over_reference else "run time [ms]"
    bars = "95% intervals" if over_reference else "minimum to maximum"
    title = f"scalability, {counted(count, 'thread')}"
    figure, axes = _new(suite, title, "iterations of each thread", label, bars)
    _log_x(axes, [float(b.iterations or 0) for b in benchmarks], lambda v: f"{v / 1e6:g} M")
    _draw(axes, suite, lines, log=not over_reference)
    if over_reference:
        medians = [m for points in lines.values() for _, m, _, _ in points]
        axes.set_ylim(0, 1.25 * max(medians))  # a very wide interval may leave the picture
    _legend(figure)
    return figure


def falls(suite: Suite) -> Figure | None:
    """Draw, for the benchmark phases, resident memory when idle after each fall; crosses are live bytes."""
    lines: dict[str, list[Point]] = {}
    live: list[tuple[int, float]] = []
    for allocator in suite.allocators:
        for cell in _cells(suite, "phases", allocator.name) if suite.threads("phases") else []:
            keys = sorted(
                k for k in cell.medians if k.startswith("fall") and k[4].isdigit() and k.endswith("_idle_rss_bytes")
            )
            for key in keys:
                spread = cell.spread(key)
                if spread:
                    median, low, high = (v / (1 << 20) for v in spread)
                    lines.setdefault(allocator.name, []).append((int(key[4]), median, low, high))
            if not live:
                live = [(int(k[4]), (cell.medians.get(f"{k[:5]}_live_bytes") or 0) / (1 << 20)) for k in keys]
    if not lines:
        return None
    figure, axes = _new(suite, "phases: memory kept after each fall, idle", "fall", "RSS [MiB]")
    axes.plot([x for x, _ in live], [y for _, y in live], ":", color="#888", marker="x", label="live")
    _draw(axes, suite, lines, log=True)
    falls_seen = [x for x, _ in live]
    axes.set_xticks(falls_seen, [str(x) for x in falls_seen])
    axes.set_xlim(0.7, max(falls_seen) + 0.4)
    _legend(figure)
    return figure


def summary_figure(suite: Suite) -> Figure | None:
    """Draw memory over time as geometric means over the suite, one point for each allocator."""
    keys = {b.name: time_key(suite, b) for b in suite.benchmarks}
    points = {
        o.allocator: (o.time, o.memory)
        for o in overall(list(suite.cells.values()), [a.name for a in suite.allocators], keys)
        if o.time is not None and o.memory is not None
    }
    if not points:
        return None
    figure, axes = _new(
        suite,
        "all benchmarks and threads, geometric means",
        f"time, ratio to {suite.reference} (left is faster)",
        "memory, ratio (down is smaller)",
        bars="",
    )
    axes.axhline(1, color="#999", linewidth=0.8)
    axes.axvline(1, color="#999", linewidth=0.8)
    styles = _styles(suite)
    for name, (x, y) in points.items():
        style = styles[name]
        fill = "white" if style["variant"] else style["colour"]
        axes.plot([x], [y], style["marker"], color=style["colour"], markerfacecolor=fill, markersize=8, label=name)
    _legend(figure)
    return figure


def figures(suite: Suite) -> dict[str, Figure]:
    """Return file name without suffix → figure, for everything that was measured."""
    drawn: dict[str, Figure | None] = {"all": summary_figure(suite)}
    for benchmark in suite.benchmarks:
        name = benchmark.name
        if benchmark.iterations or benchmark.scope != "all":
            continue
        if benchmark.void:
            drawn[f"{name}-cost"] = against_threads(suite, benchmark, time_key(suite, benchmark))
            drawn[f"{name}-memory"] = against_threads(suite, benchmark, "overhead")
        else:
            drawn[f"{name}-time"] = against_threads(suite, benchmark, "wall_s")
        if name in _SPEED_UPS:
            drawn[f"{name}-speedup"] = speed_up(suite, name)
        if benchmark.memory == "rss_bytes":
            drawn[f"{name}-memory"] = against_threads(suite, benchmark, "rss_bytes")
    if _iterations(suite):
        drawn["scalability-iterations"] = against_iterations(suite, over_reference=False)
        drawn["scalability-iterations-speedup"] = against_iterations(suite, over_reference=True)
    drawn["phases-memory"] = falls(suite)
    return {name: figure for name, figure in drawn.items() if figure is not None}


def write_plots(suite: Suite, folder: Path) -> None:
    """Write every figure as SVG into `folder`, which is created if missing.

    Raises:
        OSError: a file cannot be written. It is then left as it was.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in figures(suite).items():
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
        text = re.sub(r"(\d\.\d\d)\d+", r"\1", buffer.getvalue())  # two decimals (points) are enough
        write_whole(folder / f"{name}.svg", text)
