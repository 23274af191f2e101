"""Makes the folders of a recording beside its future trace, and reads the beginning of raw files.

A recording has a folder of raw files (`raw_folder`). While they are packed, the packed traces lie in a second folder
(`packing_folder`), from which they are renamed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import struct
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from heapwright.errors import HeapwrightError, UsageError
from heapwright.files import draft_prefix
from heapwright.terminal_text import counted, warn

SUFFIX = ".recording"
_PACKING = ".packing"
# native/raw_format/format.h: magic, version, block_bytes, clock, page_size, pid, parent …;
# allocator at 128, executable at 640, the words of the command from 1668 on.
MAGIC = 0x0A77617277616568
_START = struct.Struct("<QIIIIQQ")
_EXECUTABLE = slice(640, 640 + 1024)
_COMMAND = slice(1668, 1668 + 4096)  # enough for the first word
_SAMPLE_AT = 34440
_MAX_FOLDER = 3071  # bytes of the folder's path: native/recorder/begin.cpp
_OPEN_TO_ALL = 0o1733
_MIN_RAW_BYTES = 2 * 64 << 10  # a raw file begins with a header and a block


def raw_folder(trace: Path) -> Path:
    """Makes the folder for raw files beside a future trace.

    A service that root starts may change to another user and fork. So that these processes can make their files, the
    folder of root is open to all users, as /tmp is, but they cannot list it.

    Raises:
        HeapwrightError: the recorder could not write there: the disk is full.
        UsageError: its path is too long for the recorder.
        OSError: it cannot be made.
    """
    folder = Path(tempfile.mkdtemp(prefix=draft_prefix(trace), suffix=SUFFIX, dir=trace.parent))
    try:
        if os.geteuid() == 0:
            folder.chmod(_OPEN_TO_ALL)
        check_writable(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def raw_files_in(folder: Path) -> list[Path]:
    """Returns the raw files of a folder, sorted. Skips links and pipes, because other users may write there."""
    return sorted(raw for raw in folder.glob("*.raw") if stat.S_ISREG(raw.lstat().st_mode))


def check_writable(folder: Path) -> None:
    """Fails with one clear line unless the recorder can begin a file in a folder.

    Raises:
        HeapwrightError: there is no room on its disk.
        UsageError: its path is too long for the recorder.
    """
    check_length(folder.resolve())
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, _MIN_RAW_BYTES)
    except OSError as error:
        raise HeapwrightError(
            f"nothing can be recorded in {folder.parent}: {error.strerror}",
            f"a recording needs {_MIN_RAW_BYTES >> 10} KiB to begin with; free some space, or use another disk",
        ) from None


def check_length(folder: Path) -> None:
    """Fails if the recorder cannot use a folder because of its length.

    Raises:
        UsageError: its path is too long.
    """
    size = len(os.fsencode(folder))
    if size > _MAX_FOLDER:
        raise UsageError(
            f"the path of the folder for raw files has {size:,} bytes; the recorder can use {_MAX_FOLDER:,}",
            "write into a folder with a shorter path",
        )


@contextlib.contextmanager
def packing_folder(trace: Path) -> Iterator[Path]:
    """Makes a folder beside a future trace for packed files, and removes it at the end.

    Removes what killed processes have left of this kind. A living process holds a lock on its folder.
    """
    prefix = draft_prefix(trace)
    for left in trace.parent.iterdir():
        if left.name.startswith(prefix) and left.name.endswith(_PACKING):
            with contextlib.suppress(OSError), _locked(left):
                shutil.rmtree(left, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory(prefix=prefix, suffix=_PACKING, dir=trace.parent) as name,
        contextlib.ExitStack() as stack,
    ):
        with contextlib.suppress(OSError):  # a file system without locks
            stack.enter_context(_locked(Path(name)))
        yield Path(name)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds the lock of a folder.

    Raises:
        OSError: another process holds it, or there are no locks.
    """
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(opened)


def begun_files(raws: Sequence[Path]) -> Sequence[Path]:
    """Returns the raw files that have a header, with a warning if others have none; all files if none has one.

    A process that was killed while it made its file has left one that is empty, or begins with zeros.
    """
    begun = [raw for raw in raws if any(_start(raw)[:8])]
    if begun and len(begun) < len(raws):
        left = counted(len(raws) - len(begun), "process was", "processes were")
        warn(f"{left} killed before anything was recorded: there is no trace")
    return begun or raws


def process_ids(raw: Path) -> tuple[int, int]:
    """Returns the ids of the recorded process and its parent."""
    pid, parent = _START.unpack_from(_start(raw))[5:7]
    return pid, parent


def executable(raw: Path) -> str:
    """Returns the path of the recorded program's file; empty if it is unknown."""
    return _text(_start(raw)[_EXECUTABLE])


def first_word(raw: Path) -> str:
    """Returns the first word of the recorded command line."""
    return _text(_start(raw)[_COMMAND])


def first_rate(raw: Path) -> int:
    """Returns the rate at which a sample began, before the recorder thinned it; 0 if the file is no sample."""
    with raw.open("rb") as file:
        is_raw = file.read(8) == MAGIC.to_bytes(8, "little")
        file.seek(_SAMPLE_AT)
        return int.from_bytes(file.read(8), "little") if is_raw else 0


def _start(raw: Path) -> bytes:
    with raw.open("rb") as file:
        return file.read(_COMMAND.stop)


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode(errors="replace")
