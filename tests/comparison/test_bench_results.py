"""Tests the results of the suite: the void's cost subtracted, paired ratios, geometric means."""

from __future__ import annotations

import math
import random

import pytest

from heapwright.comparison.bench_results import Cell, Metrics, compute_results, geometric_mean, overall, subtract_void
from heapwright.comparison.suite import BENCHMARKS, Benchmark

REALISTIC = next(b for b in BENCHMARKS if b.name == "realistic")
SERVER = next(b for b in BENCHMARKS if b.name == "server")


def cell(benchmark: Benchmark, name: str, runs: list[Metrics], threads: int = 1) -> Cell:
    return Cell(benchmark, name, threads, runs={i: dict(run) for i, run in enumerate(runs)})


def metrics(cpu_s: float, peak: float = 2e6, **more: float | None) -> Metrics:
    return {"cpu_s": cpu_s, "wall_s": cpu_s / 2, "operations": 1000, "peak_rss_bytes": peak, "live_bytes": 1e6, **more}


def test_the_cost_of_the_void_is_subtracted() -> None:
    found = subtract_void(metrics(5e-4, 4e6, cycles=9e5), metrics(2e-4, 1e6, cycles=4e5))
    assert found["ns_per_pair"] == pytest.approx(300)
    assert found["wall_ns_per_pair"] == pytest.approx(150)
    assert found["cycles_per_pair"] == pytest.approx(500)
    assert found["void_ns_per_pair"] == pytest.approx(200)
    assert found["void_share"] == pytest.approx(0.4)
    assert found["overhead"] == pytest.approx(3)


def test_each_run_is_divided_by_its_own_number_of_pairs() -> None:
    """Where threads hand over blocks, the number of pairs depends on timing."""
    void = {**metrics(2e-4), "operations": 500.0}
    assert subtract_void(metrics(5e-4), void)["ns_per_pair"] == pytest.approx(500 - 400)


@pytest.mark.parametrize(
    ("run", "void"),
    [(metrics(5e-4), {}), ({}, metrics(5e-4)), ({**metrics(5e-4), "operations": 0.0}, metrics(5e-4))],
)
def test_unknown_metrics_are_none(run: Metrics, void: Metrics) -> None:
    found = subtract_void(run, void)
    assert found["ns_per_pair"] is None
    assert found["cycles_per_pair"] is None


def test_drift_of_the_machine_cancels() -> None:
    """Every allocator is twice as slow in each later round. The ratio stays exactly the same."""
    slow = [2.0**n for n in range(4)]
    names = {"a": 3e-4, "b": 4e-4}
    cells = {("realistic", n, 1): cell(REALISTIC, n, [metrics(c * s) for s in slow]) for n, c in names.items()}
    voids = {("realistic", 1): cell(REALISTIC, "void", [metrics(1e-4 * s, 1e6) for s in slow])}
    compute_results(cells, voids, "a")
    ratio = cells["realistic", "b", 1].ratios["ns_per_pair"]
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((1.5, 1.5, 1.5))
    assert cells["realistic", "a", 1].ratios["ns_per_pair"].value == 1
    assert voids["realistic", 1].medians["ns_per_pair"] == pytest.approx(300)


def test_the_interval_of_an_allocator_against_itself_contains_1() -> None:
    """With artificial noise, about 95% of the intervals of 400 comparisons contain 1."""
    rng = random.Random(1)
    covered = 0
    for _ in range(400):
        noise = [[math.exp(rng.gauss(0, 0.05)) for _ in range(3)] for _ in range(5)]
        cells = {
            ("realistic", n, 1): cell(REALISTIC, n, [metrics(5e-4 * row[i]) for row in noise])
            for i, n in enumerate(("a", "a-2"))
        }
        voids = {("realistic", 1): cell(REALISTIC, "void", [metrics(3e-4 * row[2]) for row in noise])}
        compute_results(cells, voids, "a")
        ratio = cells["realistic", "a-2", 1].ratios["ns_per_pair"]
        covered += ratio.low <= 1 <= ratio.high
    assert 0.92 <= covered / 400 <= 0.98


def test_noise_larger_than_the_cost_gives_no_ratio() -> None:
    costs = {"a": (5e-4, 4e-4), "b": (5e-4, 2e-4)}
    cells = {("realistic", n, 1): cell(REALISTIC, n, [metrics(v) for v in both]) for n, both in costs.items()}
    voids = {("realistic", 1): cell(REALISTIC, "void", [metrics(3e-4), metrics(3e-4)])}
    compute_results(cells, voids, "a")
    found = cells["realistic", "b", 1]
    assert "ns_per_pair" not in found.ratios
    assert found.ratios["cpu_s"].value == pytest.approx(0.5**0.5)
    assert found.medians["ns_per_pair"] == pytest.approx(50)


def test_a_failed_cell_has_no_ratio() -> None:
    cells = {("server", n, 1): cell(SERVER, n, [metrics(5e-4)] * 2) for n in ("a", "b")}
    cells["server", "b", 1].failure = "killed by SIGSEGV"
    compute_results(cells, {}, "a")
    assert cells["server", "b", 1].ratios == {}
    assert not cells["server", "b", 1].measured
    assert cells["server", "b", 1].spread("wall_s") is None


def test_there_are_no_ratios_if_the_reference_fails() -> None:
    cells = {("server", n, 1): cell(SERVER, n, [metrics(5e-4)] * 2) for n in ("a", "b")}
    cells["server", "a", 1].failure = "hung"
    compute_results(cells, {}, "a")
    assert cells["server", "b", 1].ratios == {}
    assert cells["server", "b", 1].medians["cpu_s"] == 5e-4


def test_geometric_means_leave_out_failed_cells() -> None:
    cells = {
        ("server", name, threads): cell(SERVER, name, [metrics(c)] * 2, threads)
        for threads in (1, 2)
        for name, c in (("a", 1e-3), ("b", 2e-3))
    }
    cells["server", "b", 2].failure = "killed by SIGSEGV"
    compute_results(cells, {}, "a")
    first, second = overall(list(cells.values()), ["a", "b"], {"server": "wall_s"})
    assert (first.time, first.measured, first.of) == (1, 2, 2)
    assert second.time == pytest.approx(2)
    assert (second.measured, second.of) == (1, 2)


def test_the_geometric_mean_of_no_values_is_none() -> None:
    assert geometric_mean([]) is None
    assert geometric_mean([2, 0.5]) == pytest.approx(1)
