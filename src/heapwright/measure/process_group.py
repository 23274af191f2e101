"""Runs commands in process groups of their own, ends these with all their processes, and describes exit statuses."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

_MAX_SIGNAL = 64


def run_group(words: Sequence[str], timeout: float | None = None, **how: Any) -> int:
    """Run a command to its end. If that takes too long, or if this process is interrupted, kill its whole group.

    Args:
        words: the command and its arguments.
        timeout: in seconds; None for no limit.
        how: further arguments of `subprocess.Popen`.

    Returns:
        The exit status; 128 + signal if a signal ended the command.

    Raises:
        OSError: it does not start.
        subprocess.TimeoutExpired: it took too long.
    """
    return wait_group(subprocess.Popen(words, start_new_session=True, **how), timeout)


def wait_group(process: subprocess.Popen[Any], timeout: float | None = None) -> int:
    """Wait for the leader of a group, as `run_group` does."""
    try:
        status = process.wait(timeout)
    except BaseException:
        kill_group(process)
        raise
    return status if status >= 0 else 128 - status


def kill_group(process: subprocess.Popen[Any]) -> None:
    """Kill a process that leads a group, with the whole group, and wait for it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def find_signal(text: str) -> signal.Signals | None:
    """Return the signal that a text names, such as 'USR2', 'usr2' or 'SIGUSR2'; None if there is none."""
    name = text.upper()
    return signal.Signals.__members__.get(name if name.startswith("SIG") else f"SIG{name}")


def describe_exit_status(status: int) -> str:
    """Describe an exit status: 139 → 'killed by SIGSEGV', 3 and 255 → 'exit status …'."""
    number = status - 128
    if not 0 < number <= _MAX_SIGNAL:
        return f"exit status {status}"
    return f"killed by {signal.Signals(number).name if number in set(signal.Signals) else f'signal {number}'}"
