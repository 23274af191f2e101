"""Programs of tests are built once, and again when something that they depend on has changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import built_programs


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one program, and an empty store."""
    monkeypatch.setattr(built_programs, "KEPT", tmp_path / "kept")
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "one.c").write_text("int main(void) { return STATUS; }\n")
    return folder


def test_a_program_is_built_once(sources: Path, tmp_path: Path) -> None:
    first = built_programs.build(sources, "one", ["-DSTATUS=3"], tmp_path)
    built = first.stat().st_mtime_ns
    assert subprocess.run([first], check=False).returncode == 3
    assert built_programs.build(sources, "one", ["-DSTATUS=3"], tmp_path / "another session") == first
    assert first.stat().st_mtime_ns == built


def test_a_change_makes_another_program(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = {built_programs.build(sources, "one", ["-DSTATUS=3"], tmp_path)}
    paths.add(built_programs.build(sources, "one", ["-DSTATUS=4"], tmp_path))
    (sources / "one.c").write_text("int main(void) { return STATUS + 1; }\n")
    paths.add(built_programs.build(sources, "one", ["-DSTATUS=3"], tmp_path))
    monkeypatch.setattr(built_programs, "_headers", lambda: b"changed")
    paths.add(built_programs.build(sources, "one", ["-DSTATUS=3"], tmp_path))
    monkeypatch.setattr(built_programs, "_versions", lambda _: b"newer")
    paths.add(built_programs.build(sources, "one", ["-DSTATUS=3"], tmp_path))
    assert len(paths) == 5


def test_programs_that_link_our_files_are_not_kept(sources: Path, tmp_path: Path) -> None:
    session = tmp_path / "session"
    path = built_programs.build(sources, "one", ["-DSTATUS=0", "-L."], session)
    assert path.is_relative_to(session)


def test_a_program_that_does_not_compile_leaves_no_file(sources: Path, tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        built_programs.build(sources, "one", [], tmp_path)
    assert [path.name for path in (tmp_path / "kept").rglob("*") if path.is_file()] == [".lock"]
