"""Runs the command of a recording, and waits for the recorded processes that it leaves running.

A daemon forks and its parent ends, so the command's own end is not the end of the recording. A process belongs to the
recording if its environment names the folder of raw files, or if it maps a file there: a process may overwrite its
environment with a title.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

from heapwright.errors import UsageError
from heapwright.measure.process_tree import is_alive
from heapwright.terminal_text import say, warn
from heapwright.workload.command import under_shell

_REPORT_S = 2.0  # after so long, a message names the processes that are waited for
_POLL_S = 0.1


def run_command(
    command: Sequence[str], env: Mapping[str, str], stdin: IO[bytes] | None, folder: Path | None = None
) -> int:
    """Runs a command to its end; returns its exit status.

    Signals are passed on to the command, except for SIGINT if we are in the terminal's foreground: then Ctrl-C reaches
    the command from the terminal. The command decides how it reacts. When it has ended, each of these signals ends the
    wait for other processes.

    Args:
        command: its words.
        env: its environment.
        stdin: None for our own.
        folder: of raw files: wait also for the processes that record there. None: for the command alone.
    """
    # Keep signals that come before the command has started, and send them then. So no signal can
    # end us and leave the command running.
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []
    late: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if process is None:
            early.append(number)
        elif process.returncode is not None:
            late.append(number)
        elif number != signal.SIGINT or not _in_foreground():
            process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        try:
            process = subprocess.Popen(command, env=env, stdin=stdin)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise UsageError(f"{command[0]}: {error.strerror}") from None
            process = subprocess.Popen(under_shell(command, env.get("PATH")), env=env, stdin=stdin)
        for number in early:
            process.send_signal(number)
        status = process.wait()
        if folder is not None:
            _wait_for_others(folder, late)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status


def _in_foreground() -> bool:
    """Whether Ctrl-C in our terminal sends SIGINT to our process group, of which the command is a member."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:  # none
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _wait_for_others(folder: Path, stop: Sequence[int]) -> None:
    """Waits until no process records into a folder, or until `stop` holds a signal.

    Warns of those that had no file there: they may belong to a user who may not write to it.
    """
    began, said = time.monotonic(), False
    names: dict[int, str] = {}
    while not stop and (left := recording_processes(folder)):
        names |= {pid: os.fsdecode(_content(Path(f"/proc/{pid}/comm"))).strip() for pid in left}
        while not stop and any(is_alive(pid) for pid in left):
            if not said and time.monotonic() - began > _REPORT_S:
                said = True
                pids = " ".join(str(pid) for pid in left if is_alive(pid))
                say(f"the command has ended; waiting for processes that it left running: {pids} (Ctrl-C stops waiting)")
            time.sleep(_POLL_S)
    for pid, name in names.items():
        if not any(folder.glob(f"{pid}-*.raw")):
            warn(
                f"nothing is recorded of process {pid}{f' ({name})' if name else ''}: it did not call malloc, or its"
                f" user may not make files in {folder.resolve().parent}"
            )


def recording_processes(folder: Path) -> list[int]:
    """Returns the ids of the live processes that record into a folder of raw files, or would if they allocated."""
    return _processes_with(os.fsencode(folder.resolve()), "environ", "maps")


def writing_processes(folder: Path) -> list[int]:
    """Returns the ids of the live processes that have a file of a folder in memory, as a recorder has its raw file."""
    return _processes_with(os.fsencode(folder.resolve()) + b"/", "maps")


def _processes_with(text: bytes, *names: str) -> list[int]:
    """Returns the ids of the live processes, without our own, that have a text in one of their files in /proc."""
    return sorted(
        int(entry.name)
        for entry in os.scandir("/proc")
        if entry.name.isdecimal()
        and int(entry.name) != os.getpid()
        and any(text in _content(Path(entry.path, name)) for name in names)
    )


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # it has ended, or belongs to another user
        return b""
