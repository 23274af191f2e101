"""The study file: SQLite in WAL mode, one row a run, committed before the next run starts.

The journey through a study is a pure function of (its options, the runs stored): resuming is taking the journey
again with the stored runs answering in place of the program. So the store needs no cursor and no checkpoint;
a run is found again by (phase, block, input, configuration).

    meta(key, value)      options, identity, host, picks: JSON values
    config(id, …)         configurations; 1 is the default; unique by allocator and rendered environment
    run(id, phase, …)     runs; unique by (phase, block, input, config)

One process writes at a time (flock on the file); any number may read.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heapwright import __version__
from heapwright.errors import HeapwrightError
from heapwright.study.view import Config

SCHEMA = 2
_APPLICATION = 0x48575354  # "HWST"

_TABLES = """
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


@dataclass(frozen=True)
class StoredRun:
    """One run as stored.

    Attributes:
        phase: calibrate, allocators, replay, check, search, shortlist, minify.PICK, confirm, landscape.
        block: within the phase; runs of one block are compared with each other.
        failure: why it does not count, or empty.
        digest: what stands for its output.
        extra: threads, mappings, meter, warnings, exit code, kind of machine (host), and which (machine) if elsewhere.
    """

    phase: str
    block: int
    input: str
    config: int
    elapsed_s: float
    failure: str
    digest: str
    metrics: dict[str, float | None]
    extra: dict[str, Any]
    series: dict[str, list[float]] | None = None


class Store:
    """An open study file. Use `open_study` or `read_study`."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: int | None) -> None:
        self.path = path
        self._db = connection
        self._lock = lock

    def close(self) -> None:
        """Closes the file; everything was committed already."""
        self._db.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def remove_if_empty(self) -> None:
        """Removes the file if no run was ever stored in it."""
        if self._db.execute("SELECT count(*) FROM run").fetchone()[0]:
            return
        self._db.close()  # takes the -wal and -shm files along
        self.path.unlink(missing_ok=True)
        self.forget_files()

    @property
    def references(self) -> Path:
        """The directory beside the study that keeps reference outputs for a comparing command."""
        return self.path.with_name(f"{self.path.name}.reference")

    @property
    def traces(self) -> Path:
        """The directory beside the study that keeps the traces replays are made from."""
        return self.path.with_name(f"{self.path.name}.traces")

    def forget_files(self) -> None:
        """Removes reference outputs and traces: those of a study that was deleted say nothing about a new one."""
        shutil.rmtree(self.references, ignore_errors=True)
        shutil.rmtree(self.traces, ignore_errors=True)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, key: str) -> Any:
        """A meta value, or None."""
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return json.loads(row[0]) if row else None

    def put(self, values: Mapping[str, Any]) -> None:
        """Stores meta values, all or none."""
        with self._saving():
            self._db.executemany(
                "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                [(k, json.dumps(v)) for k, v in values.items()],
            )

    def config(self, allocator: str, settings: Mapping[str, str], env: Mapping[str, str]) -> Config:
        """The configuration with this environment, made if new (its first settings win)."""
        key = json.dumps(dict(env), sort_keys=True)
        found = self._db.execute("SELECT id FROM config WHERE allocator = ? AND env = ?", (allocator, key)).fetchone()
        if found:
            return self.config_by_id(found[0])
        with self._saving():
            cursor = self._db.execute(
                "INSERT INTO config (allocator, settings, env, effective) VALUES (?, ?, ?, '{}')",
                (allocator, json.dumps(dict(settings)), key),
            )
        return Config(int(cursor.lastrowid or 0), allocator, dict(settings), dict(env))

    def config_by_id(self, id_: int) -> Config:
        """A stored configuration."""
        row = self._db.execute(
            "SELECT id, allocator, settings, env, effective FROM config WHERE id = ?", (id_,)
        ).fetchone()
        return Config(row[0], row[1], json.loads(row[2]), json.loads(row[3]), json.loads(row[4]))

    def set_effective(self, id_: int, effective: Mapping[str, str]) -> None:
        """Keeps what the loader said is in force for a configuration."""
        with self._saving():
            self._db.execute("UPDATE config SET effective = ? WHERE id = ?", (json.dumps(dict(effective)), id_))

    def find_run(self, phase: str, block: int, input_: str, config: int) -> StoredRun | None:
        """The stored run in this place, or None."""
        row = self._db.execute(
            f"SELECT {_RUN_COLUMNS} FROM run WHERE phase = ? AND block = ? AND input = ? AND config = ?",
            (phase, block, input_, config),
        ).fetchone()
        return _stored(row) if row else None

    def add_run(self, run: StoredRun, started: str) -> None:
        """Commits a run; on return it is on disk."""
        with self._saving():
            self._db.execute(
                "INSERT INTO run (phase, block, input, config, started, elapsed_s, failure, digest, metrics,"
                " extra, series) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    run.phase,
                    run.block,
                    run.input,
                    run.config,
                    started,
                    run.elapsed_s,
                    run.failure,
                    run.digest,
                    json.dumps(run.metrics),
                    json.dumps(run.extra),
                    json.dumps(run.series) if run.series else None,
                ),
            )

    def runs(self, phase: str = "%") -> list[StoredRun]:
        """All runs of a phase (an SQL LIKE pattern), in the order made."""
        rows = self._db.execute(f"SELECT {_RUN_COLUMNS} FROM run WHERE phase LIKE ? ORDER BY id", (phase,)).fetchall()
        return [_stored(row) for row in rows]

    def forget_block(self, phase: str, block: int) -> None:
        """Removes a block's runs."""
        with self._saving():
            self._db.execute("DELETE FROM run WHERE phase = ? AND block = ?", (phase, block))

    def forget_runs(self) -> None:
        """Removes all runs."""
        with self._saving():
            self._db.execute("DELETE FROM run")

    @contextmanager
    def _saving(self) -> Iterator[None]:
        """A transaction; a full disk or a lost file becomes one clear line and the study stays as it was."""
        try:
            with self._db:
                yield
        except sqlite3.OperationalError as error:
            hint = "free some space and give the same command again: it goes on where it stopped"
            raise HeapwrightError(f"cannot write the study {self.path}: {error}", hint) from None


