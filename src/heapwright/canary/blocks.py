"""Turns readings into blocks of time: the log ratio of treatment and control in each block, for each number.

Both groups in a block see the same moments, so ups and downs of a load that they share cancel. A gauge (memory, a
number of the user's) counts by its mean in the block, a counter (CPU time, faults) by its growth over the time covered.
An instance that has just restarted is left out for a while.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from heapwright.canary.instances import InstanceReading
from heapwright.canary.readings import Header, Reading

READINGS_PER_BLOCK = 12
_MIN_SHARE = 0.5  # of the readings of a block, below which it does not count
MEMORY, CPU, FAULTS = "memory_bytes", "cpu_share", "faults_per_s"


@dataclass
class RatioSeries:
    """The blocks of one number.

    Attributes:
        times: the middle of each block, in seconds since the first reading.
        control, treatment: the mean over a group's instances in each block.
        instances: for each group, the values of each instance in each block; None where it has none. Empty for numbers
            that are measured by group.
        without_ratio: how many blocks are left out because a group's mean is 0 or below, as a count of errors may be.
        sum_without_ratio: for each group, the sum of its means in these blocks.
    """

    times: list[float] = field(default_factory=list)
    control: list[float] = field(default_factory=list)
    treatment: list[float] = field(default_factory=list)
    instances: tuple[list[list[float | None]], list[list[float | None]]] = field(default_factory=lambda: ([], []))
    without_ratio: int = 0
    sum_without_ratio: tuple[float, float] = (0.0, 0.0)

    @property
    def log_ratios(self) -> list[float]:
        """The natural logarithm of treatment over control in each block."""
        return [math.log(t / c) for c, t in zip(self.control, self.treatment, strict=True)]


def all_blocks(header: Header, readings: Sequence[Reading], warm_up_s: float) -> dict[str, RatioSeries]:
    """Return the blocks of each number.

    Args:
        header: of the canary.
        readings: in the order of time.
        warm_up_s: seconds after its start in which an instance does not count.
    """
    if not readings:
        return {}
    length = header.every_s * READINGS_PER_BLOCK
    first = readings[0].time
    groups: dict[int, list[Reading]] = {}
    for reading in readings:
        groups.setdefault(int((reading.time - first) // length), []).append(reading)
    warm = _Warm(readings, warm_up_s)
    found = {name: RatioSeries() for name in (MEMORY, CPU, FAULTS, *header.numbers)}
    before: Reading | None = None
    for number, group in sorted(groups.items()):
        previous, before = before, group[-1]
        if len(group) < _MIN_SHARE * READINGS_PER_BLOCK:
            continue
        # A counter grows from the last reading of the block before, if there is no gap.
        joined = previous is not None and group[0].time - previous.time < 3 * header.every_s
        covered = [previous, *group] if joined and previous is not None else group
        at = (number + 0.5) * length
        for name in (MEMORY, CPU, FAULTS):
            counted = group if name == MEMORY else covered
            times = [reading.time for reading in counted]
            sides = [
                [
                    _in_block(name, [warm.row(reading, side, i) for reading in counted], times)
                    for i in range(len(getattr(header, side)))
                ]
                for side in ("control", "treatment")
            ]
            _add(found[name], at, sides)
        for name in header.numbers:
            pairs = [s.numbers[name] for s in group if name in s.numbers]
            values = [_mean([pair[i] for pair in pairs]) for i in (0, 1)]
            _add(found[name], at, [[values[0]], [values[1]]], by_group=True)
    return found


def restarts(readings: Sequence[Reading]) -> tuple[int, int]:
    """How often instances of control and of treatment restarted."""
    counts = []
    for side in ("control", "treatment"):
        seen: dict[int, set[float]] = {}
        for reading in readings:
            for i, row in enumerate(getattr(reading, side)):
                if row is not None:
                    seen.setdefault(i, set()).add(row.started)
        counts.append(sum(len(starts) - 1 for starts in seen.values()))
    return counts[0], counts[1]


class _Warm:
    """Leaves out readings of instances that have just started."""

    def __init__(self, readings: Sequence[Reading], warm_up_s: float) -> None:
        self._warm_up_s = warm_up_s
        self._first: dict[tuple[str, int, float], float] = {}  # when an instance's start was first seen
        for reading in readings:
            for side in ("control", "treatment"):
                for i, row in enumerate(getattr(reading, side)):
                    if row is not None:
                        self._first.setdefault((side, i, row.started), reading.time)

    def row(self, reading: Reading, side: str, instance: int) -> InstanceReading | None:
        row: InstanceReading | None = getattr(reading, side)[instance]
        if row is None or reading.time - self._first[side, instance, row.started] < self._warm_up_s:
            return None
        return row


def _add(blocks: RatioSeries, at: float, sides: list[list[float | None]], by_group: bool = False) -> None:
    means = [_mean([value for value in side if value is not None]) for side in sides]
    if means[0] is None or means[1] is None:
        return
    if min(means[0], means[1]) <= 0:
        blocks.without_ratio += 1
        blocks.sum_without_ratio = (blocks.sum_without_ratio[0] + means[0], blocks.sum_without_ratio[1] + means[1])
        return
    blocks.times.append(at)
    blocks.control.append(means[0])
    blocks.treatment.append(means[1])
    if not by_group:
        for kept, side in zip(blocks.instances, sides, strict=True):
            kept.append(side)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _in_block(name: str, rows: Sequence[InstanceReading | None], times: Sequence[float]) -> float | None:
    """The value of an instance in a block; None if it was not up.

    A counter's growth per second leaves out the time from a reading to the next where a restart lies between.

    Args:
        name: the number.
        rows: the readings of the block.
        times: their times, in seconds.
    """
    if name == MEMORY:
        return _mean([row.memory_bytes for row in rows if row is not None])
    grown = span = 0.0
    for i in range(1, len(rows)):
        a, b = rows[i - 1], rows[i]
        if a is None or b is None or a.started != b.started:
            continue
        grown += max(0.0, b.cpu_s - a.cpu_s if name == CPU else b.faults - a.faults)
        span += times[i] - times[i - 1]
    return grown / span if span > 0 else None
