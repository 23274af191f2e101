"""Holds the resident memory that a recording measured of its program, and compares a replay with it.

A replay on the recorded malloc should hold as much memory of malloc as the program held. Where it does not, its
prediction for another malloc is wrong by as much (`misfit`). The recorder measures malloc's part of resident memory
under glibc. Under another malloc all private memory is known: malloc has at most that.
"""

from __future__ import annotations

import bisect
import itertools
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heapwright.trace.info import Info, ResidentCurve

if TYPE_CHECKING:
    from heapwright.trace.replay_report import Report

_NEAR_PEAK = 0.8  # readings of at least this share of the highest are compared
_MOST_READINGS = 64
_FEW_READINGS = 20  # of a program that is so short, only the peak is known
_SHORT_REST = 0.01  # share of the time after the last reading that is left out


@dataclass(frozen=True)
class ProgramMemory:
    """Resident memory of a recorded program by its own readings, in bytes.

    Attributes:
        peak_bytes, mean_bytes, p95_bytes: over recorded time; 0 if the recording does not tell.
        malloc: (seconds since the trace began, bytes) of malloc's memory, near its peak; without memory of a parent
            that forked the program.
        exact: whether `malloc` is malloc's memory; otherwise all private memory, of which malloc has a part.
    """

    peak_bytes: float = 0.0
    mean_bytes: float = 0.0
    p95_bytes: float = 0.0
    malloc: tuple[tuple[float, int], ...] = ()
    exact: bool = False

    def by_metric(self) -> dict[str, float]:
        """Metric of resident memory → bytes, 0 if unknown. Resident memory stands for proportional memory."""
        return {
            "peak_rss_bytes": self.peak_bytes,
            "mean_rss_bytes": self.mean_bytes,
            "p95_rss_bytes": self.p95_bytes,
            "peak_pss_bytes": self.peak_bytes,
            "mean_pss_bytes": self.mean_bytes,
        }


def program_memory(info: Info) -> ProgramMemory | None:
    """Returns the program's memory from the statistics of its recording; None if it has no readings."""
    if not info.peak_resident_bytes:
        return None
    curve = info.resident_curve
    malloc, exact = _malloc_near_peak(curve, info.forked)
    if len(curve.time_s) < _FEW_READINGS:
        return ProgramMemory(info.peak_resident_bytes, malloc=malloc, exact=exact)
    times, sizes = [*curve.time_s], [*curve.resident_bytes]
    end = info.duration_s or times[-1]
    if info.loss.cut_short and end - times[-1] > _SHORT_REST * end:  # it was killed, and took no reading at its end
        if info.resident_at_end is None:  # its memory may have changed after the last one
            return ProgramMemory(info.peak_resident_bytes, malloc=malloc, exact=exact)
        times.append(end)
        sizes.append(sizes[-1])
    rows = zip(times, times[1:], sizes, sizes[1:], strict=False)
    timed = sorted(((first + second) / 2, until - since) for since, until, first, second in rows)
    total = sum(span for _, span in timed)
    mean = sum(size * span for size, span in timed) / total
    passed = itertools.accumulate(span for _, span in timed)
    p95 = next(size for (size, _), so_far in zip(timed, passed, strict=True) if so_far >= 0.95 * total)
    return ProgramMemory(info.peak_resident_bytes, mean, p95, malloc, exact)


def _malloc_near_peak(curve: ResidentCurve, forked: bool) -> tuple[tuple[tuple[float, int], ...], bool]:
    """The readings of malloc's memory near its peak, and whether they are exact (`ProgramMemory`)."""
    found = [(at, size) for at, size in zip(curve.time_s, curve.heap_bytes, strict=True) if size is not None]
    exact = bool(found) and not (forked and curve.heap_bytes[0] is None)
    if not exact:
        private = zip(curve.time_s, curve.resident_bytes, curve.files_bytes, strict=True)
        found = [(at, max(0, size - files)) for at, size, files in private if files is not None]
    inherited = found[0][1] if forked and found else 0
    highest = max((size for _, size in found), default=0) - inherited
    near = [(at, size - inherited) for at, size in found if size - inherited >= _NEAR_PEAK * highest > 0]
    return tuple(near[:: -(-len(near) // _MOST_READINGS) or 1]), exact


def misfit(memory: ProgramMemory, report: Report) -> float | None:
    """Compares a replay on the recorded malloc with the readings of the recording.

    Args:
        memory: the program's memory.
        report: of the replay.

    Returns:
        The median difference of malloc's memory near its peak, as a share of the program's peak; None if the
        recording has no readings of malloc's memory.
    """
    if not memory.malloc or not memory.peak_bytes:
        return None
    times, sizes, now = [], [], 0
    for reading in report.readings:
        now += reading.recorded_ns
        times.append(now / 1e9)
        sizes.append(reading.resident_bytes - report.start_rss_bytes)
    differences = []
    for at, size in memory.malloc:
        after = min(bisect.bisect_left(times, at), len(times) - 1)
        low, high = sorted((sizes[max(0, after - 1)], sizes[after]))  # the replay's memory between two of its readings
        below = size - high if memory.exact else 0
        differences.append(max(low - size, below, 0))
    return statistics.median(differences) / memory.peak_bytes
