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


def connect_read_only(path: Path) -> sqlite3.Connection:
    """Open a study for reading, also where SQLite cannot create the files that WAL mode needs beside it."""
    immutable = not path.with_name(f"{path.name}-wal").exists() and not os.access(path.parent, os.W_OK)
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if immutable else ''}", uri=True)


def _not_a_study(path: Path, error: Exception) -> HeapwrightError:
    if isinstance(error, sqlite3.OperationalError):
        return HeapwrightError(f"cannot open the study {path}: {error}")
    return HeapwrightError(f"{path} is not a heapwright study", "name another file with --study")


def check(path: Path, db: sqlite3.Connection) -> bool:
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
        ours = application != APPLICATION or schema != SCHEMA or _schema_of(db) == _our_schema()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # its messages quote the content of the file
        raise _not_a_study(path, error) from None
    if tables == 0:
        return False
    if application != APPLICATION:
        raise HeapwrightError(f"{path} is not a heapwright study", "name another file with --study")
    if schema != SCHEMA:
        made = "an unknown version"
        with contextlib.suppress(sqlite3.Error, UnicodeDecodeError, msgspec.MsgspecError, TypeError, IndexError):
            rows = db.execute("SELECT value FROM meta WHERE key = 'version'").fetchmany(1)
            made = msgspec.json.decode(rows[0][0], type=str)
        raise HeapwrightError(
            f"{path} was made by heapwright {made} (study format {schema}); this is {__version__} (format {SCHEMA})",
            "use that version, or name another file with --study",
        )
    if not ours:
        raise HeapwrightError(f"{path} is not a heapwright study: its tables are not ours", "name another with --study")
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
