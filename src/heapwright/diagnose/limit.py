"""Reads how near the memory cgroups of a process are to their limits, at which the kernel ends one of their processes.

Memory that the kernel takes back first, the inactive page cache, does not count: it fills every cgroup in time.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# Files of a cgroup: its limit, its use, and the line of memory.stat with the inactive page cache.
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}
_NO_LIMIT = 1 << 60  # version 1 has a number near 2^63 where there is no limit


class MemoryLimit(NamedTuple):
    """The limit of a memory cgroup, in bytes, and the part that is used.

    Attributes:
        cgroup: its path, '/system.slice/web.service'.
        limit: the limit.
        used: the memory charged to it, without the inactive page cache.
    """

    cgroup: str
    limit: int
    used: int

    @property
    def share(self) -> float:
        """The used share of the limit."""
        return self.used / self.limit


def memory_limit(cgroups: str, mountinfo: str) -> MemoryLimit | None:
    """Return the limit that is used up most among those that hold for a process; None if there is none to read.

    Args:
        cgroups: the text of the process's /proc/PID/cgroup.
        mountinfo: the text of /proc/self/mountinfo.
    """
    limits: list[MemoryLimit] = []
    for line in cgroups.splitlines():
        number, controllers, path = line.split(":", 2)
        version = 2 if number == "0" else 1
        if version == 1 and "memory" not in controllers.split(","):
            continue
        for root, folder in _mounts(mountinfo, version):
            inside = path.removeprefix(root.rstrip("/")).lstrip("/")
            parts = [part for part in inside.split("/") if part]
            for depth in range(len(parts), -1, -1):
                group = "/".join(parts[:depth])
                with contextlib.suppress(OSError, ValueError):
                    limits += _read(Path(folder, group), f"/{group}", version)
    return max(limits, key=lambda limit: limit.share, default=None)


def _mounts(mountinfo: str, version: int) -> Iterator[tuple[str, str]]:
    """Return the root within the hierarchy, and the folder, of each mount with memory cgroups."""
    kind = "cgroup2" if version == 2 else "cgroup"
    for line in mountinfo.splitlines():
        found = re.match(r"\S+ \S+ \S+ (\S+) (\S+) .* - (\S+) \S+ (\S+)$", line)
        if found and found[3] == kind and (version == 2 or "memory" in found[4].split(",")):
            yield found[1], found[2]


def _read(folder: Path, name: str, version: int) -> list[MemoryLimit]:
    """Return the limit of one cgroup; empty if it has none."""
    limit_file, used_file, inactive = _FILES[version]
    text = (folder / limit_file).read_text().strip()
    if text == "max" or not 0 < int(text) < _NO_LIMIT:
        return []
    used = int((folder / used_file).read_text())
    stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    return [MemoryLimit(name, int(text), max(used - int(stat.get(inactive, 0)), 0))]
