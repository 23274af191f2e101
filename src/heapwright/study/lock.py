"""Locks a study file, so that one process at a time writes it."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from heapwright.errors import HeapwrightError


def lock_study(path: Path) -> int:
    """Open a file, made if new, and lock it; return its descriptor, which holds the lock until it is closed.

    Raises:
        HeapwrightError: the file cannot be opened, another process has locked it, or its file system has no locks.
    """
    new = not path.exists()
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise HeapwrightError(f"cannot open the study {path}: {error.strerror}", "name another file") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if error.errno == errno.EWOULDBLOCK:
            hint = "wait for it, or name another file with --study"
            raise HeapwrightError(f"the study {path} is in use by another heapwright", hint) from None
        if new:
            path.unlink()
        hint = "name a file on a local disk with --study"
        raise HeapwrightError(f"the file system of {path} has no locks ({error.strerror})", hint) from None
    return lock
