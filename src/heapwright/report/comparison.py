"""Writes a comparison of allocators as a table, Markdown, CSV, JSON and a picture."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heapwright.allocators.peers import build_id
from heapwright.comparison.compare import Comparison, Row
from heapwright.interleaving.stats import Ratio
from heapwright.metrics import METRICS, NUMERIC
from heapwright.report.matplotlib_cache import load_matplotlib
from heapwright.report.picture import write_picture
from heapwright.report.recordings import recording_text, recordings_json
from heapwright.report.tables import latex_table, markdown_table
from heapwright.study.usual_error import error_sentence, memory_sentence, misfit_sentence, time_sentence
from heapwright.terminal_text import counted, print_table, visible

if TYPE_CHECKING:
    from rich.console import Console


def _ratio(row: Row, metric: str) -> str:
    """Return a ratio with its interval: '0.913 [0.905, 0.921]'; '0.913' if there was one round."""
    ratio = row.ratios.get(metric)
    if ratio is None:
        return "n/a"
    return f"{ratio.value:.3f}" + ("" if math.isnan(ratio.low) else f" [{ratio.low:.3f}, {ratio.high:.3f}]")


def _label(row: Row) -> str:
    """Return the name of a row: 'jemalloc', 'default (libjemalloc.so.2)'."""
    return f"{row.allocator.name} ({row.malloc})" if row.malloc else row.allocator.name


def _versions(comparison: Comparison) -> str:
    """Return the versions: 'glibc 2.36, jemalloc 5.3.0-1'; n/a for an unknown version."""
    known = [row for row in comparison.rows if row.allocator.version or not row.malloc]
    names = (f"{row.malloc or row.allocator.name} {row.allocator.version or 'n/a'}" for row in known)
    return ", ".join(dict.fromkeys(names))


def _cells(comparison: Comparison, metrics: Sequence[str]) -> list[list[str]]:
    """Return rows of text: the medians of the reference, and the ratios of the others or their failure."""
    rows = []
    for row in comparison.rows:
        name = _label(row)
        if row.failure:
            rows.append([name, row.failure])
        elif row is comparison.reference:
            medians = [METRICS[m].show(row.summary[m].median) if m in row.summary else "n/a" for m in metrics]
            rows.append([name, *medians])
        else:
            rows.append([name, *(_ratio(row, m) for m in metrics)])
    return rows


def title(comparison: Comparison) -> str:
    """Return the legend: the meaning of the figures, and the allocators' versions."""
    name, rounds = comparison.reference.allocator.name, f"{comparison.rounds} interleaved rounds"
    ratios = "ratios to it with 95% intervals, below 1 is less"
    if comparison.rounds == 1:
        rounds, ratios = "1 round", "ratios to it, below 1 is less (one round has no interval)"
    return (
        f"{rounds}; {name}: medians; others: {ratios}; THP {comparison.host['thp'] or 'n/a'}; {_versions(comparison)}"
    )


def recordings_heading(comparison: Comparison, metrics: Sequence[str]) -> list[str]:
    """Return the lines above a comparison of recordings: 'predicted', the recordings, the usual error; else none."""
    recordings = comparison.recordings
    if recordings is None:
        return []
    timed = [time_sentence()] if any(METRICS[m].kind == "time" for m in metrics) else []
    first = comparison.reference.allocator.name
    return [
        "Predicted by replays, not proven.",
        *(recording_text(name, r) for name, r in recordings.inputs.items()),
        recordings.reference_why
        if first == Path(recordings.reference).name
        else f"Reference: {first}, which was named first.",
        error_sentence(recordings, metrics),
        *filter(None, [misfit_sentence(recordings), memory_sentence(recordings)]),
        *timed,
    ]


def show_table(comparison: Comparison, metrics: Sequence[str], out: Console) -> int:
    """Print the table.

    Args:
        comparison: the results.
        metrics: keys of the columns.
        out: where to print.

    Returns:
        The width of the table.
    """
    from rich.text import Text

    rows = []
    for row, cells in zip(comparison.rows, _cells(comparison, metrics), strict=True):
        if row.failure:  # `allocator_failures` gives the reason, which may be long
            cells = [cells[0], *["failed"] * len(metrics)]
        styles = ["", *(_style(row, m) for m in metrics)]
        rows.append([Text(visible(cell), style=style) for cell, style in zip(cells, styles, strict=True)])
    return print_table(out, ["allocator", *(METRICS[m].short for m in metrics)], rows, gap=1)


def allocator_failures(comparison: Comparison) -> list[str]:
    """Return one line for each allocator that failed: 'scudo: not loaded: ...'."""
    return [f"{row.allocator.name}: {row.failure}" for row in comparison.rows if row.failure]


def _style(row: Row, metric: str) -> str:
    """Return the style of a cell: green or red if the interval excludes 1."""
    if row.failure:
        return "yellow"
    ratio = row.ratios.get(metric)
    less, more = ("red", "green") if METRICS[metric].larger_is_better else ("green", "red")
    return "" if ratio is None else less if ratio.high < 1 else more if ratio.low > 1 else ""


