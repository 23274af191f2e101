"""The study file: SQLite in WAL mode, one row a run, committed before the next run starts.

The tuning pipeline is a pure function of (its options, the runs stored): resuming means running the pipeline
again with the stored runs answering in place of the program. So the store needs no cursor and no checkpoint;
a run is found again by (phase, block, input, configuration).

    meta(key, value)      options, identity, host, picks: JSON values
    config(id, …)         configurations; 1 is the default; unique by allocator and rendered environment
    run(id, phase, …)     runs; unique by (phase, block, input, config)

One process writes at a time (flock on the file); any number may read.

A study may come from an untrusted source, so its content is only data. Nothing in it is executed. Its schema must equal
ours exactly: views and triggers are programs. Values are at most 64 MiB long. Every row is decoded into its type.
`study_errors` turns any other error in the content into one line.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from heapwright.allocators.space_spec import VARIABLE
from heapwright.errors import HeapwrightError, UsageError
from heapwright.interleaving.configuration import Config
from heapwright.interleaving.records import PhaseStart, StoredRun
from heapwright.measure.memory_parts import Breakdown
from heapwright.study.lock import lock_study
from heapwright.study.meta import StudyMeta
from heapwright.study.schema import APPLICATION, SCHEMA, TABLES, check_schema, connect_read_only
from heapwright.units import is_plausible

_T = TypeVar("_T")
_RESTORE_HINT = "restore it from a copy, or name another file with --study"
SYNCHRONOUS = "FULL"  # SQLite's setting: a commit waits for the disk, so that a power cut loses no run


class _Extra(msgspec.Struct):
    """The types of the fields of a run's `extra`."""

    warnings: list[str] = []
    maps: int | None = None
    threads: int | None = None
    processes: int | None = None
    meter: str = ""
    machine: str = ""
    host: str = ""
    charged_s: float = 0.0
    parts: Breakdown | None = None


