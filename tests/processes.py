"""Waits for processes and for effects of theirs, without sleeping longer than needed; and how slow the machine is."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

# How many times slower this machine is than a real one: an emulated machine sets it
# (tools/arm64_steps). Programs whose memory the meter must see in time wait so much longer, and
# limits of time are so much longer.
PACE = int(os.environ.get("HEAPWRIGHT_TEST_PACE", "1"))


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Returns as soon as the condition holds; fails after a time limit in seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def runs(study: Path) -> int:
    """How many runs a study holds by now."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{study}?mode=ro", uri=True)) as db:
            return int(db.execute("SELECT count(*) FROM run").fetchone()[0])
    except sqlite3.OperationalError:  # the study does not exist yet
        return 0
