"""Reads the report of a replay on itself: its calls, and readings of its memory and its times."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from heapwright.errors import HeapwrightError


class Reading(msgspec.Struct, array_like=True):
    """Readings of a replay at one moment of the trace: after all earlier operations, before all later ones.

    Attributes:
        recorded_ns: recorded time since the previous reading.
        resident_bytes: resident memory.
        cpu_ns, wall_ns: CPU time of the process and time passed, since the first reading.
    """

    recorded_ns: int
    resident_bytes: int
    cpu_ns: int
    wall_ns: int


class Report(msgspec.Struct):
    """The report of a replay. Bytes and seconds.

    Attributes:
        events, events_expected: calls made, and calls in the trace.
        threads: of the trace.
        own_rss_bytes: memory of the replayer's own tables: one private mapping, resident as a whole, which does not
            change during the replay.
        readings: the first is before the first call, the last after the last call.
        start_files_bytes, end_files_bytes: resident memory in files, at the first and at the last reading.
    """

    events: int
    events_expected: int
    threads: int
    own_rss_bytes: int
    readings: list[Reading]
    start_files_bytes: int = 0
    end_files_bytes: int = 0

    @property
    def start_rss_bytes(self) -> int:
        """Resident memory before the first call: own tables, image, and the allocator after its start."""
        return self.readings[0].resident_bytes

    @property
    def outside_bytes(self) -> int:
        """Resident memory that is neither the allocator's nor the replayer's tables: files, stack and data."""
        return self.start_rss_bytes - self.start_files_bytes - self.own_rss_bytes + self.end_files_bytes

    @property
    def elapsed_s(self) -> float:
        """Seconds that the calls took, without the start of the process."""
        return self.readings[-1].wall_ns / 1e9

    @property
    def calls_cpu_s(self) -> float:
        """CPU seconds of the calls, without the start of the process."""
        return self.readings[-1].cpu_ns / 1e9


def play(words: Sequence[str], report: Path, env: Mapping[str, str] | None = None) -> Report:
    """Runs a replay without the meter.

    Args:
        words: its command line.
        report: the file that this names for the report.
        env: the whole environment; None for our own.

    Raises:
        HeapwrightError: it failed.
    """
    done = subprocess.run(words, env=env, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        status = done.returncode if done.returncode > 0 else 128 - done.returncode
        raise HeapwrightError(why_failed(done.stderr, status))
    return read_report(report)


def why_failed(stderr: str, status: int) -> str:
    """Returns why a replay failed: its last line on stderr, or what its exit status (128 + signal) means."""
    from heapwright.measure.process_group import describe_exit_status

    lines = stderr.strip().splitlines()
    return lines[-1].removeprefix("heapwright-replay: ") if lines else describe_exit_status(status)


def read_report(path: Path) -> Report:
    """Reads the report that a replay has written."""
    return msgspec.json.decode(path.read_bytes(), type=Report)