@contextmanager
def study_errors(path: Path) -> Iterator[None]:
    """A context in which the content of a study is used: any error means that the study is damaged.

    Raises:
        HeapwrightError: the body raised an error that invalid content causes.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise HeapwrightError(f"the study {path} is damaged: {error}", _RESTORE_HINT) from None
    except (
        msgspec.MsgspecError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        cause = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise HeapwrightError(f"the study {path} is damaged: its content is invalid ({cause})", _RESTORE_HINT) from None


def reference_folder(path: Path) -> Path:
    """Where the reference outputs of the study at this path are."""
    return path.with_name(f"{path.name}.reference")


def trace_folder(path: Path) -> Path:
    """Where the traces of the study at this path are."""
    return path.with_name(f"{path.name}.traces")


_MAX_PATH = 504  # bytes: SQLite's limit of 512, less the suffix that it appends
FOLDERS = (reference_folder, trace_folder)


class Store:
    """An open study file. Use `open_writable_study` or `read_study`."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: int | None) -> None:
        self.path = path
        self._db = connection
        self._lock = lock
        self._meta: StudyMeta | None = None

    def close(self) -> None:
        """Close the file. All data were committed before."""
        self._db.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def remove_if_empty(self) -> bool:
        """Remove the file if it has no run; return whether it was removed."""
        if self._rows("SELECT count(*) FROM run", ())[0][0]:
            return False
        self._db.close()  # takes the -wal and -shm files along
        self.path.unlink(missing_ok=True)
        self.forget_files()
        return True

    @property
    def references(self) -> Path:
        """The directory beside the study that keeps reference outputs for a comparing command."""
        return reference_folder(self.path)

    @property
    def traces(self) -> Path:
        """The directory beside the study that keeps the traces replays are made from."""
        return trace_folder(self.path)

    def checkpoint(self) -> None:
        """Moves the content of the write-ahead log into the study file."""
        with self._saving():
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def move(self, names: Sequence[tuple[Path, Path]]) -> None:
        """Close the data and rename files, while the lock of the study keeps other processes away.

        Args:
            names: old → new path, the study last: if one cannot be renamed, the study is where it was. Files that do
                not exist are left out.
        """
        self.checkpoint()
        self._db.close()  # SQLite removes the files of its log by the old name
        for old, new in names:
            if old.exists():
                old.rename(new)

    def forget_files(self) -> None:
        """Remove reference outputs and traces that a deleted study left behind."""
        shutil.rmtree(self.references, ignore_errors=True)
        shutil.rmtree(self.traces, ignore_errors=True)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def meta(self) -> StudyMeta:
        """The study's own facts. Read once; `update` renews it."""
        if self._meta is None:
            rows = self._rows("SELECT key, value FROM meta", ())
            known = {key: self._decoded(value, Any) for key, value in rows if key in StudyMeta.__struct_fields__}
            try:
                self._meta = msgspec.convert(known, StudyMeta)
            except msgspec.ValidationError as error:
                raise self._damaged(str(error)) from None
        return self._meta

    def update(self, **values: Any) -> None:
        """Store facts of the study, all or none.

        Args:
            values: fields of `StudyMeta`, by name.

        Raises:
            AttributeError: `StudyMeta` has no such field.
            HeapwrightError: the study cannot be written.
        """
        for name in values:
            getattr(StudyMeta, name)
        self._put(values)
        self._meta = None

    def _get(self, key: str) -> Any:
        """The value of another key of the table `meta`, or None."""
        rows = self._rows("SELECT value FROM meta WHERE key = ?", (key,))
        return self._decoded(rows[0][0], Any) if rows else None

    def _put(self, values: Mapping[str, Any]) -> None:
        """Store values of the table `meta`, all or none."""
        with self._saving():
            self._db.executemany(
                "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                [(k, json.dumps(v)) for k, v in values.items()],
            )

    def phase_start(self, phase: str) -> PhaseStart | None:
        """Return where the blocks of this phase begin; None if that was never stored."""
        found = self._get(f"begun.{phase}")
        return None if found is None else msgspec.convert(found, PhaseStart)

    def set_phase_start(self, phase: str, start: PhaseStart) -> None:
        """Store where the blocks of this phase begin."""
        self._put({f"begun.{phase}": msgspec.to_builtins(start)})

    def config(self, allocator: str, settings: Mapping[str, str], env: Mapping[str, str]) -> Config:
        """The configuration with this environment, stored if it is new.

        Args:
            allocator: name of the allocator.
            settings: parameter key → value. If the environment is stored already, its first settings stay.
            env: the variables.
        """
        key = json.dumps(dict(env), sort_keys=True)
        found = self._rows("SELECT id FROM config WHERE allocator = ? AND env = ?", (allocator, key))
        if found:
            return self.config_by_id(found[0][0])
        with self._saving():
            cursor = self._db.execute(
                "INSERT INTO config (allocator, settings, env, effective) VALUES (?, ?, ?, '{}')",
                (allocator, json.dumps(dict(settings)), key),
            )
        return Config(int(cursor.lastrowid or 0), allocator, dict(settings), dict(env))

    def config_by_id(self, id_: int) -> Config:
        """A stored configuration."""
        rows = self._rows("SELECT id, allocator, settings, env, effective FROM config WHERE id = ?", (id_,))
        if not rows:
            raise self._damaged(f"there is no configuration {id_}")
        number, allocator, *texts = rows[0]
        settings, env, effective = (self._decoded(text, dict[str, str]) for text in texts)
        if not isinstance(allocator, str) or not all(map(VARIABLE.fullmatch, env)):
            raise self._damaged(f"configuration {id_} has an invalid allocator or variable")
        return Config(number, allocator, settings, env, effective)

    def set_effective(self, id_: int, effective: Mapping[str, str]) -> None:
        """Store the values that the loader reports to be in force for a configuration."""
        with self._saving():
            self._db.execute("UPDATE config SET effective = ? WHERE id = ?", (json.dumps(dict(effective)), id_))

    def find_run(self, phase: str, block: int, input_: str, config: int) -> StoredRun | None:
        """The stored run of a phase, block, input and configuration, or None.

        Args:
            phase: the phase.
            block: number of the block in the phase.
            input_: name of the input.
            config: number of the configuration.
        """
        rows = self._rows(
            f"SELECT {_RUN_COLUMNS} FROM run WHERE phase = ? AND block = ? AND input = ? AND config = ?",
            (phase, block, input_, config),
        )
        return self._stored(rows[0]) if rows else None

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
        rows = self._rows(f"SELECT {_RUN_COLUMNS} FROM run WHERE phase LIKE ? ORDER BY id", (phase,))
        return [self._stored(row) for row in rows]

    def _rows(self, query: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """The rows that a query returns."""
        try:
            return self._db.execute(query, values).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:  # its messages quote the content of the file
            raise self._damaged(str(error)) from None

    def _decoded(self, text: object, kind: type[_T]) -> _T:
        """A JSON value, converted to its type."""
        try:
            return msgspec.convert(json.loads(text, parse_constant=_no_number), kind)  # type: ignore[arg-type]
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
            raise self._damaged(str(error)) from None

    def _stored(self, row: tuple[Any, ...]) -> StoredRun:
        phase, block, input_, config, elapsed_s, failure, digest, metrics, extra, series = row
        texts, numbers = (phase, input_, failure, digest), (block, config)
        which = f"the run of '{input_!s:.60}' in block {block!s:.20} of phase '{phase!s:.60}'"
        if (
            not all(isinstance(x, str) for x in texts)
            or not all(isinstance(x, int) for x in numbers)
            or not isinstance(elapsed_s, float)
        ):
            raise self._damaged(f"{which} has a value of the wrong type")
        charged_s = self._decoded(extra, _Extra).charged_s
        figures = self._decoded(metrics, dict[str, float | None])
        course = self._decoded(series, dict[str, list[float]]) if series is not None else None
        seen = {"elapsed_s": elapsed_s, "charged_s": charged_s, **figures}
        if wrong := [key for key, value in seen.items() if value is not None and not is_plausible(value)]:
            raise self._damaged(f"{which} has a negative or infinite value: {wrong[0]:.60}")
        if not _is_course(course):
            raise self._damaged(f"{which} has an invalid series of memory over time")
        return StoredRun(
            phase, block, input_, config, elapsed_s, failure, digest,
            figures, self._decoded(extra, dict[str, Any]), course,
        )  # fmt: skip

    def _damaged(self, what: str) -> HeapwrightError:
        return HeapwrightError(f"the study {self.path} is damaged: {what}", _RESTORE_HINT)

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
            hint = "free some space and give the same command again: it continues where it stopped"
            raise HeapwrightError(f"cannot write the study {self.path}: {_reason(error)}", hint) from None
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError):  # of the call, not of the file
            raise
        except sqlite3.DatabaseError as error:
            raise self._damaged(str(error)) from None


