"""Runs the command with limits, or the installed command in a terminal, for the hostile tests."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.command_server import SERVER

HEAPWRIGHT = Path(sys.executable).parent / "heapwright"
SECONDS = 60  # far more than any command here takes, so only an endless loop reaches it
MEMORY = 1500 << 20  # RLIMIT_DATA in bytes: imports and drawing a report take about 300 MiB
# Clears the screen, sets the title, makes the terminal type into the shell, reverses text, and
# fakes a message of ours.
NAME = "n\x1b[2J\x1b]0;owned\x07\x1b[6n\u202egnp.\x9b31m\nheapwright: all is well\r"


class Done(NamedTuple):
    """An ended command."""

    status: int
    out: str
    err: str


def run(*words: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> Done:
    """Runs the command with limits on memory and time, in a fork unless variables are given.

    Args:
        words: the command's arguments.
        cwd: its working directory.
        env: variables added to its environment, which the interpreter may read when it starts.
    """
    line = [str(HEAPWRIGHT), *map(str, words)]
    if env:
        limited = ["prlimit", f"--data={MEMORY}", *line]
        done = subprocess.run(
            limited, cwd=cwd, env={**environment(), **env}, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=SECONDS, check=False,
        )  # fmt: skip
        status, out, err = done.returncode, done.stdout, done.stderr
    else:
        status, out, err = SERVER.run(line, cwd, environment(), "", SECONDS, MEMORY)
    return Done(status, out.decode(errors="replace"), err.decode(errors="replace"))


def environment() -> dict[str, str]:
    """Our environment without the variables that change messages."""
    drop = ("GLIBC_TUNABLES", "MALLOC_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "HEAPWRIGHT_", "EXGEN", "REAPER")
    return {k: v for k, v in os.environ.items() if not k.startswith(drop)}


def refused(done: Done, statuses: tuple[int, ...] = (1, 2)) -> str:
    """Checks that a command refused its input in one line; returns that line."""
    assert "Traceback" not in done.err, done.err
    assert done.status in statuses, (done.status, done.err)
    lines = done.err.splitlines()
    assert lines, "nothing was said"
    assert lines[-1].startswith("heapwright: "), done.err
    assert len(lines[-1]) < 5000
    return lines[-1]


def on_a_terminal(*words: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """Runs the installed command in a terminal; returns everything that it writes there.

    Args:
        words: the command's arguments.
        cwd: its working directory.
        env: variables added to its environment.
    """
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [HEAPWRIGHT, *words],
        cwd=cwd,
        env={**environment(), "TERM": "xterm-256color", "COLUMNS": "4000", **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=its,
        stderr=its,
        start_new_session=True,
    )
    os.close(its)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 1 << 16)
        except OSError:  # Linux reports the end of a terminal as an error
            break
        if not piece:
            break
        seen += piece
    process.wait(timeout=SECONDS)
    os.close(ours)
    return seen.decode(errors="surrogateescape")


# Escape sequences that rich and our code may send: colours, and cursor control of the progress
# display.
_OURS = re.compile(r"\x1b\[(?:[0-9;]*m|\d*[ABCDGK]|\?25[lh]|\d+;\d+H)")


def obeyed(seen: str) -> list[str]:
    """The control sequences in a text that a terminal would obey and that our code does not send."""
    rest = _OURS.sub("", seen).replace("\r\n", "\n").replace("\r", "")
    return re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069].{0,20}", rest)
