"""Tests the study file: committed data survive any event, and files that are not studies stay untouched."""

from __future__ import annotations

import ast
import errno
import fcntl
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heapwright
from heapwright.errors import HeapwrightError
from heapwright.interleaving.records import StoredRun
from heapwright.study.meta import StudyMeta
from heapwright.study.store import Store, open_writable_study, read_study
from tests import needs

SRC = Path(heapwright.__file__).parents[1]
NOW = "2026-01-01T00:00:00.000+00:00"


def stored(block: int, config: int = 1, **more: object) -> StoredRun:
    fields: dict[str, object] = {
        "phase": "search", "block": block, "input": "default", "config": config, "elapsed_s": 0.5, "failure": "",
        "digest": "d", "metrics": {"cpu_s": 0.1 + block}, "extra": {"threads": 1},
    }  # fmt: skip
    return StoredRun(**{**fields, **more})  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.study"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with open_writable_study(path) as found:
        found.config("toy", {}, {})
        yield found


# stored data are read back unchanged


def test_runs_come_back_as_they_were(store: Store, path: Path) -> None:
    runs = [
        stored(0),
        stored(1, metrics={"cpu_s": None, "wall_s": 0.1 + 0.2, "peak_rss_bytes": 2.0**40}),
        stored(2, failure="killed by SIGSEGV", metrics={}, digest=""),
        stored(3, series={"t": [0.0, 0.25], "rss": [1.0, 2.0], "heap": [1.0, 2.0], "vm": [3.0, 4.0]}),
        stored(4, input="größer 'input'; --", extra={"warnings": ["a", "b"], "maps": None}),
    ]
    for run in runs:
        store.add_run(run, NOW)
        assert store.find_run(run.phase, run.block, run.input, run.config) == run
    store.close()
    with read_study(path) as again:
        assert again.runs() == runs
        assert again.runs("confirm") == []
        assert again.find_run("search", 9, "default", 1) is None


