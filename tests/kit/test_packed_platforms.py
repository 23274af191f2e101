"""Tests the archive of other platforms that a wheel has: it is unpacked once, and errors are one line."""

from __future__ import annotations

import io
import os
import shutil
import sys
import tarfile
from pathlib import Path

import pytest

from heapwright.cli.main import main
from heapwright.errors import HeapwrightError
from heapwright.platforms import PACKED, PLATFORMS, find_platform, host_platform

OTHER = next(name for name in PLATFORMS if name != host_platform())


@pytest.fixture
def native(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder `_native` of an installation from a wheel, without a checkout around it."""
    folder = tmp_path / "native"
    folder.mkdir()
    (folder / "heapwright-meter").write_bytes(b"the same for both C libraries")
    monkeypatch.setattr("heapwright.platforms.NATIVE", folder)
    monkeypatch.setattr("heapwright.platforms.__file__", str(tmp_path / "a/b/c"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "d/e"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("HEAPWRIGHT_PLATFORMS", raising=False)
    return folder


def write(native: Path, names: dict[str, bytes | str]) -> None:
    """Writes the archive: name → content, or the name of the file of `native` that is the same."""
    with tarfile.open(native / PACKED, "w:xz") as archive:
        for name, content in names.items():
            entry = tarfile.TarInfo(name)
            entry.mode = 0o755
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.LNKTYPE, content
                archive.addfile(entry)
            else:
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))


def test_the_archive_is_unpacked_once(native: Path, tmp_path: Path) -> None:
    write(native, {f"{OTHER}/heapwright-meter": "heapwright-meter", f"{OTHER}/lib/libexgen.so": b"library"})
    folder = find_platform(OTHER)
    assert folder is not None
    assert folder.is_relative_to(tmp_path / "cache/heapwright/platforms")
    assert (folder / "heapwright-meter").read_bytes() == b"the same for both C libraries"
    assert os.access(folder / "heapwright-meter", os.X_OK)
    assert (folder / "lib/libexgen.so").read_bytes() == b"library"
    (folder / "mark").touch()
    assert find_platform(OTHER) == folder
    assert (folder / "mark").exists()
    assert [path.name for path in folder.parent.parent.iterdir()] == [folder.parent.name], "no draft is left"
    assert find_platform(host_platform()) == native


def test_another_archive_gets_another_folder(native: Path) -> None:
    found = []
    for content in (b"1", b"2"):
        write(native, {f"{OTHER}/heapwright-meter": content})
        found.append(find_platform(OTHER))
    assert found[0] != found[1]


def test_without_an_archive_nothing_is_found(native: Path) -> None:
    assert native.is_dir()
    assert find_platform(OTHER) is None


@pytest.mark.parametrize("damage", ["cut", "none", "outside"])
def test_a_bad_archive_is_one_line(native: Path, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    write(native, {f"{OTHER}/heapwright-meter": os.urandom(9000)})
    data = (native / PACKED).read_bytes()
    if damage == "outside":
        write(native, {f"../{OTHER}/heapwright-meter": b"x"})
    else:
        (native / PACKED).write_bytes(data[:5000] if damage == "cut" else b"text")
    with pytest.raises(HeapwrightError, match="cannot unpack"):
        find_platform(OTHER)
    assert main(["kit", "-o", str(native / "kit.tar"), "--platform", OTHER]) == 1
    assert len(capsys.readouterr().err.strip().splitlines()) <= 2
    assert not list((native.parent / "cache").rglob("heapwright-meter"))


def test_a_cache_that_cannot_be_written_is_one_line(native: Path, tmp_path: Path) -> None:
    write(native, {f"{OTHER}/heapwright-meter": b"x"})
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(HeapwrightError, match="cannot unpack"):
        find_platform(OTHER)


def test_a_user_may_remove_the_cache(native: Path, tmp_path: Path) -> None:
    write(native, {f"{OTHER}/heapwright-meter": b"x"})
    assert find_platform(OTHER) is not None
    shutil.rmtree(tmp_path / "cache")
    folder = find_platform(OTHER)
    assert folder is not None
    assert (folder / "heapwright-meter").is_file()
