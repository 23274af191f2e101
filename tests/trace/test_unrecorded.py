"""Tests that `record` names programs that start without the recorder."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from heapwright.trace.process_ends import noting_ends
from heapwright.trace.record import recording_environment
from heapwright.trace.unrecorded import program_without_recorder, warn_of_unrecorded
from tests.trace.recording import HEAPWRIGHT

# A program that allocates before it starts another one.
PERL = "$x = 'x' x 100; "


def said_by(folder: Path, *command: str) -> str:
    """What `record` of a command says on stderr."""
    words: list[str | Path] = [HEAPWRIGHT, "record", "-q", "-o", "t.hwt", "--", *command]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True, timeout=60).stderr


@pytest.mark.parametrize(
    "start",
    ["env -i sleep 2", "env -i A=B sleep 2", "env -u HEAPWRIGHT_RECORD sleep 2", "env -u LD_PRELOAD sleep 2"],
)
def test_a_program_with_a_cleared_environment_is_named(start: str, tmp_path: Path) -> None:
    said = said_by(tmp_path, *start.split())
    assert "warning: nothing is recorded of /usr/bin/sleep (1 process), started without the environment" in said
    assert said.count("\n") == 1


def test_a_program_with_a_name_that_is_no_text_is_named(tmp_path: Path) -> None:
    program = os.fsencode(tmp_path) + b"/sl\xe4ep"
    shutil.copy(b"/usr/bin/sleep", program)
    words: list[str | bytes | Path] = [HEAPWRIGHT, "record", "-q", "-o", "t.hwt", "--", "env", "-i", program, "2"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, check=True, timeout=60)
    assert b"ep (1 process), started without" in done.stderr
    assert b"Traceback" not in done.stderr


def test_each_program_is_named_once_with_its_number(tmp_path: Path) -> None:
    said = said_by(tmp_path, "sh", "-c", "for i in 1 2; do env -i sleep 2; done; :")
    assert "/usr/bin/sleep (2 processes)" in said
    assert said.count("nothing is recorded") == 1


@pytest.mark.parametrize(
    "command",
    [
        ("perl", "-e", PERL + "exec 'sleep', '0.1'"),
        ("perl", "-e", PERL + "system 'sleep 0.1'; kill TERM => fork || sleep 9"),
        ("sh", "-c", "sleep 0.1; exec ls"),
    ],
)
def test_recorded_programs_are_not_named(command: tuple[str, ...], tmp_path: Path) -> None:
    assert "nothing is recorded" not in said_by(tmp_path, *command)


def test_another_process_with_the_id_is_not_meant(tmp_path: Path) -> None:
    """A container has ids of its own, and an id is used again."""
    env = recording_environment(tmp_path, None, True, os.environ)
    subprocess.run(["perl", "-e", PERL], env=env, check=True)
    (raw,) = tmp_path.glob("*.raw")
    other = tmp_path / "1-0.raw"
    content = bytearray(raw.read_bytes())
    content[24:32] = os.getppid().to_bytes(8, "little")
    other.write_bytes(content)
    assert program_without_recorder(other) == ""
    assert program_without_recorder(raw) == ""


@pytest.mark.parametrize("name", ["1-0.raw", "7-x.raw", "x.raw"])
def test_pipes_and_other_names_in_the_folder_are_left_alone(name: str, tmp_path: Path) -> None:
    """Other users may make files in the folder of root."""
    (tmp_path / "7-1.raw").touch()
    with noting_ends(tmp_path):
        os.mkfifo(tmp_path / name)
        os.close(os.open(tmp_path / name, os.O_RDWR))
    assert program_without_recorder(tmp_path / name) == ""
    warn_of_unrecorded({tmp_path / name: "/bin/prog"})
