"""Writes the results of the benchmark suite for a terminal, as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import shlex
from collections.abc import Sequence
from typing import Any

from heapwright.allocators.peers import build_id
from heapwright.comparison.bench import Suite
from heapwright.comparison.bench_results import Cell, overall
from heapwright.comparison.suite import Benchmark
from heapwright.interleaving.stats import Ratio
from heapwright.metrics import show_bytes, show_seconds
from heapwright.report.tables import latex_table, markdown_table
from heapwright.terminal_text import column_groups, counted

_MEANING = {
    "wall_s": "run time of the measured part",
    "cpu_s": "CPU time of the measured part",
    "ns_per_pair": "CPU time per malloc/free pair, minus the time of the void allocator",
    "cycles_per_pair": "CPU cycles per malloc/free pair, minus the cycles of the void allocator",
    "overhead": "peak RSS / live bytes",
    "peak_rss_bytes": "peak RSS",
    "rss_bytes": "RSS at the end, when no block is live",
    "fallen_rss_bytes": "RSS after the fall",
    "fall_idle_rss_bytes": "RSS after the last fall, idle",
    "empty_rss_bytes": "RSS of an empty program",
}


def time_key(suite: Suite, benchmark: Benchmark) -> str:
    """Return the metric of speed of a benchmark: CPU cycles if they were counted in every cell, else time."""
    if benchmark.void:
        cells = [cell for cell in suite.cells.values() if cell.benchmark is benchmark and cell.measured]
        if cells and all(cell.medians.get("cycles_per_pair") is not None for cell in cells):
            return "cycles_per_pair"
    return benchmark.time


def show(metric: str, value: float | None) -> str:
    """Return a value of a metric with its unit; n/a for None."""
    if value is None:
        return "n/a"
    if metric.endswith("_bytes"):
        return show_bytes(value)
    if metric.endswith("_s"):
        return show_seconds(value)
    if metric == "overhead":
        return f"{value:.2f} B/B"
    return f"{value:.0f} {'ns' if 'ns_' in metric else 'cycles'}"


def show_ratio(ratio: Ratio | None) -> str:
    """Return a ratio with its interval: '0.913 [0.905, 0.921]'; without one if there was a single round."""
    if ratio is None:
        return "n/a"
    if not math.isfinite(ratio.high):
        return _digits(ratio.value)
    return f"{_digits(ratio.value)} [{_digits(ratio.low)}, {_digits(ratio.high)}]"


def _digits(value: float) -> str:
    """Return a ratio in at most five characters, so that an extreme interval does not widen the table."""
    if value >= 999.5:
        return ">999"
    return f"{value:.3f}" if value < 9.9995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def _threads(count: int) -> str:
    return counted(count, "thread")


def versions(suite: Suite) -> str:
    """Return the versions: 'glibc 2.36, jemalloc 5.3.0-1'; n/a for an unknown version."""
    return ", ".join(dict.fromkeys(f"{a.name} {a.version or 'n/a'}" for a in suite.allocators))


def caption(suite: Suite) -> str:
    """Return the caption of all tables: what their figures are, the allocators' versions and the machine."""
    host = suite.host
    ratios = "ratios to it with 95% intervals from the same rounds, below 1 is less"
    if suite.rounds == 1:
        ratios = "ratios to it, below 1 is less (one round has no interval)"
    interrupted = "Interrupted before its end: the figures are those of the runs made so far, at most "
    return (
        f"{interrupted if suite.interrupted else ''}"
        f"{counted(suite.rounds, 'interleaved round')}{', quick sizes' if suite.quick else ''}. "
        f"{suite.reference}: medians; others: {ratios}. "
        f"THP is {host['thp'] or 'n/a'} here; allocators that ask for huge pages are also measured without them"
        f" (-nothp). "
        f"{versions(suite)}. {host['cpu']}, {counted(host['cores'], 'core')}, Linux {host['kernel']},"
        f" {host['libc'] or 'n/a'}."
    )


def benchmark_heading(suite: Suite, benchmark: Benchmark) -> str:
    """Return the heading of a benchmark's table: its metrics of time and of memory."""
    time = _MEANING[time_key(suite, benchmark)]
    return f"{benchmark.name}: {time}; memory: {_MEANING[benchmark.memory]}"