def _rows(comparison: Comparison, metrics: Sequence[str]) -> list[list[str]]:
    """Return the headings and the rows of the table; the row of an allocator that failed ends with the reason."""
    return [["allocator", *(METRICS[m].label for m in metrics)], *_cells(comparison, metrics)]


def latex(comparison: Comparison, metrics: Sequence[str], reproduce: Sequence[str]) -> str:
    """Return the table as LaTeX, with the command that makes it in a comment.

    Args:
        comparison: the results.
        metrics: keys of the columns.
        reproduce: the command line that makes the comparison again.
    """
    lines = [*recordings_heading(comparison, metrics), shlex.join(reproduce)]
    head = "".join(f"% {visible(line)}\n" for line in lines)
    return head + latex_table(_rows(comparison, metrics), title(comparison))


def markdown(comparison: Comparison, metrics: Sequence[str], reproduce: Sequence[str]) -> str:
    """Return the comparison for a document.

    Args:
        comparison: the results.
        metrics: keys of the columns.
        reproduce: the command line that makes the comparison again.
    """
    lines = [line for text in recordings_heading(comparison, metrics) for line in (text, "")]
    rows = _rows(comparison, metrics)
    lines += markdown_table([[*row, *[""] * (len(rows[0]) - len(row))] for row in rows])
    host = comparison.host
    lines += [
        "",
        f"{title(comparison)}. {host['cpu']}, {counted(host['cores'], 'core')}, Linux {host['kernel']},"
        f" {host['libc']}.",
    ]
    lines += ["", f"    {visible(shlex.join(reproduce))}", ""]
    return "\n".join(lines)


def comparison_csv(comparison: Comparison) -> str:
    """Return one line for each run: allocator, version, round, input and every metric."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(["allocator", "version", "round", "input", *NUMERIC])
    for row in comparison.rows:
        for (number, name), run in row.runs.items():
            values = ["" if (v := run.metrics.get(m)) is None else repr(v) for m in NUMERIC]
            out.writerow([row.allocator.name, row.allocator.version or "", number + 1, name, *values])
    return text.getvalue()


def _plain(ratio: Ratio) -> dict[str, float | None]:
    return {k: None if math.isnan(v) else v for k, v in dataclasses.asdict(ratio).items()}


def comparison_json(comparison: Comparison, command: Sequence[str]) -> dict[str, Any]:
    """Return the document that `compare --json` writes; `command` is the compared command."""
    allocators = {}
    for row in comparison.rows:
        path = row.allocator.path
        allocators[row.allocator.name] = {
            "version": row.allocator.version,
            "path": path,
            "build_id": build_id(path) if path else None,
            **({"malloc": row.malloc} if row.malloc else {}),
            "env": row.allocator.env,
            "failure": row.failure or None,
            "runs": [{"round": n + 1, "input": i, **run.as_json()} for (n, i), run in row.runs.items()],
            "summary": {m: dataclasses.asdict(s) if (s := row.summary.get(m)) else None for m in NUMERIC},
            "ratio": {m: _plain(r) if (r := row.ratios.get(m)) else None for m in NUMERIC},
        }
    predicted = {"proven": False, **recordings_json(comparison.recordings)} if comparison.recordings else {}
    return {
        **predicted,
        "command": list(command),
        "host": comparison.host,
        "meter": next((run.meter for row in comparison.rows for run in row.runs.values()), None),
        "reference": comparison.reference.allocator.name,
        "rounds": comparison.rounds,
        "interrupted": comparison.interrupted,
        "error": comparison.error.message if comparison.error else None,
        "allocators": allocators,
        "warnings": comparison.warnings,
    }


def plot_comparison(comparison: Comparison, out: Path) -> None:
    """Draw memory over CPU time as ratios to the reference, with 95% intervals.

    Raises:
        OSError: `out` cannot be written.
    """
    load_matplotlib("agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 5), layout="constrained")
    axes = figure.subplots()
    axes.axhline(1, color="#999", linewidth=0.8)
    axes.axvline(1, color="#999", linewidth=0.8)
    markers = "osD^v<>Pp*hX"
    axes.plot([1], [1], "o", color="#333", markersize=9, label=f"{comparison.reference.allocator.name} (reference)")
    for i, row in enumerate(comparison.rows[1:]):
        x, y = row.ratios.get("cpu_s"), row.ratios.get("peak_rss_bytes")
        if row.failure or x is None or y is None:
            continue
        axes.errorbar(
            [x.value],
            [y.value],
            xerr=[[x.value - x.low], [x.high - x.value]],
            yerr=[[y.value - y.low], [y.high - y.value]],
            fmt=markers[i % len(markers)],
            markersize=7,
            capsize=3,
            label=row.allocator.name,
        )
    axes.set_xlabel("CPU time, ratio to the reference (left is faster)")
    axes.set_ylabel("peak resident memory, ratio (down is smaller)")
    axes.grid(linewidth=0.3)
    axes.set_axisbelow(True)
    figure.legend(loc="outside right upper", fontsize=9, frameon=False)
    write_picture(figure, out)
