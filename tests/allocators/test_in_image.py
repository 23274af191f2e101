"""Parts of glibc that our libraries need and an image may lack."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from heapwright.allocators.in_image import check_parts, image_allocators, lacking_parts, not_in_image
from heapwright.errors import UsageError
from tests import needs

PLATFORM = "x86_64-glibc"
PARTS = {"libc.so.6": "/lib/libc.so.6", "libpthread.so.0": "/lib/libpthread.so.0", "libdl.so.2": "/lib/libdl.so.2"}


@pytest.fixture
def old_glibc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries of a platform that need the parts which glibc had before 2.34."""
    folder = tmp_path / PLATFORM / "lib"
    folder.mkdir(parents=True)
    (folder.parent / "heapwright-meter").touch()
    gcc = [needs.command("gcc"), "-shared", "-x", "c", "/dev/null", "-x", "none"]
    stubs = []
    for part in ("libpthread.so.0", "libdl.so.2"):
        stubs.append(tmp_path / part)
        subprocess.run([*gcc, f"-Wl,-soname,{part}", "-o", stubs[-1]], check=True)
    for name in ("exgen", "reaper"):
        subprocess.run([*gcc, "-Wl,--no-as-needed", *stubs, "-o", folder / f"lib{name}.so"], check=True)
    monkeypatch.setenv("HEAPWRIGHT_PLATFORMS", str(tmp_path))


@pytest.mark.usefixtures("old_glibc")
def test_an_image_with_all_parts_has_our_allocators() -> None:
    assert lacking_parts(PLATFORM, PARTS) == []
    check_parts(PLATFORM, PARTS)
    assert {"glibc", "exgen", "reaper"} <= set(image_allocators(PLATFORM, PARTS, "2.36"))


@pytest.mark.usefixtures("old_glibc")
def test_an_image_without_a_part_has_none_of_ours() -> None:
    libraries = {name: path for name, path in PARTS.items() if name != "libdl.so.2"}
    assert lacking_parts(PLATFORM, libraries) == ["libdl.so.2"]
    with pytest.raises(UsageError, match=r"the image lacks libdl\.so\.2, which heapwright's libraries need"):
        check_parts(PLATFORM, libraries)
    assert set(image_allocators(PLATFORM, libraries, "2.36")) == {"glibc"}


@pytest.mark.usefixtures("old_glibc")
def test_a_search_says_why_it_leaves_ours_out() -> None:
    assert not_in_image(PLATFORM, PARTS) == {}
    left_out = not_in_image(PLATFORM, {"libc.so.6": "/lib/libc.so.6"})
    assert set(left_out) == {"exgen", "reaper"}
    assert "lacks libpthread.so.0 and libdl.so.2" in left_out["exgen"]
    assert "its programs are static" in not_in_image(PLATFORM, {})["exgen"]


def test_musl_has_no_such_parts() -> None:
    assert lacking_parts("x86_64-musl", {}) == []
