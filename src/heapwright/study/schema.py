"""The schema of a study file: its tables, and the version of the format."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from functools import cache
from pathlib import Path

import msgspec

from heapwright import __version__
from heapwright.errors import HeapwrightError

SCHEMA = 2
APPLICATION = 0x48575354  # "HWST"

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE config (
    id INTEGER PRIMARY KEY, allocator TEXT NOT NULL, settings TEXT NOT NULL, env TEXT NOT NULL,
    effective TEXT NOT NULL, UNIQUE (allocator, env));
CREATE TABLE run (
    id INTEGER PRIMARY KEY, phase TEXT NOT NULL, block INTEGER NOT NULL, input TEXT NOT NULL,
    config INTEGER NOT NULL REFERENCES config, started TEXT NOT NULL, elapsed_s REAL NOT NULL,
    failure TEXT NOT NULL, digest TEXT NOT NULL, metrics TEXT NOT NULL, extra TEXT NOT NULL, series TEXT,
    UNIQUE (phase, block, input, config));
"""
_LONGEST = 64 << 20  # bytes of a value; the longest in our studies, memory over time, takes some kilobytes
_LARGEST_COPY = 64 << 20  # bytes of a study that is read from a copy in memory
_WAL_FLAGS = slice(18, 20)  # of the file's header: versions of its format for writing and reading; 2 is WAL mode


def connect_read_only(path: Path) -> sqlite3.Connection:
    """Open a study for reading, also where SQLite cannot create the files that WAL mode needs beside it.

    A reader in WAL mode creates two files beside the study and cannot remove them. So if no writer has anything in
    them, the study is read from a copy in memory.
    """
    copy = _copy(path)
    if copy is not None:
        return copy
    immutable = not path.with_name(f"{path.name}-wal").exists() and not os.access(path.parent, os.W_OK)
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if immutable else ''}", uri=True)


def _copy(path: Path) -> sqlite3.Connection | None:
    """Copy a study into memory; None if a writer has its last changes beside the file, or changed it meanwhile."""
    try:
        before = _state(path)
        if before[0] or not 0 < before[1] <= _LARGEST_COPY:
            return None
        data = bytearray(path.read_bytes())
        if _state(path) != before:
            return None
    except OSError:
        return None
    if data[_WAL_FLAGS] == b"\x02\x02":
        data[_WAL_FLAGS] = b"\x01\x01"  # a database in memory has no WAL
    db = sqlite3.connect(":memory:")
    try:
        db.deserialize(data)
    except (sqlite3.Error, AttributeError):  # damaged, or SQLite was built without it
        db.close()
        return None
    return db


def _state(path: Path) -> tuple[int, int, int, int]:
    """Return bytes in the files beside a study; size, time of the last change and inode of the study."""
    log_bytes = 0
    for suffix in ("-wal", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            log_bytes += path.with_name(path.name + suffix).stat().st_size
    found = path.stat()
    return log_bytes, found.st_size, found.st_mtime_ns, found.st_ino


def _not_a_study(path: Path, error: Exception) -> HeapwrightError:
    if isinstance(error, sqlite3.OperationalError):
        return HeapwrightError(f"cannot open the study {path}: {error}")
    return HeapwrightError(f"{path} is not a heapwright study", "name another file")


def check_schema(path: Path, db: sqlite3.Connection) -> bool:
    """Whether the file holds a study of this version; False for an empty file.

    Raises:
        HeapwrightError: something else, or made by another version.
    """
    try:
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
        db.execute("PRAGMA trusted_schema = OFF")
        application = db.execute("PRAGMA application_id").fetchone()[0]
        schema = db.execute("PRAGMA user_version").fetchone()[0]
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        found = _schema_of(db)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # its messages quote the content of the file
        raise _not_a_study(path, error) from None
    if tables == 0:
        return False
    if application != APPLICATION:
        raise HeapwrightError(f"{path} is not a heapwright study", "name another file")
    if schema != SCHEMA:
        made = "an unknown version"
        with contextlib.suppress(sqlite3.Error, UnicodeDecodeError, msgspec.MsgspecError, TypeError, IndexError):
            rows = db.execute("SELECT value FROM meta WHERE key = 'version'").fetchmany(1)
            made = msgspec.json.decode(rows[0][0], type=str)
        raise HeapwrightError(
            f"{path} was made by heapwright {made} (study format {schema}); this is {__version__} (format {SCHEMA})",
            "use that version, or name another file with --study",
        )
    if found != _our_schema():
        raise HeapwrightError(f"{path} is not a heapwright study: its tables are not ours", "name another file")
    return True


def _schema_of(db: sqlite3.Connection) -> list[tuple[str, ...]]:
    """The objects of a database, with the SQL that made them."""
    found: list[tuple[str, ...]] = db.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"
    ).fetchmany(100)
    return found


@cache
def _our_schema() -> list[tuple[str, ...]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.executescript(TABLES)
        return _schema_of(db)
