"""The benchmark suite's results for a terminal, as Markdown, CSV and JSON."""

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
from heapwright.experiment.stats import Ratio
from heapwright.metrics import show_bytes, show_seconds

_MEANING = {
    "wall_s": "run time of the measured part",
    "ns_per_pair": "CPU time per malloc/free pair, the void's taken off",
    "cycles_per_pair": "CPU cycles per malloc/free pair, the void's taken off",
    "overhead": "peak RSS / live bytes",
    "peak_rss_bytes": "peak RSS",
    "rss_bytes": "RSS at the end, nothing live",
    "fall_idle_rss_bytes": "RSS after the last fall, idle",
    "empty_rss_bytes": "RSS of an empty program",
}


def time_key(found: Suite, benchmark: Benchmark) -> str:
    """Which metric tells how fast: cycles where they could be counted."""
    if benchmark.void:
        own = [cell for cell in found.cells.values() if cell.benchmark is benchmark and cell.measured]
        if own and all(cell.medians.get("cycles_per_pair") is not None for cell in own):
            return "cycles_per_pair"
    return benchmark.time


def show(metric: str, value: float | None) -> str:
    """A value with its unit; n/a for what is not known."""
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
    """'0.913 [0.905, 0.921]'; without brackets where one round gives no interval."""
    if ratio is None:
        return "n/a"
    if not math.isfinite(ratio.high):
        return _digits(ratio.value)
    return f"{_digits(ratio.value)} [{_digits(ratio.low)}, {_digits(ratio.high)}]"


def _digits(value: float) -> str:
    """Never more than five characters: a wild interval must not make a wide table."""
    if value >= 999.5:
        return ">999"
    return f"{value:.3f}" if value < 9.9995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def _times(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"


def versions(found: Suite) -> str:
    """'glibc 2.36, jemalloc 5.3.0-1'; n/a where a version cannot be told."""
    return ", ".join(dict.fromkeys(f"{a.name} {a.version or 'n/a'}" for a in found.allocators))


def caption(found: Suite) -> str:
    """What the tables say and on what machine."""
    host = found.host
    return (
        f"{found.rounds} interleaved round{'s' if found.rounds > 1 else ''}{', quick sizes' if found.quick else ''}. "
        f"{found.reference}: medians; others: ratios to it with 95% intervals from the same rounds, below 1 is less. "
        f"THP is {host['thp'] or 'n/a'} here; who asks for huge pages himself is shown without them too (-nothp). "
        f"{versions(found)}. {host['cpu']}, {host['cores']} cores, Linux {host['kernel']}, {host['libc'] or 'n/a'}."
    )


def heading(found: Suite, benchmark: Benchmark) -> str:
    """'realistic: CPU time per … pair'; with the void's cost where it is taken off."""
    time = _MEANING[time_key(found, benchmark)]
    return f"{benchmark.name}: {time}; memory: {_MEANING[benchmark.memory]}"


def void_cost(found: Suite, benchmark: Benchmark) -> str:
    """What the test itself costs, in the reference's runs; empty where nothing is taken off."""
    words = []
    for count in found.threads(benchmark.name) if benchmark.void else []:
        cell = found.cells[benchmark.name, found.reference, count]
        empty, share = cell.medians.get("void_ns_per_pair"), cell.medians.get("void_share")
        if empty is not None and share is not None:
            words.append(f"{empty:.0f} ns a pair at {_times(count)} ({100 * share:.0f}% of {found.reference}'s whole)")
    return f"void: {', '.join(words)}" if words else ""


def _cell_text(found: Suite, cell: Cell, metric: str, short: bool) -> str:
    if cell.failure:
        return "failed"
    if not cell.runs:
        return "n/a"
    if cell.allocator == found.reference:
        return show(metric, cell.medians.get(metric))
    ratio = cell.ratios.get(metric)
    if short and ratio:
        return _digits(ratio.value)
    return show_ratio(ratio)


def rows_of(found: Suite, benchmark: Benchmark, short: bool = False) -> list[list[str]]:
    """A benchmark's table: headings, then one row an allocator; `short` leaves memory's intervals out."""
    counts = found.threads(benchmark.name)
    time = time_key(found, benchmark)
    rows = [["allocator", *map(_times, counts), *(f"{'mem' if short else 'memory'} {c}" for c in counts)]]
    for allocator in found.allocators:
        cells = [found.cells[benchmark.name, allocator.name, count] for count in counts]
        times = [_cell_text(found, cell, time, False) for cell in cells]
        rows.append([allocator.name, *times, *(_cell_text(found, c, benchmark.memory, short) for c in cells)])
    return rows


def failures(found: Suite) -> list[str]:
    """'realistic, hoard, 2 threads: killed by SIGSEGV', the same reason of several cells in one line."""
    lines: dict[tuple[str, str, str], list[str]] = {}
    for cell in [*found.cells.values(), *found.voids.values()]:
        if cell.failure:
            key = (cell.benchmark.name, cell.allocator, cell.failure)
            lines.setdefault(key, []).append(str(cell.threads))
    return [
        f"{benchmark}, {allocator}, {_times(int(counts[0])) if len(counts) == 1 else ', '.join(counts) + ' threads'}:"
        f" {why}"
        for (benchmark, allocator, why), counts in lines.items()
    ]


def summary_rows(found: Suite) -> list[list[str]]:
    """Geometric means over all cells, one row an allocator."""
    keys = {b.name: time_key(found, b) for b in found.benchmarks}
    rows = [["allocator", "time", "memory", "measured"]]
    for whole in overall(list(found.cells.values()), [a.name for a in found.allocators], keys):
        means = (f"{m:.3f}" if m is not None else "n/a" for m in (whole.time, whole.memory))
        rows.append([whole.allocator, *means, f"{whole.measured} of {whole.of}"])
    return rows


def columns(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Rows as aligned lines; columns that do not fit go below, the first one repeated."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines: list[str] = []
    at = 1
    while at < len(widths):
        end, used = at, widths[0]
        while end < len(widths) and (end == at or used + 2 + widths[end] <= width):
            used += 2 + widths[end]
            end += 1
        for row in rows:
            cells = [row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in range(at, end))]
            lines.append("  ".join(cells).rstrip())
        at = end
        if at < len(widths):
            lines.append("")
    return lines


def text(found: Suite, width: int) -> str:
    """All tables for a terminal of this width."""
    import textwrap

    parts = []
    for benchmark in found.benchmarks:
        head = textwrap.wrap(heading(found, benchmark), width)
        empty = void_cost(found, benchmark)
        body = columns(rows_of(found, benchmark, short=True), width)
        parts.append("\n".join([*head, *(textwrap.wrap(empty, width) if empty else []), *body]))
    parts.append(
        "\n".join(["geometric means of the ratios, all benchmarks and threads", *columns(summary_rows(found), width)])
    )
    broken = failures(found)
    if broken:
        parts.append("\n".join(["failed:", *(f"  {line}" for line in broken)]))
    parts.append("\n".join(textwrap.wrap(caption(found), width)))
    return "\n\n".join(parts) + "\n"


def _markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]


