"""Tests the folders of a recording: full disks, long names, and remains of a killed process."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from heapwright.files import write_whole
from heapwright.trace.pack import native_program
from heapwright.trace.raw_files import SUFFIX
from heapwright.trace.record import recording_environment
from tests import needs
from tests.processes import wait_for
from tests.trace.recording import HEAPWRIGHT, count_events, heapwright_record

COMMAND = ("--", "perl", "-e", 'my %h; $h{$_} = "x$_" for 1..20000')


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    needs.root("mount a small disk")
    words: list[str | Path] = [needs.command("mount"), "-t", "tmpfs", "-o", "size=256k", "small", folder]
    if subprocess.run(words, check=False, capture_output=True).returncode:
        needs.machine_cannot("mount a small disk")
    yield folder
    subprocess.run(["umount", folder], check=True)


def one_line(said: bytes) -> str:
    """The only line on stderr."""
    assert said.count(b"\n") == 1, said
    return said.decode()


@pytest.mark.parametrize("left", [0, 64 << 10])
def test_a_full_disk_is_the_cause(left: int, disk: Path) -> None:
    """The command is not run: its events would be lost."""
    (disk / "fill").write_bytes(b"x" * ((256 << 10) - left))
    done = heapwright_record("-o", "t.hwt", *COMMAND, folder=disk)
    assert done.returncode == 1
    assert "nothing can be recorded in .: No space left on device" in one_line(done.stderr)
    assert [path.name for path in disk.iterdir()] == ["fill"]


def test_a_disk_that_fills_up_is_the_cause(disk: Path) -> None:
    """The command itself fills it before its child begins a file."""
    shell = "dd if=/dev/zero of=fill bs=4k 2>/dev/null; exec perl -e1"
    static = needs.command("busybox")
    done = heapwright_record("-o", "t.hwt", "--", static, "sh", "-c", shell, folder=disk)
    assert done.returncode == 1
    last = done.stderr.decode().splitlines()[-1]
    assert "nothing can be recorded in .: No space left on device" in last
    assert [path.name for path in disk.iterdir()] == ["fill"]


def test_a_path_that_the_recorder_cannot_use_is_the_cause(tmp_path: Path) -> None:
    folder = tmp_path
    while len(str(folder)) < 3100:
        folder /= "d" * 200
    folder.mkdir(parents=True)
    done = heapwright_record("-o", "t.hwt", *COMMAND, folder=folder)
    assert done.returncode == 2
    assert "bytes; the recorder can use 3,071 (write into a folder with a shorter path)" in one_line(done.stderr)
    assert not list(folder.iterdir())


@pytest.mark.parametrize("name", ["n" * 240 + ".hwt", "記" * 80 + ".hwt"])
def test_a_trace_can_have_a_long_name(name: str, tmp_path: Path) -> None:
    """The names of temporary folders and files beside it are cut."""
    done = heapwright_record("-o", name, *COMMAND, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]
    tool = native_program("heapwright-trace")
    for words in (("expand", name, "t.threads"), ("export-wl", name, "o" * 250)):
        subprocess.run([tool, *words], cwd=tmp_path, check=True, capture_output=True)
    write_whole(tmp_path / ("記" * 85), "x")


def test_recover_removes_what_a_killed_one_left(program: Callable[..., Path], tmp_path: Path) -> None:
    """It leaves the folder of one that lives."""
    cases, raw = program("record_cases", "-fno-builtin"), tmp_path / f".t.hwt.x{SUFFIX}"
    raw.mkdir()
    subprocess.run([cases, "many"], env=recording_environment(raw, None, True, os.environ), check=True)
    (only,) = raw.glob("*.raw")
    for number in range(5):
        shutil.copy(only, raw / f"{number}-0.raw")
    words: list[str | Path] = [HEAPWRIGHT, "record", "--recover", raw, "-o", "t.hwt"]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.DEVNULL) as killed:
        wait_for(lambda: any(tmp_path.glob(".t.hwt.*.packing/*.hwt")))
        killed.send_signal(signal.SIGKILL)
    assert list(tmp_path.glob(".t.hwt.*.packing"))
    alive = tmp_path / ".t.hwt.alive.packing"
    alive.mkdir()
    held = os.open(alive, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    done = heapwright_record("--recover", raw, "-o", "t.hwt", folder=tmp_path)
    os.close(held)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.glob(".*")] == [alive.name]
    assert count_events(tmp_path / "t.hwt") > 1_000_000


def test_an_export_is_whole_or_not_there(disk: Path, tmp_path: Path) -> None:
    """A running program may have the earlier library in memory, so it is replaced and not overwritten."""
    words = ("--export", "out", "--sample", "8", "-o", "/raw")
    done = heapwright_record(*words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    library = tmp_path / "out/libheapwright-sample.so"
    before = library.stat().st_ino
    assert heapwright_record(*words, folder=tmp_path).returncode == 0
    assert library.stat().st_ino != before
    (disk / "fill").write_bytes(b"x" * (250 << 10))
    done = heapwright_record(*words, folder=disk)
    assert done.returncode == 1
    assert "out cannot be written: No space left on device (free some space)" in one_line(done.stderr)
    assert not list((disk / "out").iterdir())
    done = heapwright_record(*words[:-1], "/" + "d/" * 1600, folder=tmp_path)
    assert done.returncode == 2
    assert "the recorder can use 3,071" in one_line(done.stderr)
