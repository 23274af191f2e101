"""Tests the readings of a running tree of processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from heapwright.measure.process_tree import ProcessTree
from tests.processes import wait_for

BURN = "while True: pass"


@pytest.mark.parametrize("readable", [True, False])
def test_the_meters_helpers_are_left_out_and_the_program_is_not(
    readable: bool, meter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The programs of root's processes, as in a container, cannot be read."""

    def refuse(_path: Path) -> Path:
        raise PermissionError

    words: list[str | Path] = [meter, "--die-with-parent", "--backend", "poll", "--", sys.executable, "-c", BURN]
    if not readable:
        monkeypatch.setattr(Path, "readlink", refuse)
    with subprocess.Popen(words) as process:
        try:
            tree = ProcessTree(process.pid)
            wait_for(lambda: tree.cpu_s() > 0)
            names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in tree.members()]
        finally:
            process.terminate()
    assert names == [Path(sys.executable).name[:15]]  # as long as a name may be
