"""The benchmark suite as figures, after those of the papers: cost, memory, run time and speed-up against threads.

An allocator has the same colour and marker in all of them; the same library in another environment (`-nothp`) has the
colour of its allocator, a hollow marker and a dashed line. Legends stand outside. Points are medians, their bars go
from the least to the most of the rounds; points of one thread count are set a little apart.
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

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point = tuple[float, float, float, float]  # x, median, least, most

# Observation apart also by who sees few colours: neighbours differ in lightness, and the marker tells the rest.
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
    "ns_per_pair": "CPU time per malloc/free pair, less the void's [ns]",
    "cycles_per_pair": "cycles per malloc/free pair, less the void's",
    "overhead": "peak RSS / live bytes",
    "wall_s": "run time [ms]",
    "rss_bytes": "RSS at the end, nothing live [MiB]",
}
_SPEED_UPS = ("scalability", "cache-thrash", "cache-scratch")
_THREADS = "threads"


def _styles(found: Suite) -> dict[str, dict[str, Any]]:
    """How each allocator is drawn."""
    names = [a.name for a in found.allocators]
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


def _new(found: Suite, title: str, x: str, y: str, bars: str = "least to most") -> tuple[Figure, Axes]:
    """Empty axes; what the points and bars are, and the state of huge pages, stand at the top right."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "heapwright",
            "font.size": 10,
            "font.family": "sans-serif",
            "text.parse_math": False,  # a name with two $ in it is a name
        }
    )
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 4.6), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, loc="left", fontsize=11)
    rounds = f"{found.rounds} round{'s' if found.rounds > 1 else ''}, bars: {bars}; " if bars else ""
    axes.set_title(f"{rounds}THP {found.host['thp'] or 'n/a'}", loc="right", fontsize=8, color="#666")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(linewidth=0.4, color="#ccc")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _counted(axes: Axes, values: Sequence[float], label: Callable[[float], str] = lambda v: f"{v:g}") -> None:
    """A logarithmic axis with a tick at each value that was measured, and room for points set apart."""
    from matplotlib.ticker import FixedLocator, NullLocator

    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(list(values)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(list(values), [label(v) for v in values])
    axes.set_xlim(min(values) / 1.25, max(values) * 1.25)


def _draw(axes: Axes, found: Suite, lines: dict[str, list[Point]], log: bool = False) -> None:
    """One line an allocator."""
    styles = _styles(found)
    for number, (name, points) in enumerate(lines.items()):
        style = styles[name]
        apart = 2 ** (0.16 * (number / max(1, len(lines) - 1) - 0.5))
        axes.errorbar(
            [x * apart for x, *_ in points],
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
    """A logarithmic y axis where values lie far apart (else one slow allocator hides the others)."""
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


def _cells(found: Suite, benchmark: str, allocator: str) -> list[Cell]:
    """An allocator's measured cells of a benchmark, by threads."""
    cells = (found.cells[benchmark, allocator, count] for count in found.threads(benchmark))
    return [cell for cell in cells if cell.measured]


def _by_threads(found: Suite, benchmark: str, metric: str, scale: float = 1.0) -> dict[str, list[Point]]:
    lines: dict[str, list[Point]] = {}
    for allocator in found.allocators:
        for cell in _cells(found, benchmark, allocator.name):
            spread = cell.spread(metric)
            if spread:
                median, low, high = (scale * v for v in spread)
                lines.setdefault(allocator.name, []).append((cell.threads, median, low, high))
    return lines


def _unit(metric: str) -> tuple[float, str]:
    return _UNIT.get(metric.rpartition("_")[2], (1.0, ""))


def against_threads(found: Suite, benchmark: Benchmark, metric: str) -> Figure | None:
    """A metric against the number of threads; None where there is nothing to draw."""
    scale, unit = _unit(metric)
    lines = _by_threads(found, benchmark.name, metric, scale)
    if not lines:
        return None
    label = _AXIS.get(metric, f"{metric.removesuffix('_bytes').replace('_', ' ')} [{unit}]")
    figure, axes = _new(found, benchmark.name, _THREADS, label)
    _counted(axes, found.threads(benchmark.name))
    _draw(axes, found, lines, log=True)
    _legend(figure)
    return figure


def speed_up(found: Suite, benchmark: str) -> Figure | None:
    """Each allocator's time with the fewest threads / with so many; dotted: what this machine's cores allow.

    scalability gives every thread the same work, so the ideal is 1 up to the number of cores; the others split theirs.
    """
    counts = found.threads(benchmark)
    lines: dict[str, list[Point]] = {}
    for allocator in found.allocators:
        cells = _cells(found, benchmark, allocator.name)
        first = cells[0].medians.get("wall_s") if cells and cells[0].threads == counts[0] else None
        for cell in cells if first else []:
            spread = cell.spread("wall_s")
            if spread and first:
                median, low, high = spread
                lines.setdefault(allocator.name, []).append((cell.threads, first / median, first / high, first / low))
    if not lines or len(counts) < 2:
        return None
    figure, axes = _new(found, f"{benchmark}: speed-up", _THREADS, f"time with {counts[0]} / time with so many threads")
    cores = found.host["cores"]
    ideal = [min(c, cores) / min(counts[0], cores) for c in counts]
    if benchmark == "scalability":
        ideal = [share * counts[0] / c for share, c in zip(ideal, counts, strict=True)]
    axes.plot(counts, ideal, ":", color="#888", label=f"ideal on {cores} cores")
    _counted(axes, counts)
    _draw(axes, found, lines)
    axes.set_ylim(bottom=0)
    _legend(figure)
    return figure


def _iterations(found: Suite) -> list[Benchmark]:
    return sorted((b for b in found.benchmarks if b.iterations), key=lambda b: b.iterations or 0)


def against_iterations(found: Suite, over_reference: bool) -> Figure | None:
    """scalability's run time against iterations of each thread, or the speed-up over the reference."""
    lines: dict[str, list[Point]] = {}
    benchmarks = _iterations(found)
    for allocator in found.allocators:
        for benchmark in benchmarks:
            for cell in _cells(found, benchmark.name, allocator.name):
                x = float(benchmark.iterations or 0)
                ratio, spread = cell.ratios.get("wall_s"), cell.spread("wall_s")
                if over_reference and ratio:
                    low = 1 / ratio.high if ratio.low > 0 else 1 / ratio.value
                    high = 1 / ratio.low if ratio.low > 0 else 1 / ratio.value
                    lines.setdefault(allocator.name, []).append((x, 1 / ratio.value, low, high))
                elif not over_reference and spread:
                    median, least, most = (1e3 * v for v in spread)
                    lines.setdefault(allocator.name, []).append((x, median, least, most))
    if not lines:
        return None
    count = found.threads(benchmarks[0].name)[0]
    label = f"speed-up over {found.reference}" if over_reference else "run time [ms]"
    bars = "95% intervals" if over_reference else "least to most"
    title = f"scalability, {count} thread{'s' if count > 1 else ''}"
    figure, axes = _new(found, title, "iterations of each thread", label, bars)
    _counted(axes, [float(b.iterations or 0) for b in benchmarks], lambda v: f"{v / 1e6:g} M")
    _draw(axes, found, lines, log=not over_reference)
    if over_reference:
        medians = [m for points in lines.values() for _, m, _, _ in points]
        axes.set_ylim(0, 1.25 * max(medians))  # a wild interval may leave the picture
    _legend(figure)
    return figure


def falls(found: Suite) -> Figure | None:
    """phases: RSS after each fall, idle; crosses: what was live."""
    lines: dict[str, list[Point]] = {}
    live: list[tuple[int, float]] = []
    for allocator in found.allocators:
        for cell in _cells(found, "phases", allocator.name) if found.threads("phases") else []:
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
    figure, axes = _new(found, "phases: memory kept after each fall, idle", "fall", "RSS [MiB]")
    axes.plot([x for x, _ in live], [y for _, y in live], ":", color="#888", marker="x", label="live")
    _draw(axes, found, lines, log=True)
    falls_seen = [x for x, _ in live]
    axes.set_xticks(falls_seen, [str(x) for x in falls_seen])
    axes.set_xlim(0.7, max(falls_seen) + 0.4)
    _legend(figure)
    return figure


def whole(found: Suite) -> Figure | None:
    """Geometric means over the suite: time against memory, one point an allocator."""
    keys = {b.name: time_key(found, b) for b in found.benchmarks}
    points = {
        o.allocator: (o.time, o.memory)
        for o in overall(list(found.cells.values()), [a.name for a in found.allocators], keys)
        if o.time is not None and o.memory is not None
    }
    if not points:
        return None
    figure, axes = _new(
        found,
        "all benchmarks and threads, geometric means",
        f"time, ratio to {found.reference} (left is faster)",
        "memory, ratio (down is smaller)",
        bars="",
    )
    axes.axhline(1, color="#999", linewidth=0.8)
    axes.axvline(1, color="#999", linewidth=0.8)
    styles = _styles(found)
    for name, (x, y) in points.items():
        style = styles[name]
        fill = "white" if style["variant"] else style["colour"]
        axes.plot([x], [y], style["marker"], color=style["colour"], markerfacecolor=fill, markersize=8, label=name)
    _legend(figure)
    return figure


def figures(found: Suite) -> dict[str, Figure]:
    """File name without its ending → figure; only those there is something for."""
    drawn: dict[str, Figure | None] = {"all": whole(found)}
    for benchmark in found.benchmarks:
        name = benchmark.name
        if benchmark.iterations or benchmark.scope != "all":
            continue
        if benchmark.void:
            drawn[f"{name}-cost"] = against_threads(found, benchmark, time_key(found, benchmark))
            drawn[f"{name}-memory"] = against_threads(found, benchmark, "overhead")
        else:
            drawn[f"{name}-time"] = against_threads(found, benchmark, "wall_s")
        if name in _SPEED_UPS:
            drawn[f"{name}-speedup"] = speed_up(found, name)
        if benchmark.memory == "rss_bytes":
            drawn[f"{name}-memory"] = against_threads(found, benchmark, "rss_bytes")
    if _iterations(found):
        drawn["scalability-iterations"] = against_iterations(found, over_reference=False)
        drawn["scalability-iterations-speedup"] = against_iterations(found, over_reference=True)
    drawn["phases-memory"] = falls(found)
    return {name: figure for name, figure in drawn.items() if figure is not None}


def write_plots(found: Suite, folder: Path) -> None:
    """Writes every figure as SVG into a directory, which is made if need be; a file is whole or not there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in figures(found).items():
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
        text = re.sub(r"(\d\.\d\d)\d+", r"\1", buffer.getvalue())  # hundredths of a point are enough
        write_whole(folder / f"{name}.svg", text)
