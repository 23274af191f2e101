"""A comparison as table, Markdown, CSV, JSON and picture."""

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
from heapwright.experiment.stats import Ratio
from heapwright.metrics import METRICS, NUMERIC
from heapwright.report.picture import write_picture
from heapwright.terminal_text import visible

if TYPE_CHECKING:
    from rich.table import Table


def _ratio(row: Row, metric: str) -> str:
    """'0.913 [0.905, 0.921]'; of a single round '0.913'."""
    found = row.ratios.get(metric)
    if found is None:
        return "n/a"
    return f"{found.value:.3f}" + ("" if math.isnan(found.low) else f" [{found.low:.3f}, {found.high:.3f}]")


def _label(row: Row) -> str:
    """'jemalloc', 'default (libjemalloc.so.2)'."""
    return f"{row.allocator.name} ({row.malloc})" if row.malloc else row.allocator.name


def _versions(found: Comparison) -> str:
    """'glibc 2.36, jemalloc 5.3.0-1'; n/a where a version cannot be told."""
    known = [row for row in found.rows if row.allocator.version or not row.malloc]
    names = (f"{row.malloc or row.allocator.name} {row.allocator.version or 'n/a'}" for row in known)
    return ", ".join(dict.fromkeys(names))


def _cells(found: Comparison, metrics: Sequence[str]) -> list[list[str]]:
    """Rows of text: the reference's medians, the others' ratios or why there are none."""
    rows = []
    for row in found.rows:
        name = _label(row)
        if row.failure:
            rows.append([name, row.failure])
        elif row is found.reference:
            medians = [METRICS[m].show(row.summary[m].median) if m in row.summary else "n/a" for m in metrics]
            rows.append([name, *medians])
        else:
            rows.append([name, *(_ratio(row, m) for m in metrics)])
    return rows


def _title(found: Comparison) -> str:
    name, how = found.reference.allocator.name, f"{found.rounds} interleaved rounds"
    what = "ratios to it with 95% intervals"
    if found.rounds == 1:
        how, what = "1 round", "ratios to it; one round has no interval"
    return (
        f"{how}; {name}: medians; others: {what}, below 1 is less; THP {found.host['thp'] or 'n/a'}; {_versions(found)}"
    )


def table(found: Comparison, metrics: Sequence[str]) -> Table:
    """For a terminal."""
    from rich.table import Table
    from rich.text import Text

    result = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), caption=_title(found), caption_justify="left")
    result.add_column("allocator", no_wrap=True)
    for metric in metrics:
        result.add_column(METRICS[metric].short, justify="right", no_wrap=True)
    for row, cells in zip(found.rows, _cells(found, metrics), strict=True):
        if row.failure:  # why stands below: it may be long
            cells = [cells[0], *["failed"] * len(metrics)]
        styles = ["", *(_style(row, m) for m in metrics)]
        result.add_row(*(Text(visible(cell), style=style) for cell, style in zip(cells, styles, strict=True)))
    return result


def failures(found: Comparison) -> list[str]:
    """'scudo: not loaded: ...', one for each that failed."""
    return [f"{row.allocator.name}: {row.failure}" for row in found.rows if row.failure]


def _style(row: Row, metric: str) -> str:
    """Green and red where the interval leaves 1 out."""
    if row.failure:
        return "yellow"
    found = row.ratios.get(metric)
    return "" if found is None else "green" if found.high < 1 else "red" if found.low > 1 else ""


def markdown(found: Comparison, metrics: Sequence[str], reproduce: Sequence[str]) -> str:
    """For a document, with the command line (`reproduce`) that makes it again."""
    lines = ["| allocator | " + " | ".join(METRICS[m].label for m in metrics) + " |", "|---" * (len(metrics) + 1) + "|"]
    for row, cells in zip(found.rows, _cells(found, metrics), strict=True):
        filled = [*cells, *[""] * (len(metrics) - 1)] if row.failure else cells
        lines.append("| " + " | ".join(c.replace("|", "\\|") for c in filled) + " |")
    host = found.host
    lines += ["", f"{_title(found)}. {host['cpu']}, {host['cores']} cores, Linux {host['kernel']}, {host['libc']}."]
    lines += ["", f"    {shlex.join(reproduce)}", ""]
    return "\n".join(lines)


def csv_text(found: Comparison) -> str:
    """Every run: allocator, version, round, input and each metric."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(["allocator", "version", "round", "input", *NUMERIC])
    for row in found.rows:
        for (number, name), run in row.runs.items():
            values = ["" if (v := run.metrics.get(m)) is None else repr(v) for m in NUMERIC]
            out.writerow([row.allocator.name, row.allocator.version or "", number + 1, name, *values])
    return text.getvalue()


def _plain(ratio: Ratio) -> dict[str, float | None]:
    return {k: None if math.isnan(v) else v for k, v in dataclasses.asdict(ratio).items()}


def comparison_json(found: Comparison, command: Sequence[str]) -> dict[str, Any]:
    """As the contract has it."""
    allocators = {}
    for row in found.rows:
        path = row.allocator.path
        allocators[row.allocator.name] = {
            "version": row.allocator.version,
            "path": path,
            "build_id": build_id(path) if path else None,
            **({"malloc": row.malloc} if row.malloc else {}),
            "env": row.allocator.env,
            "failure": row.failure or None,
            "runs": [{"round": n + 1, "input": i, **run.as_json()} for (n, i), run in row.runs.items()],
            "summary": {m: dataclasses.asdict(s) for m, s in row.summary.items()},
            "ratio": {m: _plain(r) for m, r in row.ratios.items()},
        }
    return {
        "command": list(command),
        "host": found.host,
        "reference": found.reference.allocator.name,
        "rounds": found.rounds,
        "allocators": allocators,
        "warnings": found.warnings,
    }


def plot(found: Comparison, out: Path) -> None:
    """Time against memory: one point an allocator, bars are 95 % intervals; the reference is at 1, 1."""
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams["text.parse_math"] = False  # a name with two $ in it is a name
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 5), layout="constrained")
    axes = figure.subplots()
    axes.axhline(1, color="#999", linewidth=0.8)
    axes.axvline(1, color="#999", linewidth=0.8)
    markers = "osD^v<>Pp*hX"
    axes.plot([1], [1], "o", color="#333", markersize=9, label=f"{found.reference.allocator.name} (reference)")
    for i, row in enumerate(found.rows[1:]):
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
