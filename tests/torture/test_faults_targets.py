"""Tests targets that detach, close, limit, hide or sandbox themselves (tests/programs/stubborn.c).

Under `run`, `measure`, `record` and `tune` they give the same output and exit status as without heapwright. Nothing
hangs, and no process remains.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import needs
from tests.processes import wait_for
from tests.torture.commands import SECONDS, STUDY, Marked

ACTS = ("daemon", "closes", "limits", "drops", "sandbox", "hides", "session", "no-proc", "no-folder", "execs")
STATUS = 7
TUNE = ["tune", *STUDY]


@pytest.fixture
def heapwright(tmp_path: Path) -> Iterator[Marked]:
    """The installed command; kills all remaining processes at the end."""
    tmp_path.chmod(0o777)  # for targets that change their user
    started = Marked(tmp_path)
    yield started
    started.end_all()


@pytest.fixture
def stubborn(program: Callable[..., Path]) -> Callable[[str], list[str]]:
    """Makes the command of an act; skips acts that this machine does not permit."""
    path = str(program("stubborn", "-fno-builtin"))

    def command(act: str, status: int = STATUS) -> list[str]:
        if act in ("drops", "no-proc"):
            needs.root(f"run the act '{act}'")
        return [path, act, str(status)]

    return command


def alone(command: list[str], folder: Path) -> tuple[int, str]:
    """Runs the command without heapwright; returns its exit status and output."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode == 77:
        needs.machine_cannot("let a process do that")
    return done.returncode, done.stdout


@pytest.mark.parametrize("act", ACTS)
def test_a_stubborn_program_is_measured(act: str, heapwright: Marked, stubborn: Callable[[str], list[str]]) -> None:
    command = stubborn(act)
    expected = alone(command, heapwright.folder)
    done = heapwright("measure", "--json", "m.json", "-q", "--", *command)
    assert (done.status, done.out) == expected, done.err
    assert "Traceback" not in done.err
    (run,) = json.loads((heapwright.folder / "m.json").read_text())["runs"]
    assert run["peak_rss_bytes"] > (40 << 20 if act == "daemon" else 8 << 20)
    assert run["wall_s"] < SECONDS
    wait_for(lambda: not heapwright.left(), 10)


@pytest.mark.parametrize("act", ACTS)
def test_a_stubborn_program_is_recorded(act: str, heapwright: Marked, stubborn: Callable[[str], list[str]]) -> None:
    command = stubborn(act)
    expected = alone(command, heapwright.folder)
    done = heapwright("record", "-o", "t.hwt", "--", *command)
    assert (done.status, done.out) == expected, done.err
    assert "Traceback" not in done.err
    told = heapwright("info", "t.hwt", "--json", "-")
    assert told.status == 0, told.err
    assert json.loads(told.out)["allocations"] >= 12001
    wait_for(lambda: not heapwright.left(), 10)
    assert not list(heapwright.folder.glob(".*")), "it left something behind"


@pytest.mark.parametrize("act", [needs.long_unless(act == "closes", act) for act in ACTS])
def test_a_stubborn_program_is_tuned(act: str, heapwright: Marked, stubborn: Callable[..., list[str]]) -> None:
    command = stubborn(act, 0)
    alone(command, heapwright.folder)
    done = heapwright(*TUNE, "--study", "s.study", "--json", "t.json", "--", *command)
    assert done.status == 0, done.err
    assert "Traceback" not in done.err
    found = json.loads((heapwright.folder / "t.json").read_text())
    assert found["baseline"]["peak_heap_bytes"]["median"] > 8 << 20
    wait_for(lambda: not heapwright.left(), 10)
    ran = heapwright("run", "s.study", "--", *stubborn(act))
    assert (ran.status, ran.out) == alone(stubborn(act), heapwright.folder)


@pytest.mark.long  # the meter waits several times for some seconds before it kills the target
def test_a_program_that_ignores_signals_is_ended_in_time(
    heapwright: Marked, stubborn: Callable[[str], list[str]]
) -> None:
    done = heapwright("measure", "--timeout", "1", "--json", "m.json", "-q", "--", *stubborn("endures"))
    assert done.status == 128 + signal.SIGKILL
    (run,) = json.loads((heapwright.folder / "m.json").read_text())["runs"]
    assert run["timed_out"]
    tuned = heapwright(*TUNE, "--timeout", "1", "--study", "s.study", "--", *stubborn("endures"))
    assert tuned.status == 1
    assert "timed out after 1 s" in tuned.err
    assert not heapwright.left()


def test_a_program_that_ignores_signals_ends_with_heapwright(
    heapwright: Marked, stubborn: Callable[[str], list[str]], long: bool
) -> None:
    """When `tune` is killed, even while the meter starts, its targets end too, whichever signals they ignore."""
    for _ in range(20 if long else 3):
        process = heapwright.start(*TUNE, "--", *stubborn("endures"))
        wait_for(lambda: len(heapwright.left()) > 2)
        process.kill()
        process.communicate()
        wait_for(lambda: not heapwright.left(), 20)
