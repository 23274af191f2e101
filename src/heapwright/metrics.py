"""Every metric, defined once: name, unit, kind, meaning, source.

The command line, the study store, the report and the docs all read this table. Bytes are bytes, times
are seconds; people see MiB and ms through `Metric.show`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from heapwright.errors import unknown
from heapwright.units import (
    show_bytes,
    show_count,
    show_estimate,
    show_latency,
    show_rate,
    show_seconds,
    three_digits,
)  # fmt: skip

__all__ = [
    "METRICS", "NUMERIC", "REPLAYABLE", "REPLAYABLE_SHORT", "Kind", "Metric", "Unit",
    "find_metric", "show_bytes", "show_count", "show_estimate", "show_latency", "show_rate",
    "show_seconds",
]  # fmt: skip

Kind = Literal["memory", "time", "count", "output"]
Unit = Literal["s", "ms", "s/op", "1/s", "B", "B/s", "count", "J", "number", ""]


@dataclass(frozen=True)
class Metric:
    """One measured quantity.

    Attributes:
        key: the name in JSON and in the store, with its unit where it has one.
        unit: the unit of the stored value.
        kind: 'memory' and 'time' decide which pick an objective belongs to; a count that stands for
            work done (instructions, faults) counts as time.
        label: what people see.
        meaning: one sentence.
        source: who counts it.
        objective: whether `--minimize` may name it.
        needs_stops: whether the meter must stop a thread at each mapping call to measure it. False: the kernel counts
            it, or a reading every 10 ms is enough.
        replayable: whether a replay of the program's allocations measures it.
        proportional: whether it needs readings of proportional memory (PSS).
        in_tree: the metric that takes its place for a tree of processes; empty for itself.
        series: the column of memory over time that shows it: rss, heap, vm or huge; empty for none.
        bench_key: the name of the meter's figure in the results of `bench`; empty where `bench` does not report it.
        of_load: whether only a workload file's load or objective measures it. Tables leave it out where none did.
        larger_is_better: whether more is better.
        minimised_as: for such a metric, the one that is minimised in its place; empty for none.
    """

    key: str
    unit: Unit
    kind: Kind
    label: str
    meaning: str
    source: str
    objective: bool = True
    needs_stops: bool = True
    replayable: bool = False
    proportional: bool = False
    in_tree: str = ""
    series: str = ""
    bench_key: str = ""
    of_load: bool = False
    larger_is_better: bool = False
    minimised_as: str = ""

    @property
    def short(self) -> str:
        """The key without its unit: `peak_rss_bytes` → `peak_rss`."""
        for suffix in ("_bytes", "_per_s", "_ms", "_s", "_j"):
            if self.key.endswith(suffix):
                return self.key.removesuffix(suffix)
        return self.key

    def show(self, value: float | None) -> str:
        """The value as people read it, with a unit; 'n/a' if there is none."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return "n/a"
        match self.unit:
            case "B" | "B/s":
                return show_bytes(value) + ("/s" if self.unit == "B/s" else "")
            case "s":
                return show_seconds(value)
            case "ms":
                return show_latency(value / 1e3)
            case "s/op":
                return show_latency(value)
            case "1/s":
                return show_rate(value)
            case "J":
                return f"{three_digits(value)} J"
            case "number":
                return three_digits(value)
            case _:
                return show_count(value)


_METER = "the meter: /proc/PID/statm at every mapping call and every 10 ms"
_PSS = "the meter: /proc/PID/smaps_rollup of every process, as often as 1% of the wall time allows"
_HUGE = "the meter: AnonHugePages in /proc/PID/smaps_rollup of every process, as often as 0.5% of the wall time allows"
_VMSTAT = "/proc/vmstat before and after the run; the kernel does not count them by process"
_RUSAGE = "the kernel's rusage of every process of the tree"

_LOAD = "the server's load, as [server.load_metrics] of the workload file says"


def _of_load(
    name: tuple[str, Unit, Kind, str],
    meaning: str,
    source: str = _LOAD,
    objective: bool = True,
    larger_is_better: bool = False,
    minimised_as: str = "",
) -> Metric:
    """Return a metric of a server's load; `name` is its key, unit, kind and label."""
    return Metric(
        *name,
        meaning,
        source,
        objective,
        needs_stops=False,
        of_load=True,
        larger_is_better=larger_is_better,
        minimised_as=minimised_as,
    )


def _observed(name: tuple[str, Unit, Kind, str], meaning: str, source: str, series: str = "") -> Metric:
    """Return a metric that is shown and never minimised; `name` is its key, unit, kind and label."""
    return Metric(*name, meaning, source, objective=False, needs_stops=False, series=series)


