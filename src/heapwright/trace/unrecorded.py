"""Finds programs that replace a recorded one by exec without the recorder.

Environment variables load the recorder. `env -i`, sudo and the services of dovecot give a program an environment of its
own. Such a program is not recorded, although the one that it replaces was.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from heapwright.measure.process_tree import stat_fields
from heapwright.terminal_text import counted, warn
from heapwright.trace.raw_files import MAGIC

# native/raw_format/format.h: FileHeader::pid, process_start.
_PID, _PROCESS_START = 24, 34888
_NUMBER = struct.Struct("<Q")
_START_TICKS = 19  # of stat_fields: when the process started, in clock ticks (proc(5))
_RECORDER = b"libheapwright-"  # in LD_PRELOAD
_MOST_NAMES = 3


def program_without_recorder(raw: Path) -> str:
    """Returns the program that has replaced that of a raw file without the recorder; empty if none has.

    Called when the raw file was closed: its process has ended, or has called exec. In the second case the new
    environment can be read, because the kernel closes the files of the old program after it.

    Args:
        raw: a raw file of a process that ran on this machine.

    Returns:
        The program's path, or its name if the process belongs to another user.
    """
    found = _name_of(raw)
    if found is None:
        return ""
    pid, name = found
    process = Path(f"/proc/{pid}")
    try:
        if not (process / "maps").read_bytes():  # it is ending
            return ""
        environment = (process / "environ").read_bytes()
        recorded = os.fsencode(raw.parent.resolve()) in environment and _RECORDER in environment
        return "" if recorded or _name_of(raw) is None else str((process / "exe").readlink())
    except PermissionError:
        return name
    except OSError:  # it has ended
        return ""


def warn_of_unrecorded(programs: Mapping[Path, str]) -> None:
    """Warns of programs that started without the recorder.

    Args:
        programs: the program that replaced that of each raw file. It counts if its process has no later raw file.
    """
    found = Counter(program for raw, program in programs.items() if program and not _recorded_later(raw))
    named = [f"{name} ({counted(count, 'process', 'processes')})" for name, count in found.most_common(_MOST_NAMES)]
    if len(found) > _MOST_NAMES:
        named.append(counted(len(found) - _MOST_NAMES, "other program"))
    if named:
        warn(
            f"nothing is recorded of {', '.join(named)}, started without the environment variables that load the"
            " recorder, or as another user: let the parent pass LD_PRELOAD and HEAPWRIGHT_… on, or record the program"
            " itself"
        )


def _recorded_later(raw: Path) -> bool:
    """Whether the process of a raw file, PID-K.raw, has a later one."""
    pid, _, number = raw.stem.partition("-")
    others = [other.stem.partition("-")[2] for other in raw.parent.glob(f"{pid}-*.raw")]
    return number.isdecimal() and any(other.isdecimal() and int(other) > int(number) for other in others)


def _name_of(raw: Path) -> tuple[int, str] | None:
    """Returns id and name of the process that began a raw file, or None if it has ended.

    Another process may have its id: ids are used again, and a container has ids of its own. Other users may make links
    and pipes in root's folder of raw files.
    """
    with contextlib.suppress(OSError, ValueError, struct.error, IndexError), _opened(raw) as file:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        magic, pid, began = (_NUMBER.unpack(os.pread(file, _NUMBER.size, at))[0] for at in (0, _PID, _PROCESS_START))
        if magic != MAGIC:
            return None
        fields = stat_fields(pid)
        if began != 0 and int(fields[_START_TICKS]) == began and fields[0] not in "ZX":
            return pid, os.fsdecode(Path(f"/proc/{pid}/comm").read_bytes().rstrip(b"\n"))
    return None


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[int]:
    """Opens a file to read, without a wait and without following a link.

    Raises:
        OSError: it cannot be opened.
    """
    opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield opened
    finally:
        os.close(opened)
