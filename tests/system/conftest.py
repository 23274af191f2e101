"""Runs the installed command on real programs, most often in forks (tests/command_server.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.command_server import SERVER, at_start

SECONDS = 240  # until a command hangs


class Done(NamedTuple):
    """An ended command."""

    status: int
    out: str
    err: str


class Heapwright:
    """Runs the installed `heapwright` in one directory.

    Args:
        folder: the directory.
        report: whether `tune` writes its page, which takes longer than a short study.
        forked: whether commands that run to their end are forks of a process that has imported everything.
    """

    def __init__(self, folder: Path, report: bool = True, forked: bool = False) -> None:
        self.folder, self.report, self.forked = folder, report, forked
        self.path = Path(sys.executable).parent / "heapwright"

    def words(self, words: tuple[str, ...]) -> list[str]:
        """The command line, with --no-report if it is `tune` without a page."""
        more = ["--no-report"] if words[:1] == ("tune",) and not self.report else []
        return [str(self.path), *words[:1], *more, *words[1:]]

    def start(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Starts the command in a process group of its own, as a terminal would."""
        return subprocess.Popen(
            self.words(words),
            cwd=self.folder,
            env={**environment(), **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __call__(self, *words: str, env: Mapping[str, str] | None = None) -> Done:
        """Runs the command to its end."""
        if self.forked and not at_start(env or {}):
            return self._fork("", words, env or {})
        process = self.start(*words, env=env)
        try:
            out, err = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
        return Done(process.returncode, out, err)

    def piped(self, text: str, *words: str) -> Done:
        """Runs the command to its end with a text on its standard input."""
        if self.forked:
            return self._fork(text, words, {})
        done = subprocess.run(
            self.words(words),
            cwd=self.folder,
            env=environment(),
            input=text,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def _fork(self, text: str, words: tuple[str, ...], env: Mapping[str, str]) -> Done:
        status, out, err = SERVER.run(self.words(words), self.folder, {**environment(), **env}, text, SECONDS)
        return Done(status, out.decode(), err.decode())


def environment() -> dict[str, str]:
    """Our environment without the variables that change allocators or output."""
    drop = ("GLIBC_TUNABLES", "MALLOC_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "HEAPWRIGHT_")
    return {k: v for k, v in os.environ.items() if not k.startswith(drop)}


@pytest.fixture
def heapwright(tmp_path: Path) -> Heapwright:
    """The command, working in a fresh directory, in forks and without a page unless the test asks for it."""
    found = Heapwright(tmp_path, report=False, forked=True)
    assert found.path.exists(), "run 'make build' first"
    return found