_ALL = (
    Metric(
        "peak_rss_bytes",
        "B",
        "memory",
        "peak resident memory",
        "Largest resident memory at any moment; for a process tree, the largest sum over live processes.",
        "ru_maxrss for one process, else " + _METER,
        needs_stops=False,
        replayable=True,
        in_tree="peak_pss_bytes",
        series="rss",
        bench_key="peak_rss_bytes",
    ),
    Metric(
        "mean_rss_bytes",
        "B",
        "memory",
        "mean resident memory",
        "Resident memory averaged over wall time; memory that is returned early lowers it.",
        _METER,
        needs_stops=False,
        replayable=True,
        in_tree="mean_pss_bytes",
    ),
    Metric(
        "p95_rss_bytes",
        "B",
        "memory",
        "p95 resident memory",
        "Resident memory that was not exceeded for 95% of the wall time; at most 0.4% too large.",
        _METER,
        needs_stops=False,
        replayable=True,
    ),
    Metric(
        "final_rss_bytes",
        "B",
        "memory",
        "final resident memory",
        "Resident memory of the process tree when the process that was started ends, before it frees its memory.",
        _METER,
        needs_stops=False,
    ),
    Metric(
        "peak_pss_bytes",
        "B",
        "memory",
        "peak proportional memory",
        "Largest proportional memory (PSS) of the process tree: each shared page is divided among the processes that"
        " share it, so it counts once in the sum. n/a if the readings missed the peak.",
        _PSS + "; between readings it follows anonymous memory",
        needs_stops=False,
        replayable=True,
        proportional=True,
        series="rss",
    ),
    Metric(
        "mean_pss_bytes",
        "B",
        "memory",
        "mean proportional memory",
        "Proportional memory (PSS) of the process tree averaged over wall time.",
        _PSS + "; between readings it follows resident memory",
        needs_stops=False,
        replayable=True,
        proportional=True,
    ),
    Metric(
        "cgroup_peak_bytes",
        "B",
        "memory",
        "peak memory of the cgroup",
        "Largest memory that the kernel charged to the tree's own memory cgroup, page cache and kernel memory included;"
        " only where the cgroup holds no other process.",
        "memory.peak or memory.current of cgroup 2, memory.max_usage_in_bytes or memory.usage_in_bytes of cgroup 1",
        needs_stops=False,
    ),
    Metric(
        "peak_heap_bytes",
        "B",
        "memory",
        "peak mapped heap",
        "Largest private writable memory obtained for data, touched or not, without stacks.",
        _METER,
        replayable=True,
        series="heap",
    ),
    Metric("mean_heap_bytes", "B", "memory", "mean mapped heap", "Mapped heap averaged over wall time.", _METER),
    Metric(
        "peak_vm_bytes",
        "B",
        "memory",
        "peak mapped memory",
        "Largest size of the address space (VmPeak).",
        _METER,
        replayable=True,
        series="vm",
    ),
    _observed(
        ("huge_bytes", "B", "memory", "peak memory in huge pages"),
        "Largest anonymous memory in transparent huge pages at any reading, summed over the process tree.",
        _HUGE,
        series="huge",
    ),
    _observed(
        ("mean_huge_bytes", "B", "memory", "mean memory in huge pages"),
        "Anonymous memory in transparent huge pages averaged over wall time.",
        _HUGE + "; a straight line between readings",
    ),
    _observed(
        ("huge_share", "number", "count", "share in huge pages"),
        "Share of the resident anonymous memory that is in transparent huge pages, both averaged over time: 0 to 1.",
        _HUGE,
    ),
    Metric(
        "wall_s",
        "s",
        "time",
        "wall time",
        "From start to end of the whole process tree.",
        "clock",
        needs_stops=False,
        replayable=True,
        bench_key="process_wall_s",
    ),
    Metric(
        "cpu_s",
        "s",
        "time",
        "CPU time",
        "user + system time of the whole process tree.",
        _RUSAGE,
        needs_stops=False,
        replayable=True,
        bench_key="process_cpu_s",
    ),
    Metric(
        "user_s",
        "s",
        "time",
        "user time",
        "CPU time outside the kernel.",
        _RUSAGE,
        needs_stops=False,
        replayable=True,
        bench_key="process_user_s",
    ),
    Metric(
        "sys_s",
        "s",
        "time",
        "system time",
        "CPU time inside the kernel.",
        _RUSAGE,
        needs_stops=False,
        replayable=True,
        bench_key="process_sys_s",
    ),
    Metric(
        "returned_bytes",
        "B",
        "count",
        "memory given back",
        "Sum of the decreases of resident memory at calls that return it, such as munmap, brk and madvise.",
        _METER,
    ),
    Metric(
        "returned_lazily_bytes",
        "B",
        "count",
        "memory given back lazily",
        "Sum of the lengths passed to madvise(MADV_FREE): the kernel may take this memory when it needs it.",
        _METER,
    ),
    Metric(
        "release_rate", "B/s", "count", "release rate", "returned_bytes / wall_s (of a server: the load's).", _METER
    ),
    Metric(
        "massif_peak_bytes",
        "B",
        "memory",
        "Massif peak",
        "The peak that Massif --pages-as-heap=yes would report, less its own constants; only with --massif.",
        "the meter's emulation of Massif, or Massif",
        replayable=True,
    ),
    Metric(
        "minor_faults",
        "count",
        "time",
        "minor faults",
        "Page faults served without I/O.",
        _RUSAGE,
        needs_stops=False,
        replayable=True,
        bench_key="minor_faults",
    ),
    Metric(
        "major_faults",
        "count",
        "time",
        "major faults",
        "Page faults that needed I/O.",
        _RUSAGE,
        needs_stops=False,
        bench_key="major_faults",
    ),
    _observed(
        ("system_thp_faults", "count", "count", "huge page faults, system"),
        "Page faults of all processes on the machine that got a transparent huge page during the run.",
        _VMSTAT,
    ),
    _observed(
        ("system_thp_collapses", "count", "count", "huge page collapses, system"),
        "Transparent huge pages that the kernel made of small pages during the run, in all processes of the machine.",
        _VMSTAT,
    ),
    Metric(
        "mapping_calls",
        "count",
        "time",
        "mapping calls",
        "mmap, munmap, brk, mremap, mprotect and madvise calls.",
        "the meter",
        replayable=True,
    ),
    Metric(
        "instructions",
        "count",
        "time",
        "instructions",
        "Retired user instructions.",
        "perf_event_open where it works, callgrind when asked for",
    ),
    Metric("energy_j", "J", "time", "energy", "Energy of the CPU packages during the run.", "RAPL"),
    _of_load(
        ("idle_rss_bytes", "B", "memory", "idle resident memory"),
        "Resident memory of a server's process tree after the load has ended and the seconds of `idle` in the workload"
        " file have passed.",
        "/proc/PID/smaps_rollup of every process of the server",
    ),
    _of_load(
        ("load_operations", "count", "count", "operations of the load"),
        "Operations that a server's load completed; a larger value is better. It varies in loads of a fixed time.",
        larger_is_better=True,
        objective=False,
    ),
    _of_load(
        ("throughput_per_s", "1/s", "time", "throughput"),
        "Operations of a server's load per second; a larger value is better.",
        _LOAD + ", or operations over wall time",
        larger_is_better=True,
        minimised_as="time_per_op_s",
    ),
    _of_load(
        ("time_per_op_s", "s/op", "time", "time per operation"),
        "Time of a server's load per operation: the inverse of its throughput.",
        _LOAD + ", or wall time over operations",
    ),
    _of_load(("p50_ms", "ms", "time", "median latency"), "Latency that half of the load's operations do not exceed."),
    _of_load(
        ("p95_ms", "ms", "time", "95th percentile latency"), "Latency that 95% of the load's operations do not exceed."
    ),
    _of_load(
        ("p99_ms", "ms", "time", "99th percentile latency"), "Latency that 99% of the load's operations do not exceed."
    ),
    _of_load(("load_errors", "count", "count", "errors of the load"), "Failed operations of a load.", objective=False),
    _of_load(
        ("cpu_per_op_s", "s/op", "time", "CPU time per operation"),
        "CPU time of the server's process tree during the load, divided by the load's operations.",
        "/proc/PID/stat of every process of the server at the beginning and the end of the load",
    ),
    _of_load(
        ("objective", "number", "count", "objective"),
        "The positive number that [objective] of the workload file computes from each run; a smaller value is better.",
        "the workload file's command, or a function of an installed package",
    ),
    Metric("exit_code", "", "output", "exit code", "The target's exit status, 128 + signal.", "wait4", False),
    Metric(
        "output_sha256",
        "",
        "output",
        "output hash",
        "SHA-256 of the target's stdout, for output equality.",
        "heapwright",
        False,
    ),
)

METRICS: dict[str, Metric] = {metric.key: metric for metric in _ALL}
NUMERIC: tuple[str, ...] = tuple(m.key for m in _ALL if m.kind != "output")
REPLAYABLE: frozenset[str] = frozenset(m.key for m in _ALL if m.replayable)
REPLAYABLE_SHORT = ", ".join(m.short for m in _ALL if m.replayable)  # for messages


def find_metric(name: str) -> Metric:
    """The metric of this key or short form (`cpu`, `peak_rss`).

    Raises:
        UsageError: no such metric; the hint names the nearest.
    """
    for metric in _ALL:
        if name in (metric.key, metric.short):
            return metric
    raise unknown("metric", name, [m.short for m in _ALL if m.objective])
