"""Files the command line writes are whole or not there."""

from __future__ import annotations

import argparse
import errno
import json
import math
import os
from pathlib import Path

import pytest

from heapwright.cli.common import write_json
from heapwright.cli.output_files import json_file, output_file, output_folder, refuse_study
from heapwright.errors import UsageError
from heapwright.files import write_whole
from heapwright.study.store import open_writable_study


def test_json_has_a_schema_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_json(str(tmp_path / "r.json"), {"a": [1, None]})
    assert json.loads((tmp_path / "r.json").read_text()) == {"schema_version": 1, "a": [1, None]}
    write_json("-", {"b": "ü"})
    assert json.loads(capsys.readouterr().out) == {"schema_version": 1, "b": "ü"}


def test_a_value_that_json_cannot_hold_leaves_the_file_unchanged(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text("before")
    with pytest.raises(ValueError, match="JSON"):
        write_json(str(tmp_path / "r.json"), {"a": math.inf})
    assert (tmp_path / "r.json").read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_is_replaced_at_once(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_text("before")
    with path.open() as reader:
        write_whole(path, "after")
        assert reader.read() == "before", "a reader of the old file goes on reading it"
    assert path.read_text() == "after"
    assert [p.name for p in tmp_path.iterdir()] == ["r"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_devices_and_pipes_are_written_in_place(tmp_path: Path) -> None:
    write_whole(Path("/dev/null"), "x")
    assert Path("/dev/null").is_char_device()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, "through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)


def test_a_name_with_a_slash_at_its_end_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="names a directory"):
        output_file(f"{tmp_path}/new/")


def test_no_option_overwrites_a_study(tmp_path: Path) -> None:
    """Regression: `report -o a.study b.study` replaced a.study by a page."""
    study = tmp_path / "a.study"
    with open_writable_study(study):
        pass
    for read in (output_file, json_file):
        with pytest.raises(argparse.ArgumentTypeError, match=r"a\.study is a study or another database"):
            read(str(study))
    (tmp_path / "page.html").write_text("SQLite format 3")
    assert output_file(f"{tmp_path}/page.html")


def test_no_option_names_the_study_that_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refuse_study(Path("a.study"), "-", None, Path("b.html"))
    for output in ("a.study", tmp_path / "a.study"):
        with pytest.raises(UsageError, match="is the study of this command"):
            refuse_study(Path("a.study"), None, output)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        write_whole(tmp_path / "none" / "r", "x")
    assert "none" in str(caught.value.filename)


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: Path, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")  # as `write` does: without a name

    with pytest.raises(OSError, match="No space left") as caught:
        write_whole(Path("/dev/full"), "x")
    assert caught.value.filename == "/dev/full"
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_whole(tmp_path / "r", "x")
    assert caught.value.filename == str(tmp_path / "r")
    assert not list(tmp_path.iterdir())


def test_a_folder_to_write_into_is_checked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    assert output_folder(str(tmp_path / "new")) == tmp_path / "new"
    assert output_folder(str(tmp_path)) == tmp_path
    with pytest.raises(argparse.ArgumentTypeError, match="file is not a directory"):
        output_folder(str(tmp_path / "file"))
    monkeypatch.setattr(os, "access", lambda *_: False)
    for name in ("", "new"):
        with pytest.raises(argparse.ArgumentTypeError, match="no files can be created in"):
            output_folder(str(tmp_path / name))