def _reason(error: sqlite3.Error) -> str:
    """SQLite's message, in plain words for a full disk."""
    return "the disk is full" if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL else str(error)


_RUN_COLUMNS = "phase, block, input, config, elapsed_s, failure, digest, metrics, extra, series"


def _is_course(series: dict[str, list[float]] | None) -> bool:
    """Whether this is a valid series of memory over time, or None."""
    if series is None:
        return True
    lists = [series.get(key) for key in ("t", "rss", "heap", "vm")]
    return len({None if x is None else len(x) for x in lists}) == 1 and all(
        is_plausible(v) for x in lists if x is not None for v in x
    )


def _no_number(name: str) -> float:
    """Refuse NaN and Infinity, which Python accepts although JSON has neither."""
    raise ValueError(f"{name} is not a number")


def _check_length(path: Path) -> None:
    """Fails if SQLite cannot open a path because of its length.

    Raises:
        UsageError: the path is too long.
    """
    size = len(os.fsencode(path.resolve()))
    if size > _MAX_PATH:
        raise UsageError(
            f"the path of the study {path} has {size:,} bytes; SQLite can open {_MAX_PATH}",
            "name a file in another folder with --study",
        )


def open_writable_study(path: Path) -> Store:
    """Opens a study for writing, made if new.

    Raises:
        HeapwrightError: not a study, another version's, damaged, in use by another process, not writable, or on a file
            system without locks.
    """
    new = not path.exists()
    _check_length(path)
    lock = lock_study(path)
    db: sqlite3.Connection | None = None
    try:
        db = sqlite3.connect(path, timeout=10)
        begun = check_schema(path, db)  # before anything is changed: it may be a database of something else
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
        if not begun:
            with db:
                db.executescript(
                    f"BEGIN; PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {SCHEMA}; {TABLES} COMMIT;"
                )
    except sqlite3.Error as error:
        db.close() if db else None
        if new:
            path.unlink(missing_ok=True)
        os.close(lock)
        if not isinstance(error, sqlite3.OperationalError):
            raise HeapwrightError(f"the study {path} is damaged: {error}", _RESTORE_HINT) from None
        hint = "free some space, or name a file on another disk with --study"
        raise HeapwrightError(f"cannot write the study {path}: {_reason(error)}", hint) from None
    except HeapwrightError:
        db.close() if db else None
        os.close(lock)
        raise
    return Store(path, db, lock)


def read_study(path: Path) -> Store:
    """Opens a study for reading only.

    Raises:
        UsageError: there is no such file, or SQLite cannot open a path of its length.
        HeapwrightError: not a study, another version's, or holding nothing yet.
    """
    if not path.is_file():
        raise UsageError(f"no such study: {path}", "'heapwright tune -- CMD' makes one")
    _check_length(path)
    db = connect_read_only(path)
    try:
        if not check_schema(path, db):
            raise HeapwrightError(f"{path} holds no study yet")
    except HeapwrightError:
        db.close()
        raise
    return Store(path, db, None)