def void_cost(suite: Suite, benchmark: Benchmark) -> str:
    """Return the cost of the benchmark itself, which is subtracted; empty if nothing is.

    The void allocator does nothing, so its runs cost only the benchmark's own work.
    """
    words = []
    for count in suite.threads(benchmark.name) if benchmark.void else []:
        cell = suite.cells[benchmark.name, suite.reference, count]
        empty, share = cell.medians.get("void_ns_per_pair"), cell.medians.get("void_share")
        if empty is not None and share is not None:
            words.append(
                f"{empty:.0f} ns a pair at {_threads(count)} ({100 * share:.0f}% of {suite.reference}'s total)"
            )
    return f"void: {', '.join(words)}" if words else ""


def _cell_text(suite: Suite, cell: Cell, metric: str, short: bool) -> str:
    if cell.failure:
        return "failed"
    if not cell.runs:
        return "n/a"
    if cell.allocator == suite.reference:
        return show(metric, cell.medians.get(metric))
    ratio = cell.ratios.get(metric)
    if short and ratio:
        return _digits(ratio.value)
    return show_ratio(ratio)


def rows_of(suite: Suite, benchmark: Benchmark, short: bool = False) -> list[list[str]]:
    """Return a benchmark's table: headings, then one row for each allocator.

    Args:
        suite: the results.
        benchmark: one of its benchmarks.
        short: leave out the intervals of memory.
    """
    counts = suite.threads(benchmark.name)
    time = time_key(suite, benchmark)
    rows = [["allocator", *map(_threads, counts), *(f"{'mem' if short else 'memory'} {c}" for c in counts)]]
    for allocator in suite.allocators:
        cells = [suite.cells[benchmark.name, allocator.name, count] for count in counts]
        times = [_cell_text(suite, cell, time, False) for cell in cells]
        rows.append([allocator.name, *times, *(_cell_text(suite, c, benchmark.memory, short) for c in cells)])
    return rows


def cell_failures(suite: Suite) -> list[str]:
    """Return lines such as 'realistic, hoard, 2 threads: killed by SIGSEGV'; cells with one reason share a line."""
    lines: dict[tuple[str, str, str], list[str]] = {}
    for cell in [*suite.cells.values(), *suite.voids.values()]:
        if cell.failure:
            key = (cell.benchmark.name, cell.allocator, cell.failure)
            lines.setdefault(key, []).append(str(cell.threads))
    return [
        f"{benchmark}, {allocator}, {_threads(int(counts[0])) if len(counts) == 1 else ', '.join(counts) + ' threads'}:"
        f" {why}"
        for (benchmark, allocator, why), counts in lines.items()
    ]


def summary_rows(suite: Suite) -> list[list[str]]:
    """Return the geometric means over all cells: headings, then one row for each allocator."""
    keys = {b.name: time_key(suite, b) for b in suite.benchmarks}
    rows = [["allocator", "time", "memory", "measured"]]
    for mean in overall(list(suite.cells.values()), [a.name for a in suite.allocators], keys):
        means = (f"{m:.3f}" if m is not None else "n/a" for m in (mean.time, mean.memory))
        rows.append([mean.allocator, *means, f"{mean.measured} of {mean.of}"])
    return rows


def columns(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return rows as aligned lines of at most `width` columns.

    Columns that do not fit become a second table below, which repeats the first column. A single column may be wider.
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines: list[str] = []
    for group in column_groups(widths, width):
        if lines:
            lines.append("")
        for row in rows:
            cells = [row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in group)]
            lines.append("  ".join(cells).rstrip())
    return lines


def text(suite: Suite, width: int) -> str:
    """Return all tables for a terminal of this width."""
    import textwrap

    parts = []
    for benchmark in suite.benchmarks:
        head = textwrap.wrap(benchmark_heading(suite, benchmark), width)
        empty = void_cost(suite, benchmark)
        body = columns(rows_of(suite, benchmark, short=True), width)
        parts.append("\n".join([*head, *(textwrap.wrap(empty, width) if empty else []), *body]))
    parts.append(
        "\n".join(["geometric means of the ratios, all benchmarks and threads", *columns(summary_rows(suite), width)])
    )
    failed = cell_failures(suite)
    if failed:
        parts.append("\n".join(["failed:", *(f"  {line}" for line in failed)]))
    parts.append("\n".join(textwrap.wrap(caption(suite), width)))
    return "\n\n".join(parts) + "\n"