@settings(max_examples=40)
@given(st.floats(0, 1e24, exclude_max=True))
def test_a_number_survives_to_the_last_bit(number: float) -> None:
    """Resuming replays the store: a strategy must receive exactly the same observations as before."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder, open_writable_study(Path(folder) / "s.study") as store:
        store.config("toy", {}, {})
        store.add_run(stored(0, metrics={"cpu_s": number}), NOW)
        (run,) = store.runs()
        assert run.metrics == {"cpu_s": number}


def test_a_place_holds_one_run(store: Store) -> None:
    store.add_run(stored(0), NOW)
    with pytest.raises(sqlite3.IntegrityError):
        store.add_run(stored(0, digest="another"), NOW)
    assert [r.digest for r in store.runs()] == ["d"]


def test_configurations_with_the_same_environment_are_one(store: Store) -> None:
    first = store.config("toy", {"a": "1"}, {"TOY": "a=1"})
    assert store.config("toy", {"a": "1", "b": "2"}, {"TOY": "a=1"}) == first
    other = store.config("toy", {"a": "2"}, {"TOY": "a=2"})
    assert other.id != first.id
    assert store.config("other", {"a": "1"}, {"TOY": "a=1"}).id not in (first.id, other.id)
    assert store.config_by_id(1).is_default
    store.set_effective(other.id, {"a": "2"})
    assert store.config("toy", {"a": "2"}, {"TOY": "a=2"}).effective == {"a": "2"}


def test_the_order_of_variables_makes_no_difference(store: Store) -> None:
    assert store.config("toy", {}, {"A": "1", "B": "2"}).id == store.config("toy", {}, {"B": "2", "A": "1"}).id


def test_meta_values_are_replaced_together(store: Store) -> None:
    store.update(phase="search", warm=[{"a": "ü"}], plan={"total_s": 0.1})
    assert store.meta.phase == "search"
    store.update(phase="confirm")
    assert (store.meta.phase, store.meta.warm, store.meta.plan) == ("confirm", [{"a": "ü"}], {"total_s": 0.1})
    assert store.meta.host == {}
    with pytest.raises(TypeError):
        store.update(phase="done", plan=object())
    assert store.meta.phase == "confirm"


def test_a_fact_that_no_study_has_is_refused(store: Store) -> None:
    with pytest.raises(AttributeError, match="pahse"):
        store.update(pahse="search")


def test_a_study_without_runs_can_be_removed(path: Path) -> None:
    with open_writable_study(path) as store:
        store.references.mkdir()
        store.remove_if_empty()
    assert list(path.parent.iterdir()) == []
    with open_writable_study(path) as store:
        store.config("toy", {}, {})
        store.add_run(stored(0), NOW)
        store.remove_if_empty()
    assert path.exists()


# one writer, any number of readers


def test_a_second_writer_is_refused_in_one_line(store: Store, path: Path) -> None:
    assert store.runs() == []
    with pytest.raises(HeapwrightError) as caught:
        open_writable_study(path)
    assert caught.value.message == f"the study {path} is in use by another heapwright"
    assert caught.value.hint == "wait for it, or name another file with --study"


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_named(path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Regression: it was 'in use by another heapwright' for ever."""

    def no_locks(_file: int, _how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(HeapwrightError, match=r"the file system of .*s\.study has no locks") as caught:
        open_writable_study(path)
    assert caught.value.hint == "name a file on a local disk with --study"
    assert not path.exists()


def test_a_damaged_study_gives_one_line_when_it_is_written(path: Path) -> None:
    """Regression: a traceback, sqlite3.DatabaseError."""
    with open_writable_study(path) as store:
        store.config("toy", {}, {})
        for block in range(200):
            store.add_run(stored(block), NOW)
    data = bytearray(path.read_bytes())
    data[4096:] = bytes([7]) * (len(data) - 4096)  # all pages but that of the schema
    path.write_bytes(data)
    with open_writable_study(path) as store:
        for write in (lambda: store.add_run(stored(200), NOW), store.forget_runs, store.remove_if_empty):
            with pytest.raises(HeapwrightError, match=r"s\.study is damaged: database disk image is malformed"):
                write()


def test_readers_see_what_is_committed_while_it_is_written(store: Store, path: Path) -> None:
    with read_study(path) as reader:
        for block in range(3):
            store.add_run(stored(block), NOW)
            assert len(reader.runs()) == block + 1


def test_a_reader_leaves_no_file_beside_the_study(path: Path) -> None:
    with open_writable_study(path) as store:
        store.config("toy", {}, {})
        store.add_run(stored(0), NOW)
    before = path.read_bytes()
    with read_study(path) as reader:
        assert reader.runs() == [stored(0)]
        assert [p.name for p in path.parent.iterdir()] == [path.name]
        with open_writable_study(path) as store:  # a writer that begins meanwhile is not disturbed
            store.add_run(stored(1), NOW)
        assert reader.runs() == [stored(0)], "it is a snapshot"
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() != before
    with read_study(path) as reader:
        assert len(reader.runs()) == 2


def test_a_reader_sees_the_runs_of_a_writer_that_was_killed(path: Path) -> None:
    """They are in the log beside the study only, and stay there."""
    with open_writable_study(path) as store:
        store.config("toy", {}, {})
        store.add_run(stored(0), NOW)
        copies = {p.name: p.read_bytes() for p in path.parent.iterdir()}
    assert f"{path.name}-wal" in copies
    for name, data in copies.items():
        (path.parent / name).write_bytes(data)
    with read_study(path) as reader:
        assert reader.runs() == [stored(0)]
    with open_writable_study(path) as store:
        assert store.runs() == [stored(0)]
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_refused_or_ended_writer_lets_the_next_one_in(path: Path) -> None:
    open_writable_study(path).close()
    with open_writable_study(path), pytest.raises(HeapwrightError):
        open_writable_study(path)
    open_writable_study(path).close()


# files that are not studies


def refused(path: Path, message: str) -> None:
    """Both ways of opening refuse the file with this message, and neither changes it."""
    before = path.read_bytes()
    for way in (open_writable_study, read_study):
        with pytest.raises(HeapwrightError) as caught:
            way(path)
        assert re.search(message, caught.value.message), caught.value.message
        assert "\n" not in caught.value.message
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_text_is_not_a_study(path: Path) -> None:
    path.write_text("some notes of mine, longer than an SQLite header would be, so that it is looked at\n" * 20)
    refused(path, r"s\.study is not a heapwright study$")


def test_another_programs_database_is_left_alone(path: Path) -> None:
    db = sqlite3.connect(path)
    with db:
        db.execute("CREATE TABLE bookmarks (url TEXT)")
    db.close()
    refused(path, r"s\.study is not a heapwright study$")


def test_another_versions_study_names_both_versions(path: Path) -> None:
    with open_writable_study(path) as store:
        store.update(version="9.8.7")
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = DELETE")
    db.execute("PRAGMA user_version = 42")
    db.close()
    refused(path, rf"made by heapwright 9\.8\.7 \(study format 42\); this is {re.escape(heapwright.__version__)}")


def test_an_empty_file_becomes_a_study(path: Path) -> None:
    path.touch()
    with pytest.raises(HeapwrightError, match="holds no study yet"):
        read_study(path)
    with open_writable_study(path) as store:
        assert store.runs() == []


def test_a_missing_study_or_folder_is_an_error(path: Path) -> None:
    with pytest.raises(HeapwrightError, match=r"no such study: .*s\.study \('heapwright tune -- CMD' makes one\)"):
        read_study(path)
    with pytest.raises(HeapwrightError, match=r"cannot open the study .*/no/s\.study: No such file or directory"):
        open_writable_study(path.parent / "no" / path.name)
    with pytest.raises(HeapwrightError, match=r"cannot open the study .*: Is a directory"):
        open_writable_study(path.parent)


def test_a_path_that_sqlite_cannot_open_is_named_as_the_cause(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["d" * 200] * 3)
    folder.mkdir(parents=True)
    size = len(str(folder / "s.study"))
    for verb in (open_writable_study, read_study):
        (folder / "s.study").touch()
        with pytest.raises(HeapwrightError, match=f"has {size} bytes; SQLite can open 504 \\(name a file") as caught:
            verb(folder / "s.study")
        assert caught.value.status == 2


# disks


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    needs.root("mount a small disk")
    mount = needs.command("mount")
    if subprocess.run([mount, "-t", "tmpfs", "-o", "size=256k", "small", folder], stderr=subprocess.DEVNULL).returncode:
        needs.machine_cannot("mount a small disk")
    yield folder
    subprocess.run(["umount", folder], check=True)


def add_runs(store: Store, count: int) -> None:
    for block in range(count):
        store.add_run(stored(block, extra={"words": "x" * 400}), NOW)


def test_a_full_disk_holds_no_new_study(disk: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        (disk / "fill").write_bytes(b"x" * (1 << 20))
    path = disk / "s.study"
    with pytest.raises(HeapwrightError) as caught:
        open_writable_study(path)
    assert caught.value.message == f"cannot write the study {path}: the disk is full"
    assert caught.value.hint == "free some space, or name a file on another disk with --study"


def test_a_full_disk_leaves_what_was_there(disk: Path) -> None:
    path = disk / "s.study"
    with open_writable_study(path) as store:
        store.config("toy", {}, {})
        with pytest.raises(HeapwrightError) as caught:
            add_runs(store, 10_000)
    assert re.fullmatch(r"cannot write the study \S+/s\.study: the disk is full", caught.value.message)
    assert "free some space" in caught.value.hint
    with read_study(path) as again:
        kept = [r.block for r in again.runs()]
    assert len(kept) > 10
    assert kept == list(range(len(kept)))
    subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)
    with open_writable_study(path) as store:
        store.add_run(stored(len(kept)), NOW)
        assert len(store.runs()) == len(kept) + 1


def test_a_disk_that_is_full_from_the_start(disk: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        (disk / "fill").write_bytes(b"x" * (1 << 20))
    with pytest.raises(HeapwrightError, match=r"cannot (write|open) the study .*s\.study: "):
        open_writable_study(disk / "s.study")


def test_a_study_can_be_read_where_nothing_can_be_written(disk: Path) -> None:
    path = disk / "s.study"
    with open_writable_study(path) as store:
        store.config("toy", {}, {})
        store.add_run(stored(0), NOW)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    with read_study(path) as again:
        assert len(again.runs()) == 1
    with pytest.raises(HeapwrightError, match=r"cannot open the study .*: Read-only file system"):
        open_writable_study(path)
    with pytest.raises(HeapwrightError, match=r"cannot open the study .*: Read-only file system"):
        open_writable_study(disk / "new.study")


# sudden death

WRITER = """
import sys
from pathlib import Path
from heapwright.study.store import StoredRun, open_writable_study
with open_writable_study(Path(sys.argv[1])) as store:
    store.config("toy", {}, {})
    for block in range(len(store.runs()), 10**9):
        extra = {"pad": "x" * (block * 37 % 3000)}
        run = StoredRun("search", block, "default", 1, 0.1, "", "d", {"cpu_s": block}, extra)
        store.add_run(run, "now")
        print(block, flush=True)
"""


def test_killed_while_writing_nothing_committed_is_lost(path: Path) -> None:
    committed = -1
    for kill_after in (1, 7, 30, 64, 3):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, path],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SRC)},
        )
        assert process.stdout
        for line in process.stdout:
            assert int(line) == committed + 1, "something that was committed is gone"
            committed = int(line)
            kill_after -= 1
            if kill_after == 0:
                process.send_signal(signal.SIGKILL)
                break
        for line in process.stdout:  # runs committed before the signal
            committed = int(line)
        process.wait()
        process.stdout.close()
        assert process.returncode == -signal.SIGKILL
        with read_study(path) as store:
            blocks = [r.block for r in store.runs()]
        assert blocks == list(range(len(blocks)))
        assert len(blocks) - 1 in (committed, committed + 1)  # one may be committed and not yet printed
        committed = len(blocks) - 1
    assert committed >= 100


def test_only_fields_of_a_study_are_stored() -> None:
    """An unknown field is an error only when the statement runs, which few studies may do."""
    stored: dict[str, list[str | None]] = {}
    for path in Path(heapwright.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and re.fullmatch(r"(.*\.)?_?store\.update", ast.unparse(node.func)):
                stored.setdefault(path.name, []).extend(one.arg for one in node.keywords)
    names = {name for found in stored.values() for name in found} - {None}  # None: **values
    assert "fixed_time" in names
    assert names <= {*StudyMeta.__struct_fields__}
