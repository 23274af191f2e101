"""Tests how an experiment starts the `tune` of a search, and how long it waits for its end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from heapwright.experiment.definition import Definition, PlannedSearch, Program
from heapwright.experiment.run import start_search
from heapwright.workload import verb_process
from heapwright.workload.server import STOP_S

PLANNED = PlannedSearch(Program("p", ["true"]), "random", 1, 3)


def test_ctrl_c_at_the_terminal_does_not_reach_a_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The experiment interrupts it. Two interruptions would break off its end, which may wait for its server."""
    monkeypatch.setattr(verb_process, "_TIED", "import time; time.sleep(60)")
    definition = Definition(["random"], [PLANNED.program], [3], 1)
    with start_search(PLANNED, definition, tmp_path, tmp_path) as process:
        assert os.getsid(process.pid) == process.pid
        process.kill()


def test_a_search_has_time_to_stop_its_server() -> None:
    """The server may need its stop signal and SIGKILL, each with its own time limit."""
    assert verb_process.PATIENCE_S > 2 * STOP_S
