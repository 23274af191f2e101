"""Writes files whole or not at all, no more readable than the user's umask allows; makes folders for one run.

It also finds our own native files.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

# Native programs and libraries. In an installation by `make dev` it is a link.
NATIVE = Path(__file__).parent / "_native"
_MAX_LINKS = 40  # as in the kernel
_SCRATCH = "heapwright-tmp-"
_SCRATCH_NAME = re.compile(_SCRATCH + "[a-z0-9_]{8}")
_ABANDONED_S = 60  # a younger folder may be one that another process is about to lock


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name `path` in errors: those of writing name no file, and those of a draft name the draft."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


@contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Make an empty folder for the block, and remove such folders of processes that were killed.

    The process holds a lock on its folder. So the process of a folder without a lock has ended, also if it was in
    another container.

    Args:
        parent: where; None for the folder for temporary files.
    """
    parent = parent or Path(tempfile.gettempdir())
    _remove_abandoned_once(parent)
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=parent) as name:
        lock = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with suppress(OSError):  # some network file systems have no locks
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            yield Path(name)
        finally:
            os.close(lock)


@cache
def _remove_abandoned_once(parent: Path) -> None:
    """Call `remove_abandoned`, once in a process for each folder."""
    remove_abandoned(parent)


def remove_abandoned(parent: Path) -> None:
    """Remove this user's scratch folders that no process has locked."""
    with suppress(OSError):
        for entry in os.scandir(parent):
            if not _SCRATCH_NAME.fullmatch(entry.name):
                continue
            with suppress(OSError):  # another user's folder, or one that is in use
                folder = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    about = os.fstat(folder)
                    if about.st_uid != os.geteuid() or time.time() - about.st_mtime < _ABANDONED_S:
                        continue
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(entry.path, ignore_errors=True)
                finally:
                    os.close(folder)


def draft_prefix(path: Path) -> str:
    """Return how names of temporary files beside `path` begin: short enough for any file system (255 bytes a name)."""
    return f".{_cut(path.name, 100)}."


def _cut(name: str, size: int) -> str:
    """Return the beginning of a name, at most `size` bytes and only whole characters."""
    return os.fsencode(name)[:size].decode(errors="ignore")


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Create an empty file with a random name beside `path`; rename it to `path` if the block succeeds.

    If `path` is a link, the file takes its place: another user may have put it there.

    Raises:
        OSError: the file cannot be created. The error names `path`.
    """
    with _naming(path):
        made, name = tempfile.mkstemp(prefix=draft_prefix(path), suffix=_cut(path.suffix, 20), dir=path.parent)
    os.close(made)
    draft = Path(name)
    try:
        yield draft
        mask = os.umask(0o077)  # the umask can only be read by setting it
        os.umask(mask)
        draft.chmod(0o666 & ~mask)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def user_cache() -> Path | None:
    """Return heapwright's folder below $XDG_CACHE_HOME or ~/.cache; None for a user without a home directory."""
    named = os.environ.get("XDG_CACHE_HOME")
    if named:
        return Path(named) / "heapwright"
    try:
        return Path.home() / ".cache" / "heapwright"
    except RuntimeError:  # HOME is not set, and the user id is unknown, as in `docker run -u 1234`
        return None


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_stream(path: Path) -> bool:
    """Whether a path names no regular file: a device, a pipe, or an open file such as /dev/stdout."""
    if path.exists() and not path.is_file():
        return True
    seen = Path(os.path.abspath(path))  # noqa: PTH100 (resolve() would follow the links)
    for _ in range(_MAX_LINKS):
        if not seen.is_symlink():
            return False
        if seen.is_relative_to("/dev") or seen.is_relative_to("/proc"):
            return True
        seen = Path(os.path.normpath(seen.parent / seen.readlink()))
    return False


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file under a temporary name and rename it. A stream such as /dev/stderr is written directly.

    File names in a text may hold bytes that are not UTF-8; they are written as \\udcXX.
    """
    data = content if isinstance(content, bytes) else content.encode(errors="backslashreplace")
    with _naming(path):
        if is_stream(path):
            with path.open("ab") as stream:  # keeps what was written to it before, if it is a file
                stream.write(data)
            return
        with draft_of(path) as draft:
            draft.write_bytes(data)
