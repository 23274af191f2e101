"""Runs a canary: takes readings until there is a claim, the time is over, or the user stops it."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from heapwright.canary.blocks import CPU, FAULTS, MEMORY, RatioSeries, all_blocks, restarts
from heapwright.canary.instances import InstanceReading, first_starts, read_instance
from heapwright.canary.judge import CanaryResult, judge_number
from heapwright.canary.readings import Header, Reading, ReadingFile
from heapwright.canary.sources import Source
from heapwright.terminal_text import warn

CLAIMS = ("lower", "higher", "same")
LABELS = {MEMORY: "memory", CPU: "CPU", FAULTS: "page faults"}


@dataclass(frozen=True)
class CanaryState:
    """A canary so far.

    Attributes:
        header: its instances.
        results, blocks: by number.
        readings: how many there are. covered_s: their time without gaps.
        restarts: of control and treatment.
        down: instances that are down at the last reading.
        began, last: times of the first and the last reading, in seconds since 1970.
        control_older_s: how much longer control's instances have run than the treatment's, in seconds (medians);
            negative if the treatment's have.
    """

    header: Header
    results: dict[str, CanaryResult]
    blocks: dict[str, RatioSeries]
    readings: int
    covered_s: float
    restarts: tuple[int, int]
    down: list[str]
    began: float
    last: float
    control_older_s: float = 0.0

    @property
    def has_single_instance(self) -> bool:
        """Whether a group has one instance only."""
        return min(len(self.header.control), len(self.header.treatment)) < 2


def judge_readings(header: Header, readings: list[Reading], warm_up_s: float, margin: float) -> CanaryState:
    """Judge the readings.

    Args:
        header: of the canary.
        readings: in the order of time.
        warm_up_s: seconds after its start in which an instance does not count.
        margin: the largest difference, as a share, that counts as the same.
    """
    blocks = all_blocks(header, readings, warm_up_s)
    gaps = [b.time - a.time for a, b in itertools.pairwise(readings)]
    last = readings[-1] if readings else None
    sides = ((header.control, last.control), (header.treatment, last.treatment)) if last else ()
    return CanaryState(
        header,
        {name: judge_number(found, margin) for name, found in blocks.items()},
        blocks,
        len(readings),
        sum(gap for gap in gaps if gap < 3 * header.every_s),
        restarts(readings),
        [name for names, rows in sides for name, row in zip(names, rows, strict=True) if row is None],
        readings[0].time if readings else 0.0,
        last.time if last else 0.0,
        _control_older_s(last) if last else 0.0,
    )


def _control_older_s(reading: Reading) -> float:
    starts = [[row.started for row in rows if row is not None] for rows in (reading.control, reading.treatment)]
    return statistics.median(starts[1]) - statistics.median(starts[0]) if all(starts) else 0.0


def starts_of(header: Header, readings: list[Reading]) -> dict[str, float]:
    """When the instances that are process ids were first seen to have started, in seconds since the boot."""
    return {
        **first_starts(header.control, (reading.control for reading in readings)),
        **first_starts(header.treatment, (reading.treatment for reading in readings)),
    }


def _tell_down(header: Header, reading: Reading, told: set[str]) -> None:
    """Warn, once for each group, that no instance of it runs.

    Args:
        header: of the canary.
        reading: the last one.
        told: the groups of which a warning was given; it grows.
    """
    groups = (("control", header.control, reading.control), ("treatment", header.treatment, reading.treatment))
    for group, names, rows in groups:
        if group not in told and not any(rows):
            told.add(group)
            end = "have ended" if all(name.isdecimal() for name in names) else "are down"
            warn(
                f"all instances of the {group} {end}, or their memory may not be read ({', '.join(names)}): without"
                " them there is nothing to compare"
            )


def take_readings(
    file: ReadingFile,
    header: Header,
    sources: Mapping[str, Source],
    until: Callable[[list[Reading]], bool],
) -> list[Reading]:
    """Take readings until `until` says that it is enough; return all readings, those of earlier sessions too.

    Ctrl-C ends it as well.

    Args:
        file: receives the readings.
        header: of the canary.
        sources: of the further numbers.
        until: called after every reading with all readings.

    Raises:
        HeapwrightError: the file cannot be written.
    """
    readings = list(file.before)
    started = starts_of(header, readings)
    told: set[str] = set()

    def read(name: str) -> InstanceReading | None:
        found = read_instance(name, header.proportional, started.get(name))
        if found is not None and name.isdecimal():
            started.setdefault(name, found.started)
        return found

    due = time.monotonic()
    try:
        with ThreadPoolExecutor(max(1, len(sources))) as pool:
            while True:
                asked = {name: pool.submit(source) for name, source in sources.items()}
                reading = Reading(
                    time.time(),
                    [read(name) for name in header.control],
                    [read(name) for name in header.treatment],
                )
                reading.numbers = {name: answer.result() for name, answer in asked.items()}
                file.add(reading)
                readings.append(reading)
                _tell_down(header, reading, told)
                if until(readings):
                    break
                due = max(due + header.every_s, time.monotonic())
                time.sleep(max(0.0, due - time.monotonic()))
    except KeyboardInterrupt:
        pass
    return readings
