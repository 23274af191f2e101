"""Notes when recorded processes end that cannot record it themselves: they are killed, or they call exec.

A process has its raw file mapped until it ends or calls exec. Then the kernel closes the file, and inotify reports
this. The time goes into the header of the raw file, where the reader of native/trace/raw finds it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import struct
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from heapwright.trace.raw_files import MAGIC, raw_files_in
from heapwright.trace.unrecorded import program_without_recorder, warn_of_unrecorded

# native/raw_format/format.h: FileHeader::pid, ending and end_ns.
_PID = 24
_ENDING = 116
_END_NS = 34488
_RUNNING = 0  # Ending::kRunning
_EXITED = 1  # Ending::kExited
_NUMBER = struct.Struct("<Q")
_EVENT = struct.Struct("iIII")  # struct inotify_event: watch, mask, cookie, bytes of the name behind it
_IN_CLOSE_WRITE = 0x8
_BUFFER = 64 << 10


@contextlib.contextmanager
def noting_ends(folder: Path) -> Iterator[None]:
    """While the context lasts, notes the ends of the processes that record into a folder.

    For processes that still run then, or are about to end, the end of the context counts. Without inotify nothing is
    noted, and the ends stay unknown. At the end, warns of programs that have replaced recorded ones by exec without
    the recorder.
    """
    watch = _watch(folder)
    if watch < 0:
        yield
        return
    closed: dict[str, int] = {}
    unrecorded: dict[str, str] = {}
    stop, stopped = os.pipe()
    watcher = threading.Thread(target=_note, args=(watch, stop, folder, closed, unrecorded), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        os.close(stopped)
        watcher.join()
        os.close(stop)
        os.close(watch)
        now = time.monotonic_ns()
        for raw in raw_files_in(folder):
            if raw.name in closed or _running_process(raw):
                _write_end(raw, closed.get(raw.name, now))
        warn_of_unrecorded({folder / name: program for name, program in unrecorded.items()})


@contextlib.contextmanager
def ending_now(raws: Iterable[Path], running: Collection[int]) -> Iterator[None]:
    """While the context lasts, the raw files of running processes have the present time as their end.

    Args:
        raws: all raw files.
        running: ids of the processes that still run.
    """
    marked = [raw for raw in raws if _running_process(raw) in running]
    for raw in marked:
        _write_end(raw, time.monotonic_ns())
    try:
        yield
    finally:
        for raw in marked:
            _write_end(raw, 0)


def _running_process(raw: Path) -> int:
    """Returns the id of the process that records into a raw file, or 0 if it has ended or called exec."""
    start = b""
    with contextlib.suppress(OSError), raw.open("rb") as file:
        start = file.read(_END_NS + _NUMBER.size)
    if len(start) < _END_NS + _NUMBER.size:
        return 0
    pid, end_ns = (int(_NUMBER.unpack_from(start, at)[0]) for at in (_PID, _END_NS))
    return pid if start[_ENDING] == _RUNNING and end_ns == 0 else 0


def has_exited(raw: Path) -> bool:
    """Whether the process of a raw file has recorded everything up to its exit."""
    with raw.open("rb") as file:
        return file.read(_ENDING + 1)[_ENDING:] == bytes([_EXITED])


def _write_end(raw: Path, end_ns: int) -> None:
    """Writes into a raw file when its process ended: nanoseconds of the monotonic clock, or 0 for unknown.

    Nothing happens if the file is no raw file, or cannot be written.
    """
    with contextlib.suppress(OSError), raw.open("r+b") as file:
        if file.read(_NUMBER.size) == _NUMBER.pack(MAGIC):
            file.seek(_END_NS)
            file.write(_NUMBER.pack(end_ns))


def _watch(folder: Path) -> int:
    """Returns a descriptor that reports closed files of a folder, or -1 if there is none."""
    libc = ctypes.CDLL(None)
    try:
        watch = int(libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        if watch >= 0 and libc.inotify_add_watch(watch, os.fsencode(folder), _IN_CLOSE_WRITE) < 0:
            os.close(watch)
            watch = -1
    except AttributeError:  # no Linux
        return -1
    return watch


def _note(watch: int, stop: int, folder: Path, closed: dict[str, int], unrecorded: dict[str, str]) -> None:
    """Notes when raw files are closed, by name, until `stop` has no writer.

    The last time counts: a program may close the recorder's file, and the recorder then opens it again. If another
    program runs in the process then and is not recorded, its path is noted in `unrecorded`.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # signals are for the main thread
    waiting = select.poll()
    waiting.register(watch, select.POLLIN)
    waiting.register(stop, select.POLLIN)
    stopping = False
    while not stopping:
        stopping = any(ready == stop for ready, _ in waiting.poll())
        names: dict[str, int] = {}
        with contextlib.suppress(BlockingIOError):
            while events := os.read(watch, _BUFFER):
                names |= dict.fromkeys(_names(events), time.monotonic_ns())
        closed.update(names)
        unrecorded.update({name: program_without_recorder(folder / name) for name in names})


def _names(events: bytes) -> Iterator[str]:
    """Yields the names of raw files in events of inotify."""
    at = 0
    while at < len(events):
        size = _EVENT.unpack_from(events, at)[3]
        at += _EVENT.size
        name = os.fsdecode(events[at : at + size].rstrip(b"\0"))
        at += size
        if name.endswith(".raw"):
            yield name
