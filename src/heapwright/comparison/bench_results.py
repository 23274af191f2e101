"""Computes the results of the benchmark suite: medians, ratios to the reference, cost per pair, geometric means.

The void allocator does nothing. Its run in the same block shows the cost of the benchmark itself, which is subtracted:

    cost of a malloc/free pair = (CPU time − the void's CPU time) / pairs        also for wall time and cycles
    memory overhead            = (peak RSS − the void's peak RSS) / live bytes   live bytes at their maximum

The void's run has the same code, stacks and tables. In place of the blocks it has one 64 KiB buffer for each thread.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from heapwright.comparison.suite import Benchmark
from heapwright.interleaving.stats import Ratio, log_ratio, ratio_interval

Metrics = dict[str, float | None]
_ALWAYS = ("wall_s", "cpu_s", "peak_rss_bytes")
_COMPENSATED = ("ns_per_pair", "wall_ns_per_pair", "cycles_per_pair", "overhead")


@dataclass
class Cell:
    """One benchmark under one allocator at one number of threads.

    Attributes:
        benchmark: the benchmark.
        allocator: name of the allocator.
        threads: number of threads.
        failure: why the cell does not count and was not run again, or empty.
        runs: round → metrics.
        medians: metric → median over the rounds; None if a round lacks the metric.
        ratios: metric → ratio to the reference in the same rounds, with its 95% confidence interval.
    """

    benchmark: Benchmark
    allocator: str
    threads: int
    failure: str = ""
    runs: dict[int, Metrics] = field(default_factory=dict)
    medians: Metrics = field(default_factory=dict)
    ratios: dict[str, Ratio] = field(default_factory=dict)

    @property
    def measured(self) -> bool:
        """Whether there are runs and no failure."""
        return bool(self.runs) and not self.failure

    def spread(self, metric: str) -> tuple[float, float, float] | None:
        """Return median, minimum and maximum over the rounds; None if there are none."""
        values = [v for run in self.runs.values() if (v := run.get(metric)) is not None]
        return (statistics.median(values), min(values), max(values)) if values and self.measured else None


def compute_results(
    cells: Mapping[tuple[str, str, int], Cell], voids: Mapping[tuple[str, int], Cell], reference: str
) -> None:
    """Subtract the void's cost in all runs, then compute medians and ratios of all cells.

    Args:
        cells: (benchmark, allocator, threads) → cell; the results are stored in the cells.
        voids: (benchmark, threads) → the void's runs, for benchmarks whose own cost is subtracted.
        reference: name of the allocator that ratios are to.
    """
    for void in voids.values():
        for run in void.runs.values():
            run["ns_per_pair"] = _per_pair(run.get("cpu_s"), run, 1e9)
        void.medians = _medians(void)
    for (name, _, threads), cell in cells.items():
        if (name, threads) in voids:
            for number, run in cell.runs.items():
                run.update(subtract_void(run, voids[name, threads].runs.get(number, {})))
        cell.medians = _medians(cell)
    for (name, _, threads), cell in cells.items():
        against, cell.ratios = cells[name, reference, threads], {}
        if cell.measured and against.measured:
            for metric in dict.fromkeys((cell.benchmark.time, cell.benchmark.memory, *_ALWAYS, *_COMPENSATED)):
                ratio = ratio_of(cell, against, metric)
                if ratio is not None:
                    cell.ratios[metric] = ratio


def subtract_void(run: Metrics, void: Metrics) -> Metrics:
    """Return the allocator's own cost in a run: the run's cost without that of the void's run in the same block.

    Unknown metrics are None.
    """
    found: Metrics = {}
    for key, source, scale in (
        ("ns_per_pair", "cpu_s", 1e9),
        ("wall_ns_per_pair", "wall_s", 1e9),
        ("cycles_per_pair", "cycles", 1.0),
    ):
        whole, empty = _per_pair(run.get(source), run, scale), _per_pair(void.get(source), void, scale)
        found[key] = None if whole is None or empty is None else whole - empty
        if key == "ns_per_pair":
            found["void_ns_per_pair"] = empty
            found["void_share"] = empty / whole if whole and empty is not None else None
    peak, base, live = run.get("peak_rss_bytes"), void.get("peak_rss_bytes"), run.get("live_bytes")
    found["overhead"] = (peak - base) / live if peak is not None and base is not None and live else None
    return found


def _per_pair(value: float | None, run: Metrics, scale: float) -> float | None:
    """Return a cost divided by the number of the run's malloc/free pairs."""
    pairs = run.get("operations")
    return value * scale / pairs if value is not None and pairs else None


def _medians(cell: Cell) -> Metrics:
    keys = dict.fromkeys(key for run in cell.runs.values() for key in run)
    found: Metrics = {}
    for key in keys:
        values = [run.get(key) for run in cell.runs.values()]
        known = [v for v in values if v is not None]
        found[key] = statistics.median(known) if len(known) == len(values) else None
    return found


def ratio_of(cell: Cell, against: Cell, metric: str) -> Ratio | None:
    """Estimate the ratio of two cells from the rounds that both have.

    Args:
        cell: the cell of the allocator.
        against: the cell of the reference.
        metric: key of the metric.

    Returns:
        The geometric mean of the ratios with its 95% confidence interval. None if a round lacks the metric, or has a
        value that is not positive.
    """
    common = [number for number in cell.runs if number in against.runs]
    logs = [log_ratio(cell.runs[n].get(metric), against.runs[n].get(metric)) for n in common]
    known = [log for log in logs if log is not None]
    return ratio_interval({"": known}, seed=1) if known and len(known) == len(logs) else None


def geometric_mean(values: Iterable[float]) -> float | None:
    """Return the geometric mean of the positive values; None if there are none."""
    logs = [math.log(v) for v in values if v > 0]
    return math.exp(statistics.fmean(logs)) if logs else None


@dataclass(frozen=True)
class Overall:
    """Summary of one allocator over all cells.

    Attributes:
        allocator: name of the allocator.
        time: geometric mean of its ratios to the reference in time; None if there are none.
        memory: the same in memory.
        measured: number of cells with a result.
        of: number of all cells.
    """

    allocator: str
    time: float | None
    memory: float | None
    measured: int
    of: int


def overall(cells: Sequence[Cell], names: Sequence[str], time_keys: Mapping[str, str]) -> list[Overall]:
    """Summarise each allocator over all cells.

    Args:
        cells: the cells of all allocators.
        names: names of the allocators.
        time_keys: benchmark → metric that measures its time.
    """
    found = []
    for name in names:
        own = [cell for cell in cells if cell.allocator == name]
        times = [c.ratios[k].value for c in own if (k := time_keys[c.benchmark.name]) in c.ratios]
        memories = [c.ratios[k].value for c in own if (k := c.benchmark.memory) in c.ratios]
        measured = sum(c.measured for c in own)
        found.append(Overall(name, geometric_mean(times), geometric_mean(memories), measured, len(own)))
    return found
