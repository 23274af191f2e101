"""Reads the environment with which a running process was started, from /proc/PID/environ."""

from __future__ import annotations

import os
from pathlib import Path

TUNABLES = "GLIBC_TUNABLES"


def read_environment(pid: int) -> dict[str, str] | None:
    """Return the variables with which a process was started.

    glibc before 2.37 ends each tunable that it knows by a NUL in place of its ':', in the memory that
    /proc/PID/environ shows. So the words behind GLIBC_TUNABLES that begin with the name of a tunable belong to it.

    Returns:
        None if the environment cannot be read. Some servers overwrite it with their title, such as redis-server.
    """
    try:
        content = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    if content and b"=" not in content:
        return None
    found: dict[str, str] = {}
    before = ""  # the variable of the word before
    for word in map(os.fsdecode, content.split(b"\0")):
        name, equals, value = word.partition("=")
        if before == TUNABLES and word.startswith(("glibc.", ":")):
            found[TUNABLES] = f"{found[TUNABLES]}:{word.lstrip(':')}"
        elif equals:
            before = name
            found.setdefault(name, value)
    return found
