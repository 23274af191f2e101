"""Compares commands in forks with the installed command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

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
