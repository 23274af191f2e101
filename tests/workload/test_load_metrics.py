"""Tests how the output of loads is read: real output of each tool, own expressions, JSON, and loads of many parts."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heapwright.workload.load_metrics import Figures, Format, LoadMetrics, combine, read_parts

# Output of wrk 4.1.0, hey 0.1.4, ab 2.3, redis-benchmark 7.0.15 and k6 1.8.1.
LOADS = Path(__file__).parent / "loads"


def figures(text: str, how: LoadMetrics, wall_s: float = 1.0) -> Figures:
    return combine(read_parts(text, how), how.operations if isinstance(how.operations, int) else None, wall_s)


@pytest.mark.parametrize(
    ("file", "format_", "found"),
    [
        ("wrk.txt", "wrk", Figures(184, 91.87, load_errors=0)),
        ("wrk-latency.txt", "wrk", Figures(92, 91.93, 43.95, None, 48.0, 2)),
        ("hey.txt", "hey", Figures(2000, 90.8663, 44.0, 44.2, 48.0, 0)),
        ("hey-bad.txt", "hey", Figures(1000, 90.3649, 44.0, 48.0, 48.4, 20)),
        ("hey-z.txt", "hey", Figures(96, 94.2624, 44.0, 45.3, None, 0)),
        ("hey-refused.txt", "hey", Figures(0, None, load_errors=10)),
        ("ab.txt", "ab", Figures(2000, 2945.5, 1, 2, 5, 0)),
        ("ab-lengths.txt", "ab", Figures(100, 67.83, 44, 96, 238, 0)),
        ("ab-bad.txt", "ab", Figures(1000, 2714.55, 1, 5, 9, 20)),
        ("redis.txt", "redis-benchmark", Figures(40000, 149253.73, 0.183, 0.279, 0.447)),
        ("redis.csv", "redis-benchmark", Figures(None, 143369.18, 0.183, 0.287, 0.391)),
        ("redis-q.txt", "redis-benchmark", Figures(None, 135593.22, 0.191)),
        ("k6.json", "k6", Figures(80, 32.978902, 57.748546, 84.285741, None, 20)),
        ("k6-summary.json", "k6", Figures(80, 27.533214, 66.714919, 132.486112, 157.054582, 19)),
    ],
)
def test_the_tools_own_output(file: str, format_: Format, found: Figures) -> None:
    read = figures((LOADS / file).read_text(), LoadMetrics(format=format_))
    assert vars(read) == pytest.approx(vars(found))


@pytest.mark.parametrize("format_", ["wrk", "hey", "ab", "redis-benchmark", "k6", "json"])
@pytest.mark.parametrize("text", ["", "usage: tool\n", "{", '{"metrics": 1}', "[1, 2]", "\0" * 100])
def test_other_output_has_no_figures(format_: Format, text: str) -> None:
    assert read_parts(text, LoadMetrics(format=format_)) == []


@given(st.sampled_from(["wrk", "hey", "ab", "redis-benchmark", "k6", "json"]), st.integers(0, 3000), st.data())
def test_damaged_output_never_fails(format_: Format, cut: int, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(sorted(LOADS.iterdir()))).read_text()
    text = text[:cut] + data.draw(st.text(max_size=20)) + text[cut + data.draw(st.integers(0, 50)) :]
    found = combine(read_parts(text, LoadMetrics(format=format_)), None, 1.0)
    assert all(value is None or 0 <= value < math.inf for value in vars(found).values())


@pytest.mark.parametrize("number", ["9" * 400, "1e999", "-3", "nan", "Infinity", "true", "[]", '"fast"'])
def test_impossible_numbers_are_ignored(number: str) -> None:
    assert read_parts(f'{{"operations": {number}, "p99_ms": {number}}}', LoadMetrics(format="json")) == []


def test_k6_whose_requests_all_failed_has_no_latency() -> None:
    found = json.loads((LOADS / "k6.json").read_text())
    found["metrics"]["http_req_failed"] = {"passes": 80, "fails": 0, "value": 1}
    read = figures(json.dumps(found), LoadMetrics(format="k6"))
    assert (read.operations, read.load_errors, read.p50_ms, read.p95_ms) == (80, 80, None, None)


def test_a_users_own_expressions_read_the_output() -> None:
    text = "warm-up: 5 done\nrequests: 12,345 done, p50 800us, p99=1.5 s\nerrors 3\n"
    how = LoadMetrics(
        operations=r"([\d,]+) done", p50_ms=r"p50 (\S+),", p99_ms="p99=(.*)$", load_errors=r"errors (\d+)",
        p95_ms="p95 (.*)",
    )  # fmt: skip
    assert figures(text, how, 2.0) == Figures(12345, 6172.5, 0.8, None, 1500.0, 3)
    assert figures("p50 7,", LoadMetrics(p50_ms="p50 (.*),", latency_unit="us")).p50_ms == pytest.approx(0.007)


def test_an_own_expression_beside_a_format_counts_once() -> None:
    text = (LOADS / "redis.csv").read_text() + "in total 5000\n"
    how = LoadMetrics(format="redis-benchmark", operations="in total ([0-9]+)")
    assert figures(text, how).operations == 5000
    assert figures(text, how).p99_ms == 0.391


@pytest.mark.parametrize(
    "text",
    ['{"a": {"n": 7}, "p99_ms": 3, "errs": "2"}', 'starting\n{"x": 1}\n{"a": {"n": 7}, "p99_ms": 3, "errs": "2"}\n'],
)
def test_a_json_object_is_read_by_the_names_of_its_keys(text: str) -> None:
    how = LoadMetrics(format="json", operations="a.n", load_errors="errs", p50_ms="a.n.too.deep")
    assert figures(text, how, 2.0) == Figures(7, 3.5, None, None, 3.0, 2)
    seconds = LoadMetrics(format="json", operations="a.n", latency_unit="s")
    assert figures(text, seconds).p99_ms == 3000


def test_phases_are_combined() -> None:
    phases = [Figures(100, 50.0, 1.0, None, 9.0, 1), Figures(300, 300.0, 2.0, None, 4.0, 2)]
    assert combine(phases, None, 9.0) == Figures(400, 400 / 3, 2.0, None, 9.0, 3)
    assert combine([*phases, Figures(100)], None, 10.0).throughput_per_s == 50.0, "one part gave no rate"
    assert combine([], 500, 2.0) == Figures(500, 250.0)
    assert combine([], None, 2.0) == Figures()
