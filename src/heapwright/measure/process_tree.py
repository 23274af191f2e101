"""Reads the CPU time and the resident memory of a running tree of processes from /proc."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

_CPUCLOCK_SCHED = 2  # <linux/posix-timers.h>: a clock of the scheduler, with nanoseconds
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class ProcessTree:
    """The processes that descend from one process, without that process.

    Args:
        root: the process id of the ancestor: a meter. It must wait for its orphaned descendants (be their subreaper),
            because the CPU time of dead processes is taken from those who waited for them. Its helpers, which have its
            name, are left out.
    """

    def __init__(self, root: int) -> None:
        self.root = root

    def members(self) -> list[int]:
        """Return the process ids of all living descendants."""
        children = _children()
        own = _name(self.root)
        return _with_descendants([pid for pid in children.get(self.root, []) if _name(pid) != own], children)

    def cpu_s(self) -> float:
        """Return the CPU time in seconds of the living processes and of those that others have waited for.

        A living process counts to the nanosecond, a dead one to the tick of the kernel's clock, 10 ms.
        """
        total = _waited_s(self.root)
        for pid in self.members():
            total += _own_s(pid) + _waited_s(pid)
        return total

    def resident_bytes(self) -> float | None:
        """Return the sum of resident memory in bytes; None if no process lives."""
        sizes = [size for pid in self.members() if (size := _resident(pid)) is not None]
        return float(sum(sizes)) if sizes else None


def descendants(pids: Collection[int]) -> list[int]:
    """Return the living processes that descend from any of these processes, without these, in increasing order."""
    return sorted(pid for pid in {*_with_descendants(pids, _children())} - {*pids} if is_alive(pid))


def parent_of(pid: int) -> int:
    """Return the parent's process id; 0 if the process has ended."""
    fields = stat_fields(pid)
    return int(fields[1]) if fields else 0


def stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, state first; empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    """Whether a process has not ended. A zombie has, though its parent has not yet collected its status."""
    return stat_fields(pid)[:1] not in ([], ["Z"], ["X"])


def _children() -> dict[int, list[int]]:
    """Return the children of each process."""
    found: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal() and (fields := stat_fields(int(entry.name))):
            found.setdefault(int(fields[1]), []).append(int(entry.name))
    return found


def _with_descendants(pids: Iterable[int], children: Mapping[int, Sequence[int]]) -> list[int]:
    """Return processes and all that descend from them."""
    found: list[int] = []
    waiting = [*pids]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found


def _name(pid: int) -> str:
    """Return the name of a process. All users may read it, unlike the path of the program."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace")
    except OSError:
        return ""


def _own_s(pid: int) -> float:
    """Return the CPU time of all threads of a process, dead ones included, in seconds."""
    try:
        return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)  # what clock_getcpuclockid(3) makes of a process id
    except OSError:
        fields = stat_fields(pid)
        return (int(fields[11]) + int(fields[12])) / _TICKS if fields else 0.0


def _waited_s(pid: int) -> float:
    """Return the CPU time of the children that a process has waited for, in seconds."""
    fields = stat_fields(pid)
    return (int(fields[13]) + int(fields[14])) / _TICKS if fields else 0.0


def sum_over_mappings(pid: int, name: str) -> int | None:
    """Return a figure of /proc/PID/smaps_rollup in bytes.

    Args:
        pid: the process.
        name: 'Rss', 'Pss' …

    Returns:
        None if the process is ending, or the kernel has no such figure.

    Raises:
        OSError: the file cannot be read.
    """
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    return None


def _resident(pid: int) -> int | None:
    """Return resident memory in bytes: the exact sum over mappings, or else the kernel's counter."""
    with contextlib.suppress(OSError):
        if (size := sum_over_mappings(pid, "Rss")) is not None:
            return size
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return None
