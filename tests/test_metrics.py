"""Tests metrics: their names in the contract, their lookup, and how they are shown to users."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heapwright.errors import UsageError
from heapwright.metrics import (
    METRICS,
    NUMERIC,
    find_metric,
    show_bytes,
    show_count,
    show_latency,
    show_rate,
    show_seconds,
)
from heapwright.objectives import parse_metrics, parse_objectives

CONTRACT = {
    "wall_s", "user_s", "sys_s", "cpu_s", "peak_rss_bytes", "mean_rss_bytes", "peak_heap_bytes", "mean_heap_bytes",
    "peak_vm_bytes", "returned_bytes", "returned_lazily_bytes", "release_rate", "massif_peak_bytes", "minor_faults",
    "major_faults", "mapping_calls", "instructions", "energy_j", "exit_code", "output_sha256", "peak_pss_bytes",
    "mean_pss_bytes", "cgroup_peak_bytes", "idle_rss_bytes", "throughput_per_s", "p50_ms", "p95_ms", "p99_ms",
    "load_errors", "load_operations", "cpu_per_op_s", "time_per_op_s", "final_rss_bytes", "p95_rss_bytes",
    "objective", "huge_bytes", "mean_huge_bytes", "huge_share", "system_thp_faults", "system_thp_collapses",
}  # fmt: skip


def test_the_metrics_are_those_of_the_contract() -> None:
    assert set(METRICS) == CONTRACT
    assert set(NUMERIC) == CONTRACT - {"exit_code", "output_sha256"}


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_every_metric_is_described(metric: object) -> None:
    from heapwright.metrics import Metric

    assert isinstance(metric, Metric)
    assert metric.meaning.endswith(".")
    assert metric.source
    suffixes = {"B": "_bytes", "s": "_s", "J": "_j", "B/s": "_rate", "ms": "_ms", "s/op": "_per_op_s", "1/s": "_per_s"}
    assert metric.key.endswith(suffixes.get(metric.unit, ""))
    shown_only = {"load_operations", "load_errors"} | {key for key in METRICS if "huge" in key or "thp" in key}
    assert metric.objective == (metric.kind != "output" and metric.key not in shown_only)


def test_short_names_are_unambiguous() -> None:
    shorts = [m.short for m in METRICS.values()]
    assert len(set(shorts)) == len(shorts)
    for metric in METRICS.values():
        assert find_metric(metric.short) is find_metric(metric.key) is metric


@pytest.mark.parametrize(
    ("wrong", "near"), [("peek_rss", "peak_rss"), ("cpu_time", "cpu"), ("wal", "wall"), ("instruction", "instructions")]
)
def test_unknown_names_get_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(UsageError, match=f"unknown metric '{wrong}'") as caught:
        find_metric(wrong)
    assert caught.value.hint == f"did you mean '{near}'?"


def test_objectives_in_order_each_once() -> None:
    assert [m.key for m in parse_objectives("cpu, peak_rss_bytes,,cpu_s")] == ["cpu_s", "peak_rss_bytes"]


def test_throughput_can_be_shown() -> None:
    found = parse_metrics("throughput,p99,load_operations")
    assert [m.key for m in found] == ["throughput_per_s", "p99_ms", "load_operations"]
    with pytest.raises(UsageError, match="'exit_code' is not a number"):
        parse_metrics("exit_code")


def test_throughput_is_maximised_by_its_inverse() -> None:
    assert [m.key for m in parse_objectives("p99", "throughput")] == ["p99_ms", "time_per_op_s"]
    assert [m.key for m in parse_objectives("time_per_op", "throughput")] == ["time_per_op_s"]
    with pytest.raises(UsageError, match="'p99_ms' cannot be maximised") as caught:
        parse_objectives(None, "p99")
    assert "throughput" in caught.value.hint
    with pytest.raises(UsageError, match="--maximize names no metric"):
        parse_objectives(None, " ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--minimize names no metric"),
        (" , ", "--minimize names no metric"),
        ("exit_code", "'exit_code' cannot be minimised"),
        ("cpu,output_sha256", "'output_sha256' cannot be minimised"),
        ("load_errors", "'load_errors' cannot be minimised"),
        ("cpu,throughput", "'throughput_per_s' cannot be minimised: more is better"),
        ("cpu peak_rss", "unknown metric 'cpu peak_rss'"),
    ],
)
def test_invalid_objectives_are_refused_with_a_hint(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parse_objectives(text)
    assert caught.value.hint


# how values are shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (1048575, "1.0 MiB"), (1 << 20, "1.0 MiB"),
     (-(3 << 20), "-3.0 MiB"), (1 << 30, "1.00 GiB"), (5 << 40, "5120.00 GiB")],
)  # fmt: skip
def test_bytes_are_shown_in_binary_units(value: float, shown: str) -> None:
    assert show_bytes(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0.0 ms"),
        (0.0123, "12.3 ms"),
        (0.99996, "1.00 s"),
        (1, "1.00 s"),
        (119.9, "119.90 s"),
        (120, "2.0 min"),
        (7196, "119.9 min"),
        (7197, "2.0 h"),
        (172_799, "48.0 h"),
        (172_800, "2.0 d"),
    ],
)
def test_seconds_are_shown_in_a_readable_unit(value: float, shown: str) -> None:
    assert show_seconds(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (9999, "9999"), (12345, "12.3 k"), (999_400, "999 k"), (999_999, "1 M"), (1_234_567, "1.23 M"),
     (999.9e6, "1 G"), (5e12, "5000 G"), (-20_000, "-20 k")],
)  # fmt: skip
def test_counts_are_shown_with_si_prefixes(value: float, shown: str) -> None:
    assert show_count(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 µs"), (0.0000123, "12.3 µs"), (0.0012, "1.2 ms"), (0.9994, "999 ms"), (1.5, "1.50 s"), (-0.002, "-2 ms")],
)
def test_latencies_are_shown_in_milliseconds(value: float, shown: str) -> None:
    assert show_latency(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 /s"), (2.345, "2.35 /s"), (1234.5, "1234 /s"), (12345, "12.3 k/s"), (1_234_567, "1.23 M/s")],
)
def test_rates_are_shown_per_second(value: float, shown: str) -> None:
    assert show_rate(value) == shown


def test_only_work_done_is_better_when_larger() -> None:
    assert {m.key for m in METRICS.values() if m.larger_is_better} == {"throughput_per_s", "load_operations"}
    assert METRICS["throughput_per_s"].short == "throughput"
    assert METRICS["p99_ms"].show(12.34) == "12.3 ms"
    assert METRICS["cpu_per_op_s"].show(0.0000421) == "42.1 µs"


@given(st.floats(-1e18, 1e18))
def test_no_number_is_shown_with_an_exponent(value: float) -> None:
    for metric in NUMERIC:
        shown = METRICS[metric].show(value)
        assert re.fullmatch(r"-?\d+(\.\d+)?( \S+)?", shown), shown


@given(st.floats(0, 1e15), st.floats(0, 1e15))
def test_shown_numbers_are_rounded_correctly(a: float, b: float) -> None:
    factor = {"B": 1, "KiB": 1024, "MiB": 1 << 20, "GiB": 1 << 30}
    number, unit = show_bytes(a).split()
    assert float(number) * factor[unit] == pytest.approx(a, rel=0.06, abs=0.5)
    count, _, si = show_count(b).partition(" ")
    assert float(count) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[si] == pytest.approx(b, rel=0.006, abs=0.5)


def test_a_missing_value_is_shown_as_n_a() -> None:
    for key in NUMERIC:
        assert METRICS[key].show(None) == METRICS[key].show(math.nan) == "n/a"
    assert METRICS["release_rate"].show(2048) == "2.0 KiB/s"
    assert METRICS["energy_j"].show(12.345) == "12.3 J"
    assert METRICS["energy_j"].show(12345) == "12345 J"