def markdown(found: Suite, reproduce: Sequence[str]) -> str:
    """All tables for a document, with the command that makes them again."""
    lines = [f"    {shlex.join(reproduce)}", "", caption(found), ""]
    if found.interrupted:
        lines += ["Stopped before its end.", ""]
    lines += [
        "**Geometric means of the ratios, all benchmarks and threads**",
        "",
        *_markdown_table(summary_rows(found)),
    ]
    for benchmark in found.benchmarks:
        lines += ["", f"**{heading(found, benchmark)}**", ""]
        empty = void_cost(found, benchmark)
        lines += [f"{empty[0].upper()}{empty[1:]}.", ""] if empty else []
        lines += _markdown_table(rows_of(found, benchmark))
    broken = failures(found)
    if broken:
        lines += ["", "**Failed**", "", *(f"- {line}" for line in broken)]
    return "\n".join(lines) + "\n"


def csv_text(found: Suite) -> str:
    """Every run, a line each; a cell that failed has a line with the reason."""
    everything = [*found.cells.values(), *found.voids.values()]
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


def suite_json(found: Suite, reproduce: Sequence[str], seed: int) -> dict[str, Any]:
    """What `--json` writes: medians and ratios of each benchmark, allocator and number of threads."""
    keys = {b.name: time_key(found, b) for b in found.benchmarks}
    names = [a.name for a in found.allocators]
    return {
        "suite": found.name,
        "command": list(reproduce),
        "host": found.host,
        "quick": found.quick,
        "seed": seed,
        "rounds": found.rounds,
        "interrupted": found.interrupted,
        "reference": found.reference,
        "allocators": [
            {
                "name": a.name,
                "version": a.version,
                "path": a.path,
                "build_id": build_id(a.path) if a.path else None,
                "env": a.env,
            }
            for a in found.allocators
        ],
        "results": [_cell_json(cell) for cell in found.cells.values()],
        "void": [_cell_json(cell) for cell in found.voids.values()],
        "geometric_means": [dataclasses.asdict(o) for o in overall(list(found.cells.values()), names, keys)],
    }
