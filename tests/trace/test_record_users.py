"""Records services that root starts and that change to another user, as slapd and squid do."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from heapwright.trace.raw_files import raw_files_in, raw_folder
from tests import needs
from tests.trace.recording import HEAPWRIGHT

# It changes to nobody and becomes a daemon, which allocates for half a second.
SERVICE = """import os, time
os.setgroups([]), os.setgid(65534), os.setuid(65534)
if os.fork() == 0:
    os.setsid()
    blocks = [bytearray(41000) for _ in range(500)]
    time.sleep(0.5)
"""
as_root = needs.only_where(os.geteuid() == 0, "change to another user (root only)")


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that every user can enter; pytest's own are private."""
    folder = Path(tempfile.mkdtemp(prefix="heapwright-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def record(folder: Path) -> subprocess.CompletedProcess[str]:
    words: list[str | Path] = [HEAPWRIGHT, "record", "-o", "t.hwt", "--", sys.executable, "-c", SERVICE]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True, timeout=60)


@as_root
def test_a_daemon_of_another_user_is_recorded(reachable: Path) -> None:
    said = record(reachable).stderr
    assert "nothing is recorded" not in said
    assert len(list((reachable / "t.processes").glob("*.hwt"))) == 1


@as_root
def test_a_daemon_that_may_not_write_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    said = record(tmp_path).stderr
    assert "heapwright: warning: nothing is recorded of process " in said
    assert f": it did not call malloc, or its user may not make files in {tmp_path}\n" in said


def test_only_plain_files_of_a_folder_are_read(tmp_path: Path) -> None:
    """Other users may write to the folder of root."""
    folder = raw_folder(tmp_path / "t.hwt")
    assert stat.S_IMODE(folder.stat().st_mode) == (0o1733 if os.geteuid() == 0 else 0o700)
    (folder / "2-0.raw").touch()
    (folder / "1-0.raw").touch()
    (folder / "3-0.raw").symlink_to("/etc/shadow")
    os.mkfifo(folder / "4-0.raw")
    assert raw_files_in(folder) == [folder / "1-0.raw", folder / "2-0.raw"]
