"""Compares commands in forks with the installed command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import wait_for
from tests.system.conftest import Heapwright

SHOW = 'pwd; read line; echo "$line|$OWN|$(ps -o sid= -p $$ | tr -d " ")"; echo err >&2; exit 7'


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["tune", "--bugdet", "3", "--", "true"],
        ["apply", "no.study"],
        ["measure", "-q", "--", "sh", "-c", "kill -TERM $$"],
        ["measure", "-q", "--", "sh", "-c", "pwd; cat; echo err >&2; exit 7"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_forked_command_prints_what_the_installed_one_prints(words: list[str], tmp_path: Path) -> None:
    forked, installed = (Heapwright(tmp_path, forked=one)(*words) for one in (True, False))
    assert forked == installed


def test_streams_environment_and_session_are_its_own(tmp_path: Path) -> None:
    heapwright = Heapwright(tmp_path, forked=True)
    done = heapwright.piped("one line\n", "measure", "-q", "--env", "OWN=x", "--", "sh", "-c", SHOW)
    folder, line = done.out.splitlines()
    assert (done.status, done.err.splitlines()[-1]) == (7, "err")
    assert folder == str(tmp_path)
    assert line.startswith("one line|x|")
    assert int(line.split("|")[2]) != os.getsid(0)
    assert heapwright("measure", "-q", "--", "sh", "-c", "echo $OWN", env={"OWN": "y"}).out == "y\n"
    assert heapwright("measure", "-q", "--", "sh", "-c", "echo $OWN").out == "\n", "the next one has it no more"


ENDLESS = """
import os, sys
from pathlib import Path
from tests.command_server import SERVER
script = f"echo $$ > {sys.argv[1]}; exec sleep 300"
SERVER.run(["heapwright", "measure", "--", "sh", "-c", script], Path("/"), os.environ)
"""


def test_no_command_outlives_tests_that_are_killed(tmp_path: Path) -> None:
    said = tmp_path / "pid"
    with subprocess.Popen([sys.executable, "-c", ENDLESS, str(said)], cwd=Path(__file__).parents[1]) as tests:
        wait_for(lambda: said.exists() and said.read_text().endswith("\n"))
        tests.kill()
    running = Path(f"/proc/{int(said.read_text())}")
    wait_for(lambda: not running.exists())