_RUN_COLUMNS = "phase, block, input, config, elapsed_s, failure, digest, metrics, extra, series"


def _stored(row: tuple[Any, ...]) -> StoredRun:
    phase, block, input_, config, elapsed_s, failure, digest, metrics, extra, series = row
    return StoredRun(
        phase, block, input_, config, elapsed_s, failure, digest,
        json.loads(metrics), json.loads(extra), json.loads(series) if series else None,
    )  # fmt: skip


def _connect_read_only(path: Path) -> sqlite3.Connection:
    """Opens for reading, also where SQLite may not make the files that WAL mode wants beside the study."""
    alone = not path.with_name(f"{path.name}-wal").exists() and not os.access(path.parent, os.W_OK)
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if alone else ''}", uri=True)


def _not_a_study(path: Path, error: sqlite3.DatabaseError) -> HeapwrightError:
    if isinstance(error, sqlite3.OperationalError):
        return HeapwrightError(f"cannot open the study {path}: {error}")
    return HeapwrightError(f"{path} is not a heapwright study", "name another file with --study")


def _check(path: Path, db: sqlite3.Connection) -> bool:
    """Whether the file holds a study of this version; False for an empty file.

    Raises:
        HeapwrightError: something else, or made by another version.
    """
    try:
        application = db.execute("PRAGMA application_id").fetchone()[0]
        schema = db.execute("PRAGMA user_version").fetchone()[0]
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    except sqlite3.DatabaseError as error:
        raise _not_a_study(path, error) from None
    if tables == 0:
        return False
    if application != _APPLICATION:
        raise HeapwrightError(f"{path} is not a heapwright study", "name another file with --study")
    if schema != SCHEMA:
        row = db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()
        made = json.loads(row[0]) if row else "an unknown version"
        raise HeapwrightError(
            f"{path} was made by heapwright {made} (study format {schema}); this is {__version__} (format {SCHEMA})",
            "use that version, or name another file with --study",
        )
    return True


def open_study(path: Path) -> Store:
    """Opens a study for writing, made if new.

    Raises:
        HeapwrightError: not a study, another version's, in use by another process, or not writable.
    """
    new = not path.exists()
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise HeapwrightError(f"cannot open the study {path}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise HeapwrightError(
            f"the study {path} is in use by another heapwright", "wait for it, or name another file with --study"
        ) from None
    db: sqlite3.Connection | None = None
    try:
        db = sqlite3.connect(path, timeout=10)
        begun = _check(path, db)  # before anything is changed: it may be a database of something else
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        if not begun:
            with db:
                db.executescript(
                    f"BEGIN; PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {SCHEMA}; {_TABLES} COMMIT;"
                )
    except sqlite3.OperationalError as error:
        db.close() if db else None
        if new:
            path.unlink(missing_ok=True)
        os.close(lock)
        raise HeapwrightError(f"cannot write the study {path}: {error}", "is the disk full?") from None
    except HeapwrightError:
        db.close() if db else None
        os.close(lock)
        raise
    return Store(path, db, lock)


def read_study(path: Path) -> Store:
    """Opens a study for reading only.

    Raises:
        HeapwrightError: missing, not a study, another version's, or holding nothing yet.
    """
    if not path.is_file():
        raise HeapwrightError(f"no such study: {path}", "'heapwright tune -- CMD' makes one")
    db = _connect_read_only(path)
    try:
        if not _check(path, db):
            raise HeapwrightError(f"{path} holds no study yet")
    except HeapwrightError:
        db.close()
        raise
    return Store(path, db, None)
