"""The arithmetic of the benchmark suite: medians, ratios to the reference, the void's cost taken off, geometric means.

A malloc/free pair costs what the program took, less what it took in the same block with an allocator that does nothing:
(CPU time − the void's CPU time) / pairs, and the same in wall time and in cycles. Memory overhead is what the allocator
made resident for each byte that was live at the worst moment: (peak RSS − the void's peak RSS) / live bytes; the
void's run has the same code, stacks and tables, and one 64 KiB buffer for each thread in place of the blocks.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from heapwright.comparison.suite import Benchmark
from heapwright.experiment.stats import Ratio, log_ratio, ratio_interval

Metrics = dict[str, float | None]
_ALWAYS = ("wall_s", "cpu_s", "peak_rss_bytes")
_COMPENSATED = ("ns_per_pair", "wall_ns_per_pair", "cycles_per_pair", "overhead")


@dataclass
class Cell:
    """One benchmark under one allocator at one number of threads.

    Attributes:
        failure: why it does not count (it was not run again), or empty.
        runs: round → metrics.
        medians: metric → over the rounds; None where a round has none.
        ratios: metric → to the reference in the same rounds, with the 95 % interval.
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
        """Whether there is anything to show."""
        return bool(self.runs) and not self.failure

    def spread(self, metric: str) -> tuple[float, float, float] | None:
        """Median, least and most over the rounds."""
        values = [v for run in self.runs.values() if (v := run.get(metric)) is not None]
        return (statistics.median(values), min(values), max(values)) if values and self.measured else None


def derive(cells: Mapping[tuple[str, str, int], Cell], voids: Mapping[tuple[str, int], Cell], reference: str) -> None:
    """Fills medians and ratios of all cells, the void's cost taken off first."""
    for void in voids.values():
        for run in void.runs.values():
            run["ns_per_pair"] = _per_pair(run.get("cpu_s"), run, 1e9)
        void.medians = _medians(void)
    for (name, _, threads), cell in cells.items():
        if (name, threads) in voids:
            for number, run in cell.runs.items():
                run.update(compensate(run, voids[name, threads].runs.get(number, {})))
        cell.medians = _medians(cell)
    for (name, _, threads), cell in cells.items():
        against, cell.ratios = cells[name, reference, threads], {}
        if cell.measured and against.measured:
            for metric in dict.fromkeys((cell.benchmark.time, cell.benchmark.memory, *_ALWAYS, *_COMPENSATED)):
                ratio = ratio_of(cell, against, metric)
                if ratio is not None:
                    cell.ratios[metric] = ratio


def compensate(run: Metrics, void: Metrics) -> Metrics:
    """What is the allocator's own, of a run and of the void's run in the same block; None for what is not known."""
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
    """A cost divided by the run's malloc/free pairs."""
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
    """The ratio over the rounds both have; None where a round has no such number, or one that is not above 0."""
    common = [number for number in cell.runs if number in against.runs]
    logs = [log_ratio(cell.runs[n].get(metric), against.runs[n].get(metric)) for n in common]
    known = [log for log in logs if log is not None]
    return ratio_interval({"": known}, seed=1) if known and len(known) == len(logs) else None


def geometric_mean(values: Iterable[float]) -> float | None:
    """None of nothing."""
    logs = [math.log(v) for v in values if v > 0]
    return math.exp(statistics.fmean(logs)) if logs else None


@dataclass(frozen=True)
class Overall:
    """One allocator over all cells.

    Attributes:
        time, memory: geometric means of the ratios to the reference.
        measured, of: cells that count, and all.
    """

    allocator: str
    time: float | None
    memory: float | None
    measured: int
    of: int


def overall(cells: Sequence[Cell], names: Sequence[str], time_keys: Mapping[str, str]) -> list[Overall]:
    """Each allocator's geometric means; `time_keys` is benchmark → metric."""
    found = []
    for name in names:
        own = [cell for cell in cells if cell.allocator == name]
        times = [c.ratios[k].value for c in own if (k := time_keys[c.benchmark.name]) in c.ratios]
        memories = [c.ratios[k].value for c in own if (k := c.benchmark.memory) in c.ratios]
        measured = sum(c.measured for c in own)
        found.append(Overall(name, geometric_mean(times), geometric_mean(memories), measured, len(own)))
    return found
