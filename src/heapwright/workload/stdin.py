"""Takes heapwright's own standard input once, so that every run of a command can be given the same input.

The rule, which docs/workload.md states for users:

- A pipe or a regular file is taken. A terminal, a device, a socket and a closed descriptor are not.
- A regular file that has a name and has not been read from is used in place. Anything else is copied into a file
  ("spooled") that is named by the SHA-256 of its content, so equal inputs have equal names.
- Empty input counts as none.
- A pipe that stays open and silent for `FIRST_S` is not taken, with a warning: a CI service, cron or a parent process
  may hold it open for ever. A pipe that delivers something and then falls silent for `STALL_S` is an error, because
  half an input would measure something else. Input that the user asks for by name is waited for without limit.
"""

from __future__ import annotations

import hashlib
import os
import select
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from heapwright.errors import HeapwrightError, UsageError
from heapwright.metrics import show_bytes
from heapwright.terminal_text import say, warn

FIRST_S = 3.0  # seconds to wait for the first byte of a pipe that nobody asked for
STALL_S = 60.0  # seconds without a further byte after which such a pipe is an error
MAX_BYTES = 1 << 30  # of a copy; a larger input must be a file
SUFFIX = ".stdin"
_PIECE = 1 << 20


@dataclass(frozen=True)
class CapturedStdin:
    """A standard input as a file.

    Attributes:
        path: absolute.
        size: in bytes, above 0.
        copied: whether it is a copy of ours; False: a file of the user's.
        made: whether this call made the copy; False: the same content was there already.
    """

    path: Path
    size: int
    copied: bool = False
    made: bool = False

    @property
    def sentence(self) -> str:
        """One line for the user."""
        kept = "" if self.copied else f", {self.path}"
        return f"standard input ({show_bytes(self.size)}{kept}) is given to every run"


def capture_own_stdin(folder: Callable[[], Path], wait: bool = False) -> CapturedStdin | None:
    """Take heapwright's own standard input, if there is one.

    Args:
        folder: returns the folder for a copy. It is called only for a copy.
        wait: whether the user asked for it. It may then also be a terminal or a socket, and there is no time limit.

    Returns:
        None if there is no input: it is not a pipe or file, it is empty, or it is a pipe without data.

    Raises:
        HeapwrightError: it is too long, does not end, or cannot be copied to the folder.
    """
    try:
        status = os.fstat(0)
    except OSError:  # closed
        return None
    if stat.S_ISREG(status.st_mode):
        return _of_file(status, folder)
    if not (wait or stat.S_ISFIFO(status.st_mode)):
        return None
    return _spool(0, folder, wait)


def capture_stdin_file(name: str, folder: Callable[[], Path]) -> CapturedStdin | None:
    """Take the file of `--stdin FILE`; None if it is empty. A pipe (`<(command)`) is copied.

    Raises:
        UsageError: it is not there, is a directory, or cannot be read.
        HeapwrightError: a pipe is too long, or cannot be copied to the folder.
    """
    path = Path(name)
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise UsageError(f"--stdin {name} is a directory", "name a file")
        source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"--stdin {name}: {error.strerror}") from None
    try:
        if stat.S_ISREG(status.st_mode):
            return CapturedStdin(path.resolve(), status.st_size) if status.st_size else None
        return _spool(source, folder, wait=True)
    finally:
        os.close(source)


def _of_file(status: os.stat_result, folder: Callable[[], Path]) -> CapturedStdin | None:
    """Take a standard input that is a regular file. Its offset stays, because a shell loop may continue to read it."""
    begin = os.lseek(0, 0, os.SEEK_CUR)
    if begin >= status.st_size:
        return None
    link = Path("/proc/self/fd/0")
    try:
        named = link.readlink()
        same = os.path.samestat(named.stat(), status) and os.access(named, os.R_OK)
    except OSError:
        same = False
    if same and begin == 0:
        return CapturedStdin(named, status.st_size)
    try:
        source = os.open(link, os.O_RDONLY | os.O_CLOEXEC)  # with an offset of its own
    except OSError:  # opened for us by a user with more rights
        source = os.dup(0)
    try:
        os.lseek(source, begin, os.SEEK_SET)
        return _spool(source, folder, wait=True)
    finally:
        os.close(source)


def _spool(source: int, folder: Callable[[], Path], wait: bool) -> CapturedStdin | None:
    """Copy everything from a descriptor into a file.

    Args:
        source: the descriptor.
        folder: returns the folder for the copy.
        wait: see `capture_own_stdin`.
    """
    pieces = _pieces(source, wait)
    piece = next(pieces, b"")
    if not piece:
        return None
    digest, size = hashlib.sha256(), 0
    into = folder()
    try:
        made, name = tempfile.mkstemp(prefix=".heapwright-", suffix=SUFFIX, dir=into)
    except OSError as error:
        raise HeapwrightError(f"standard input cannot be copied to {into}: {error.strerror}") from None
    draft = Path(name)
    try:
        with os.fdopen(made, "wb") as copy:
            while piece:
                size += len(piece)
                if size > MAX_BYTES:
                    raise HeapwrightError(
                        f"standard input is longer than {show_bytes(MAX_BYTES)}",
                        "write it to a file and give --stdin FILE, or --stdin none for no input",
                    )
                digest.update(piece)
                copy.write(piece)
                piece = next(pieces, b"")
        path = into.absolute() / f"heapwright-{digest.hexdigest()[:16]}{SUFFIX}"
        new = not path.exists()
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return CapturedStdin(path, size, copied=True, made=new)


def _pieces(source: int, wait: bool) -> Iterator[bytes]:
    """Yield the data of a descriptor until its end; nothing if a pipe stays silent and `wait` is false."""
    poll = select.poll()
    poll.register(source, select.POLLIN)  # the end of a pipe is always reported
    size, warned = 0, False
    while True:
        if not warned and not poll.poll(1000 * FIRST_S):
            if not size and not wait:
                warn(
                    f"standard input is an open pipe without data for {FIRST_S:g} s, so the runs get no input"
                    " (--stdin - waits for data, --stdin none ignores the pipe)"
                )
                return
            say(f"waiting for the end of standard input ({show_bytes(size)} so far)")
            warned = True
        if not poll.poll(None if wait else 1000 * STALL_S):
            raise HeapwrightError(
                f"standard input does not end: after {show_bytes(size)}, no data came for {STALL_S:g} s",
                "close it, or give --stdin FILE, or --stdin none for no input",
            )
        try:
            piece = os.read(source, _PIECE)
        except BlockingIOError:  # another process has read the data, or the descriptor is non-blocking
            continue
        if not piece:
            return
        size += len(piece)
        yield piece