def latex(suite: Suite, reproduce: Sequence[str]) -> str:
    """Return all tables as LaTeX, with the command that makes them again in a comment."""
    parts = [f"% {shlex.join(reproduce)}\n", latex_table(summary_rows(suite), "Geometric means. " + caption(suite))]
    parts += [
        latex_table(rows_of(suite, benchmark), benchmark_heading(suite, benchmark)) for benchmark in suite.benchmarks
    ]
    return "\n".join(parts)


def markdown(suite: Suite, reproduce: Sequence[str]) -> str:
    """Return all tables for a document, with the command that makes them again."""
    lines = [f"    {shlex.join(reproduce)}", "", caption(suite), ""]
    lines += [
        "**Geometric means of the ratios, all benchmarks and threads**",
        "",
        *markdown_table(summary_rows(suite)),
    ]
    for benchmark in suite.benchmarks:
        lines += ["", f"**{benchmark_heading(suite, benchmark)}**", ""]
        empty = void_cost(suite, benchmark)
        lines += [f"{empty[0].upper()}{empty[1:]}.", ""] if empty else []
        lines += markdown_table(rows_of(suite, benchmark))
    failed = cell_failures(suite)
    if failed:
        lines += ["", "**Failed**", "", *(f"- {line}" for line in failed)]
    return "\n".join(lines) + "\n"


def suite_csv(suite: Suite) -> str:
    """Return one line for each run; a failed cell has a line with the reason."""
    everything = [*suite.cells.values(), *suite.voids.values()]
    metrics = list(dict.fromkeys(key for cell in everything for run in cell.runs.values() for key in run))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["benchmark", "allocator", "threads", "round", "failure", *metrics])
    for cell in everything:
        start = [cell.benchmark.name, cell.allocator, cell.threads]
        for number, run in sorted(cell.runs.items()):
            values = [run.get(metric) for metric in metrics]
            writer.writerow([*start, number + 1, "", *("" if v is None else v for v in values)])
        if cell.failure:
            writer.writerow([*start, "", cell.failure, *[""] * len(metrics)])
    return out.getvalue()


def _ratio_json(ratio: Ratio) -> dict[str, float | None]:
    finite = math.isfinite(ratio.high)
    return {"value": ratio.value, "low": ratio.low if finite else None, "high": ratio.high if finite else None}


def _cell_json(cell: Cell) -> dict[str, Any]:
    return {
        "benchmark": cell.benchmark.name,
        "suite": cell.benchmark.suite,
        "allocator": cell.allocator,
        "threads": cell.threads,
        "failure": cell.failure or None,
        "rounds": len(cell.runs),
        **({} if cell.failure else cell.medians),
        "ratio": {metric: _ratio_json(ratio) for metric, ratio in cell.ratios.items()},
    }


def suite_json(suite: Suite, reproduce: Sequence[str], seed: int) -> dict[str, Any]:
    """Return the document that `bench --json` writes.

    Args:
        suite: the results.
        reproduce: the command line that makes them again.
        seed: of the order of runs.
    """
    keys = {b.name: time_key(suite, b) for b in suite.benchmarks}
    names = [a.name for a in suite.allocators]
    return {
        "suite": suite.name,
        "command": list(reproduce),
        "host": suite.host,
        "quick": suite.quick,
        "seed": seed,
        "rounds": suite.rounds,
        "interrupted": suite.interrupted,
        "reference": suite.reference,
        "allocators": [
            {
                "name": a.name,
                "version": a.version,
                "path": a.path,
                "build_id": build_id(a.path) if a.path else None,
                "env": a.env,
            }
            for a in suite.allocators
        ],
        "results": [_cell_json(cell) for cell in suite.cells.values()],
        "void": [_cell_json(cell) for cell in suite.voids.values()],
        "geometric_means": [dataclasses.asdict(o) for o in overall(list(suite.cells.values()), names, keys)],
    }
