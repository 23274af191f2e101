"""Finds programs that replace a recorded one by exec without the recorder, because their environment was cleared.

`env -i`, sudo and services such as dovecot start programs with an environment of their own. The recorder is loaded by
environment variables, so such a program is not recorded, although its parent is.
"""

from __future__ import annotations

import os
import struct
import time
from collections import Counter
from pathlib import Path

from heapwright.terminal_text import counted, warn

# native/raw_format/format.h: FileHeader::pid, process_start.
_PID, _PROCESS_START = 24, 34888
_NUMBER = struct.Struct("<Q")
_START_TICKS = 19  # field of /proc/PID/stat behind the name: when the process started, in clock ticks (proc(5))
_SETTLING_S = 0.02  # exec closes the old program's files shortly before the new one has its environment
_MOST_NAMES = 3


def program_without_recorder(raw: Path) -> str:
    """Returns the path of the program that has replaced that of a raw file without the recorder; empty if none has.

    Called when the raw file was closed: its process has ended, or has called exec. The answer is also empty if the
    process belongs to another user, or ended meanwhile.

    Args:
        raw: a raw file of a process that ran on this machine.
    """
    process = _process_of(raw)
    if process is None:
        return ""
    folder = os.fsencode(raw.parent.resolve())
    try:
        if not (process / "maps").read_bytes():  # it is ending
            return ""
        environment = (process / "environ").read_bytes()
        if not environment:
            time.sleep(_SETTLING_S)
            environment = (process / "environ").read_bytes()
        if folder in environment or _process_of(raw) is None:
            return ""
        return str((process / "exe").readlink())
    except OSError:  # it has ended, or belongs to another user
        return ""


def warn_of_unrecorded(programs: Counter[str]) -> None:
    """Warns of programs that started without the recorder.

    Args:
        programs: how many processes ran each program, by path.
    """
    named = [f"{name} ({counted(count, 'process', 'processes')})" for name, count in programs.most_common(_MOST_NAMES)]
    if len(programs) > _MOST_NAMES:
        named.append(counted(len(programs) - _MOST_NAMES, "other program"))
    if named:
        warn(
            f"nothing is recorded of {', '.join(named)}: it was started without the environment variables that load"
            " the recorder; let its parent pass LD_PRELOAD and the variables HEAPWRIGHT_… on, or record the program"
            " itself"
        )


def _process_of(raw: Path) -> Path | None:
    """Returns the folder in /proc of the process that began a raw file, or None if it has ended.

    Another process may have its id: ids are used again, and a container has ids of its own.
    """
    try:
        with raw.open("rb") as file:
            start = file.read(_PROCESS_START + _NUMBER.size)
        (pid,), (began,) = (_NUMBER.unpack_from(start, at) for at in (_PID, _PROCESS_START))
        process = Path(f"/proc/{pid}")
        state, *fields = (process / "stat").read_text().rpartition(")")[2].split()
    except (OSError, struct.error):
        return None
    same = began != 0 and int(fields[_START_TICKS - 1]) == began
    return process if same and state not in "ZX" else None
