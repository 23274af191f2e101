"""Runs the installed command on real programs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest


class Done(NamedTuple):
    """An ended command."""

    status: int
    out: str
    err: str


class Heapwright:
    """Runs the installed `heapwright` in one directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = Path(sys.executable).parent / "heapwright"

    def start(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Starts the command in a process group of its own, as a terminal would."""
        return subprocess.Popen(
            [self.path, *words],
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
        process = self.start(*words, env=env)
        try:
            out, err = process.communicate(timeout=240)
        finally:
            process.kill()
        return Done(process.returncode, out, err)

    def piped(self, text: str, *words: str) -> Done:
        """Runs the command to its end with a text on its standard input."""
        done = subprocess.run(
            [self.path, *words],
            cwd=self.folder,
            env=environment(),
            input=text,
            capture_output=True,
            text=True,
            timeout=240,
        )
        return Done(done.returncode, done.stdout, done.stderr)


def environment() -> dict[str, str]:
    """Our environment without the variables that change allocators or output."""
    drop = ("GLIBC_TUNABLES", "MALLOC_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "HEAPWRIGHT_")
    return {k: v for k, v in os.environ.items() if not k.startswith(drop)}


@pytest.fixture
def heapwright(tmp_path: Path) -> Heapwright:
    """The installed command, working in a fresh directory."""
    found = Heapwright(tmp_path)
    assert found.path.exists(), "run 'make build' first"
    return found
