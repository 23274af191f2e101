"""Reads the memory, CPU time and page faults of live instances from /proc.

An instance has a name from the user: a process with its descendants, or all processes of a cgroup, unit or container. A
unit or cgroup is resolved at every reading, so it may restart.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from heapwright.diagnose.target import find_target
from heapwright.errors import HeapwrightError, UsageError
from heapwright.measure.process_tree import stat_fields, sum_over_mappings

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class InstanceReading(msgspec.Struct, array_like=True):
    """An instance at one moment.

    Attributes:
        started: when its oldest process started, in seconds since the boot. It changes when the instance restarts.
        memory_bytes: proportional memory (PSS) of its processes, or resident memory where PSS may not be read when the
            canary begins.
        cpu_s: CPU time of its processes and of those that they have waited for.
        faults: minor page faults, counted likewise.
        processes: how many there are, without zombies.
    """

    started: float
    memory_bytes: float
    cpu_s: float
    faults: float
    processes: int


def check_names(text: str, option: str) -> list[str]:
    """Return the instances in a list: process ids, cgroup folders, or names of units and containers.

    Args:
        text: names, separated by commas.
        option: for messages.

    Raises:
        UsageError: the list is empty or names one twice.
        HeapwrightError: an instance has no process.
    """
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise UsageError(f"{option} names no instance", "give process ids, a cgroup's folder, or units")
    if len(set(names)) < len(names):
        raise UsageError(f"{option} names an instance twice")
    for name in names:
        if not any(True for _ in processes_of(name)):
            raise HeapwrightError(
                f"{option}: {name} has no process", "name a running process, cgroup, unit or container"
            )
    return names


def processes_of(name: str) -> Iterator[int]:
    """Yield the process ids of an instance; none while it is down."""
    if name.startswith("/"):
        for folder, _, _ in os.walk(name):  # unlike rglob, it ignores folders that go meanwhile
            with contextlib.suppress(OSError):
                yield from map(int, (Path(folder) / "cgroup.procs").read_text().split())
    elif name.isdecimal():
        yield from _tree(int(name))
    else:
        with contextlib.suppress(HeapwrightError):
            yield from find_target(name).pids


def check_identity(names: list[str], started: dict[str, float], option: str) -> None:
    """Check that no process id has been taken over by another process since the canary began.

    Args:
        names: the instances.
        started: when they started as the canary began, by name, in seconds since the boot.
        option: for messages.

    Raises:
        HeapwrightError: another process has the id of an instance.
    """
    for name in names:
        if name in started and read_instance(name, False, started[name]) is None:
            raise HeapwrightError(
                f"{option}: process {name} has ended since the canary began; its id is now another process's",
                "name units or cgroups, which may restart, or begin another canary with -o",
            )


def first_starts(names: list[str], rows: Iterable[list[InstanceReading | None]]) -> dict[str, float]:
    """When each instance that is named by a process id was first seen to have started, in seconds since the boot.

    Args:
        names: the instances of a group.
        rows: their readings, in the order of time.
    """
    found: dict[str, float] = {}
    for row in rows:
        for name, reading in zip(names, row, strict=True):
            if reading is not None and name.isdecimal():
                found.setdefault(name, reading.started)
    return found


def read_instance(name: str, proportional: bool, started: float | None = None) -> InstanceReading | None:
    """Read an instance; None while it has no process, or the memory of one may not be read.

    A zombie has no memory, but its CPU time and page faults count, so that they do not rise again when its parent waits
    for it.

    Args:
        name: the instance.
        proportional: read PSS; it takes the kernel some 7 ms per GiB.
        started: of an instance that is a process id, when its process started, in seconds since the boot. A process
            that started at another time is another one, which has taken over the id.
    """
    if name.isdecimal():
        root = _read(int(name), False)
        if root is None or not root.processes or (started is not None and root.started != started):
            return None
    try:
        found = [one for pid in processes_of(name) if (one := _read(pid, proportional)) is not None]
    except PermissionError:
        return None
    if not any(one.processes for one in found):
        return None
    return InstanceReading(
        min(one.started for one in found),
        sum(one.memory_bytes for one in found),
        sum(one.cpu_s for one in found),
        sum(one.faults for one in found),
        sum(one.processes for one in found),
    )


def can_read_pss(names: list[str]) -> bool:
    """Whether the proportional memory of all processes of these instances can be read."""
    if not Path("/proc/self/smaps_rollup").exists():  # before Linux 4.14
        return False
    try:
        for name in names:
            for pid in processes_of(name):
                _read(pid, True)
    except PermissionError:
        return False
    return True


def _tree(root: int) -> Iterator[int]:
    if not stat_fields(root):
        return
    yield root
    tasks: list[Path] = []
    with contextlib.suppress(OSError):  # the process may end at any time
        tasks = list(Path(f"/proc/{root}/task").iterdir())
    for task in tasks:
        with contextlib.suppress(OSError):
            for child in (task / "children").read_text().split():
                yield from _tree(int(child))


def _read(pid: int, proportional: bool) -> InstanceReading | None:
    """Read a process; None if it has gone. A zombie is 0 processes.

    Raises:
        PermissionError: its proportional memory may not be read.
    """
    fields = stat_fields(pid)
    if not fields or fields[0] == "X":
        return None
    alive = fields[0] != "Z"
    memory = 0 if not alive else _pss(pid) if proportional else int(fields[21]) * _PAGE
    cpu = sum(int(fields[i]) for i in range(11, 15)) / _TICKS
    faults = float(int(fields[7]) + int(fields[8]))
    return InstanceReading(int(fields[19]) / _TICKS, float(memory), cpu, faults, int(alive))


def _pss(pid: int) -> int:
    """Return proportional memory in bytes; 0 if the process is ending.

    Raises:
        PermissionError: it may not be read.
    """
    try:
        return sum_over_mappings(pid, "Pss") or 0
    except PermissionError:
        raise
    except OSError:
        return 0
