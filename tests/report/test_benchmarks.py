"""Tests the tables, exports and figures of the benchmark suite."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.container import ErrorbarContainer

from heapwright.comparison.bench_results import compute_results
from heapwright.interleaving.stats import Ratio
from heapwright.report.benchmark_plots import figures, write_plots
from heapwright.report.benchmarks import (
    cell_failures,
    columns,
    latex,
    markdown,
    show,
    show_ratio,
    suite_csv,
    suite_json,
    summary_rows,
    text,
)

from .suites import NAMES, suite


def test_the_text_fits_a_terminal() -> None:
    lines = text(suite(threads=(1, 2, 4, 8)), 80).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert sum(line.startswith("lib<odd>.so ") for line in lines) > 20


@given(
    st.integers(2, 5).flatmap(
        lambda n: st.lists(
            st.lists(st.text("abc", min_size=1, max_size=30), min_size=n, max_size=n), min_size=1, max_size=5
        )
    ),
    st.integers(20, 100),
)
def test_columns_keep_every_cell_and_the_width(rows: list[list[str]], width: int) -> None:
    lines = columns(rows, width)
    words = [word for line in lines for word in line.split()]
    for row in rows:
        assert all(cell in words for cell in row)
    first = max(len(row[0]) for row in rows)
    alone = max(len(cell) for row in rows for cell in row[1:])
    assert all(len(line) <= max(width, first + 2 + alone) for line in lines)


def test_failures_of_several_cells_are_one_line() -> None:
    found = suite("server")
    for count in (1, 2):
        found.cells["server", "jemalloc", count].failure = "killed by SIGSEGV"
    found.cells["server", "mimalloc3", 2].failure = "hung"
    compute_results(found.cells, found.voids, "glibc")
    assert cell_failures(found) == [
        "server, jemalloc, 1, 2 threads: killed by SIGSEGV",
        "server, mimalloc3, 2 threads: hung",
    ]
    assert "failed" in text(found, 80)
    assert "- server, mimalloc3, 2 threads: hung" in markdown(found, ["heapwright", "bench"])
    tex = latex(found, ["heapwright", "bench"])
    assert tex.count(r"\begin{tabular}") == tex.count(r"\end{tabular}") == 2
    assert summary_rows(found)[2] == ["jemalloc", "n/a", "n/a", "0 of 2"]


@pytest.mark.parametrize(("cycles", "words"), [(False, " ns"), (True, " cycles")])
def test_cycles_where_they_are_counted(cycles: bool, words: str) -> None:
    shown = text(suite("realistic", cycles=cycles), 80)
    assert any(line.startswith("glibc") and words in line for line in shown.splitlines())


def test_the_cost_of_the_void_is_in_the_text_and_the_json() -> None:
    assert "void: " in text(suite("realistic"), 80)
    assert "void" not in text(suite("server"), 80)
    assert suite_json(suite("realistic"), [], 1)["void"]


def test_a_legend_of_one_round_names_no_interval() -> None:
    assert "one round has no interval" in " ".join(text(suite(rounds=1), 100).split())
    assert "with 95% intervals from the same rounds" in " ".join(text(suite(rounds=2), 100).split())


def test_json_of_one_round_has_no_infinity() -> None:
    found = json.loads(json.dumps(suite_json(suite(rounds=1), ["heapwright", "bench"], 1), allow_nan=False))
    ratio = found["results"][1]["ratio"]["cpu_s"]
    assert ratio["low"] is None
    assert ratio["high"] is None
    assert ratio["value"] > 0
    assert {"benchmark", "allocator", "threads", "wall_s", "failure"} <= set(found["results"][0])
    assert [a["version"] for a in found["allocators"]] == ["1.2"] * len(NAMES)


def test_csv_has_every_run() -> None:
    found = suite("realistic")
    rows = list(csv.DictReader(io.StringIO(suite_csv(found))))
    assert len(rows) == 3 * (len(found.cells) + len(found.voids))
    assert {r["failure"] for r in rows} == {""}


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [
        (Ratio(0.9134, 0.9052, 0.9211), "0.913 [0.905, 0.921]"),
        (Ratio(2, 0, math.inf), "2.000"),
        (Ratio(25, 0.0001, 1e9), "25.0 [0.000, >999]"),
        (None, "n/a"),
    ],
)
def test_ratios_are_shown_rounded(ratio: Ratio | None, shown: str) -> None:
    assert show_ratio(ratio) == shown


@pytest.mark.parametrize(
    ("metric", "value", "shown"),
    [
        ("ns_per_pair", 213.4, "213 ns"),
        ("cycles_per_pair", 480.0, "480 cycles"),
        ("overhead", 1.084, "1.08 B/B"),
        ("wall_s", 0.5, "500.0 ms"),
        ("rss_bytes", 3 << 20, "3.0 MiB"),
        ("wall_s", None, "n/a"),
    ],
)
def test_values_are_shown_with_their_unit(metric: str, value: float | None, shown: str) -> None:
    assert show(metric, value) == shown


@pytest.mark.long
def test_figures_name_all_allocators_and_tell_them_apart() -> None:
    names = [*NAMES, *(f"allocator{i}" for i in range(9))]
    drawn = figures(suite(names=names, threads=(1, 2, 4)))
    wanted = {"all", "realistic-cost", "realistic-memory", "phases-memory", "scalability-iterations"}
    assert wanted | {f"{b}-speedup" for b in ("scalability", "cache-thrash", "cache-scratch")} <= set(drawn)
    for figure in drawn.values():
        texts = [t.get_text() for t in figure.legends[0].get_texts()]
        assert [t for t in texts if t in names] == names
        assert figure.axes[0].get_xlabel()
        assert figure.axes[0].get_ylabel()
    containers = drawn["realistic-cost"].axes[0].containers
    lines = [c.lines[0] for c in containers if isinstance(c, ErrorbarContainer)]
    looks = {(str(line.get_color()), str(line.get_marker()), str(line.get_markerfacecolor())) for line in lines}
    assert len(looks) == len(names)


def test_values_that_were_not_measured_are_not_drawn() -> None:
    found = suite("server", threads=(2,))
    assert set(figures(found)) == {"all", "server-time"}
    for cell in found.cells.values():
        cell.failure = "hung"
    compute_results(found.cells, found.voids, "glibc")
    assert figures(found) == {}


def test_files_are_whole(tmp_path: Path) -> None:
    write_plots(suite("realistic"), tmp_path / "plots")
    names = [p.name for p in (tmp_path / "plots").iterdir()]
    assert all(name.endswith(".svg") and not name.startswith(".") for name in names)
    assert (tmp_path / "plots/realistic-cost.svg").read_text().rstrip().endswith("</svg>")
