"""Notices loads whose work cannot be compared: those of a fixed time, and those with failed operations.

In a fixed time a slow server does less work, so its wall time says nothing. The runs show it, whatever tool loads the
server: the number of operations differs between runs. A failed operation takes less memory and time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from heapwright.metrics import show_seconds
from heapwright.units import three_digits

Metrics = Mapping[str, float | None]

# Time → what is compared in its place under a load of fixed time.
_STAND_INS = {"wall_s": "throughput_per_s", "cpu_s": "cpu_per_op_s"}
_MINIMISED = {"wall_s": "cpu_per_op_s", "cpu_s": "cpu_per_op_s"}  # the search minimises

_OTHER_WORK = 0.002  # relative: operations that differ by less are the same work
_SAME_TIME = 0.1  # relative: wall times that differ by less are a fixed time
_START_UP = 0.01  # a load of whole seconds takes at most this share longer, but 0.03 to 0.1 s


def replacement_metrics(metrics: Sequence[str], minimised: bool = False) -> tuple[str, ...]:
    """Return the metrics to compare under a load of fixed time, each once.

    Args:
        metrics: keys of the metrics to compare otherwise.
        minimised: whether they are objectives, of which less must be better.
    """
    instead = _MINIMISED if minimised else _STAND_INS
    return tuple(dict.fromkeys(instead.get(key, key) for key in metrics))


def fixed_time_sentence(inputs: Iterable[Sequence[Metrics]]) -> str:
    """Return a sentence if a load runs for a fixed time, or does other work in each run for another reason; else empty.

    Args:
        inputs: the metrics of the runs, by input.
    """
    for runs in inputs:
        counted = [r for r in runs if r.get("load_operations") and r.get("wall_s")]
        if len(counted) < 2:
            continue
        done = [r.get("load_operations") or 0.0 for r in counted]
        walls = [r.get("wall_s") or 0.0 for r in counted]
        tried = [count + (r.get("load_errors") or 0.0) for count, r in zip(done, counted, strict=True)]
        if min(_spread(done), _spread(tried)) > _OTHER_WORK:
            fixed = _spread(walls) < _SAME_TIME or _whole_seconds(walls)
            kind = "runs for a fixed time" if fixed else "does another amount of work in each run"
            times = " to ".join(map(show_seconds, [min(walls)] if fixed else [min(walls), max(walls)]))
            return (
                f"The load {kind}: it did {min(done):,.0f} to {max(done):,.0f} operations in {times}."
                " Wall time and CPU time cannot be compared; throughput and CPU time per operation can."
            )
    return ""


def fixed_time_warning(inputs: Iterable[Sequence[Metrics]]) -> str:
    """Return a warning if a load may run for a fixed time, and nothing tells the number of operations; else empty.

    Args:
        inputs: the metrics of the runs of a server, by input.
    """
    for runs in inputs:
        walls = [wall for r in runs if r.get("load_operations") is None and (wall := r.get("wall_s"))]
        if len(walls) > 1 and _whole_seconds(walls):
            return (
                f"Every load took {show_seconds(min(walls))}. If it runs for a fixed time, wall time cannot be"
                " compared: give it a fixed number of operations, or say in [server.load_metrics] how many it did."
            )
    return ""


def load_errors(runs: Iterable[Metrics]) -> str:
    """Return the errors of loads with their share: '2,120 errors in 3,000 operations (70.7%)'; empty if there are none.

    Args:
        runs: the metrics of runs of a server.
    """
    known = [(r.get("load_errors") or 0.0, r.get("load_operations") or 0.0) for r in runs]
    errors, operations = sum(e for e, _ in known), sum(o for _, o in known)
    if not errors:
        return ""
    text = f"{errors:,.0f} error{'s' if errors != 1 else ''} in {operations:,.0f} operations"
    # Some tools do not count failed operations.
    return f"{text} ({three_digits(100 * errors / operations)}%)" if errors <= operations else text


def load_errors_warning(runs: Iterable[Metrics], where: str = "") -> str:
    """Return a warning if the loads had errors; else empty.

    Args:
        runs: the metrics of runs of a server.
        where: says which runs: ' under exgen'.
    """
    errors = load_errors(runs)
    return f"The load{where} had {errors}: an operation that fails may take less memory and time." if errors else ""


def _spread(values: Sequence[float]) -> float:
    """Return by which share the largest value exceeds the smallest."""
    return max(values) / min(values) - 1 if min(values) > 0 else 0.0


def _whole_seconds(walls: Sequence[float]) -> bool:
    """Return whether all times are the same whole number of seconds and a short start-up."""
    seconds = int(min(walls))
    return seconds > 0 and max(walls) - seconds <= min(max(_START_UP * seconds, 0.03), 0.1)
