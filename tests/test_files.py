"""Tests folders for one run: they go with their block, and those of killed processes with a later run."""

from __future__ import annotations

import os
import time
from pathlib import Path

from heapwright.files import remove_abandoned, scratch_folder


def aged(folder: Path) -> Path:
    """Make a folder as old as one that its process has locked long ago."""
    long_ago = time.time() - 3600
    os.utime(folder, (long_ago, long_ago))
    return folder


def test_folders_of_killed_processes_are_removed_and_no_others(tmp_path: Path) -> None:
    abandoned = tmp_path / "heapwright-tmp-abcd_123"
    kept = [tmp_path / name for name in ("heapwright-tmp-abcd_123.study", "heapwright-abcd_123", "new")]
    for folder in (abandoned, *kept):
        folder.mkdir()
        (folder / "ledger.json").write_text("{}")
        aged(folder)
    young = tmp_path / "heapwright-tmp-aaaaaaaa"
    young.mkdir()
    link = tmp_path / "heapwright-tmp-bbbbbbbb"
    link.symlink_to(kept[2])
    with scratch_folder(tmp_path) as mine:
        (mine / "pid").touch()
        aged(mine)
        remove_abandoned(tmp_path)
        assert (mine / "pid").exists(), "its process runs"
        assert not abandoned.exists()
        assert all((folder / "ledger.json").exists() for folder in kept)
        assert young.exists()
        assert link.is_symlink()
    assert not mine.exists()
