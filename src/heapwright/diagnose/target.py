"""Finds the processes that the user names: by process id, container, systemd unit or program.

Containers and units are found by the cgroups of the processes, so neither the container's service nor systemd must
answer. The name of a container, which no cgroup holds, is asked from docker, podman or nerdctl.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from heapwright.errors import HeapwrightError, UsageError

_ENGINES = ("docker", "podman", "nerdctl")
# The id of a container in a cgroup's path: docker-ID.scope, /docker/ID, libpod-ID.scope,
# cri-containerd-ID.scope …
_ID = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?=/|$)", re.MULTILINE)
_HEX = re.compile(r"[0-9a-f]{12,64}")
_MAX_IDS = 40  # more in one command are not readable
_MAX_SHOWN = 8  # process ids in a message


class Target(NamedTuple):
    """The processes that a name stands for.

    Attributes:
        pids: their ids, in increasing order.
        label: how to call them: 'process 12', 'container web', 'unit redis.service', 'redis-server (12)'.
        is_group: whether they are a container or a unit, whose processes come and go.
    """

    pids: list[int]
    label: str
    is_group: bool = False


def find_target(name: str) -> Target:
    """Return the processes of a name.

    Args:
        name: a process id; the id or name of a container; a systemd unit, with or without '.service'; or the name or
            path of a program that exactly one process runs.

    Raises:
        HeapwrightError: nothing has that name, or several processes run that program.
        UsageError: a number is not a process id, or the text is not a name.
    """
    if not name.strip() or re.fullmatch(r"\d+:[^:/]*:", name):
        raise UsageError(
            f"'{name}' is not the name of a process, container or unit", "give a process id or a name; see --help"
        )
    if re.fullmatch(r"-?\d+", name) and not 0 < int(name) < 1 << 31:
        raise UsageError(f"'{name}' is not a process id", "give a number above 0; 'ps -e' lists processes")
    if name.isdecimal():
        return Target([int(name)], f"process {int(name)}")
    if "/" in name:
        return _program(name)
    groups = {pid: read_cgroups(pid) for pid in _processes()}
    if _HEX.fullmatch(name):
        pids = [pid for pid, group in groups.items() if any(i.startswith(name) for i in _ID.findall(group))]
        if pids:
            return Target(pids, f"container {name[:12]}", is_group=True)
    units = {name, f"{name}.service"} if "." not in name else {name}
    pids = [pid for pid, group in groups.items() if units & _components(group)]
    if pids:
        return Target(pids, f"unit {name}", is_group=True)
    main, label = _from_engine(name), f"container {name}"
    if not main:
        main, label = _main_pid(name), f"unit {name}"
    if main:
        group = groups.get(main, "")
        # Without a cgroup of its own, or in a namespace of cgroups, only the main process is known.
        own = group if re.search(r":/[^/\n]+", group) else ""
        members = [pid for pid, other in groups.items() if other == own] if own else [main]
        return Target(members, label, is_group=True)
    return _program(name)


def _program(name: str) -> Target:
    runs_it = _runs_file if "/" in name else _has_name
    pids = [pid for pid in _processes() if runs_it(pid, name)]
    if not pids:
        raise HeapwrightError(
            f"no process, container or unit is called '{name}'", "give the process id; 'ps -e' lists processes"
        )
    if len(pids) > 1:
        hint = "give the ids of those that you mean"
        if len(pids) <= _MAX_IDS:
            hint += f"; for all: heapwright diagnose {' '.join(map(str, pids))}"
        shown = ", ".join(map(str, pids[:_MAX_SHOWN])) + (" …" if len(pids) > _MAX_SHOWN else "")
        raise HeapwrightError(f"{len(pids)} processes run '{name}': {shown}", hint)
    return Target(pids, f"{name} ({pids[0]})")


def _processes() -> Iterator[int]:
    """Return the ids of all processes but this one, which Python runs."""
    found = {int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()} - {os.getpid()}
    return iter(sorted(found))


def _has_name(pid: int, name: str) -> bool:
    return name in _names(pid)


def _runs_file(pid: int, path: str) -> bool:
    """Whether a process runs the program at this path, or the one that was there when it started."""
    link = Path(f"/proc/{pid}/exe")
    with contextlib.suppress(OSError):
        return str(link.readlink()) == f"{Path(path).resolve()} (deleted)" or link.samefile(path)
    return False


def _names(pid: int) -> set[str]:
    """Return the names under which people know a process; empty for a process without memory, such as a zombie."""
    found = set()
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if not words[0]:
            return set()
        found.add(Path(words[0].decode(errors="replace")).name)
        found.add(Path(f"/proc/{pid}/comm").read_text(errors="replace").strip())
        found.add(Path(f"/proc/{pid}/exe").readlink().name)
    return found


def read_cgroups(pid: int) -> str:
    """Return the text of /proc/PID/cgroup; empty if it cannot be read."""
    try:
        return Path(f"/proc/{pid}/cgroup").read_text(errors="replace")
    except OSError:
        return ""


def _components(group: str) -> set[str]:
    """Return the names of the cgroups in the lines 'NUMBER:CONTROLLERS:/PATH' of /proc/PID/cgroup."""
    paths = (line.split(":", 2)[-1] for line in group.splitlines())
    return {part for path in paths for part in path.split("/")} - {"", ".."}


def _from_engine(name: str) -> int:
    """Return the main process of a container by its name, 0 if no engine knows it."""
    for engine in _ENGINES:
        if shutil.which(engine):
            answer = _ask(engine, "inspect", "--type", "container", "--format", "{{.State.Pid}}", name)
            if answer.isdecimal() and int(answer):
                return int(answer)
    return 0


def _main_pid(name: str) -> int:
    """Return the main process of a systemd unit, 0 if there is none."""
    if not shutil.which("systemctl"):
        return 0
    answer = _ask("systemctl", "show", "--property", "MainPID", "--value", "--", name)
    return int(answer) if answer.isdecimal() else 0


def _ask(*words: str) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=10, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
