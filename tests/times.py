"""Says where the time of a test run goes: the time of each folder of tests, and of the longest tests.

The times are those of the tests with their fixtures, summed over the processes of pytest-xdist. The processor time is
that of the test's process and of the children that it waited for.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable

import pytest

from tests.command_server import SERVER

CPU = "processor time in seconds"  # the name of the property that carries it from a worker


def processor_time() -> float:
    """The processor time in seconds of this process, of its finished children, and of commands in forks."""
    return sum(os.times()[:4]) + SERVER.spent


def by_folder(reports: Iterable[pytest.TestReport]) -> dict[str, tuple[float, float]]:
    """Sums the times of tests by folder below tests/; the longest folder comes first.

    Args:
        reports: of all phases (set-up, call, tear-down) of the tests.

    Returns:
        The elapsed time and the processor time of each folder, in seconds.
    """
    elapsed, busy = defaultdict[str, float](float), defaultdict[str, float](float)
    for report in reports:
        parts = report.nodeid.split("::")[0].split("/")
        folder = parts[1] if len(parts) > 2 else parts[-1]
        elapsed[folder] += report.duration
        busy[folder] += sum(float(str(value)) for name, value in report.user_properties if name == CPU)
    return {
        folder: (elapsed[folder], busy[folder]) for folder in sorted(elapsed, key=elapsed.__getitem__, reverse=True)
    }


def _short(nodeid: str) -> str:
    """The name of a test without tests/ and without the group that pytest-xdist adds."""
    return re.sub(r"@[^\]]*$", "", nodeid.removeprefix("tests/"))


def summary(reports: Iterable[pytest.TestReport], longest: int = 5) -> list[str]:
    """Two lines: the time of each folder, and the longest tests.

    Args:
        reports: of all phases of the tests.
        longest: the number of tests to name.
    """
    reports = list(reports)
    whole = defaultdict[str, float](float)
    for report in reports:
        whole[report.nodeid] += report.duration
    folders = ", ".join(f"{name} {spent:.0f} ({busy:.0f})" for name, (spent, busy) in by_folder(reports).items())
    tests = sorted(whole, key=whole.__getitem__, reverse=True)[:longest]
    return [
        f"seconds of tests by folder (of them processor time): {folders}",
        "longest tests: " + ", ".join(f"{_short(name)} {whole[name]:.0f} s" for name in tests),
    ]
