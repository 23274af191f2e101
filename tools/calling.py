"""Calls the commands that make wheels and releases: wheels.py and release.py use it."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


class ToolError(Exception):
    """A tool cannot do its work; the text is one line."""


def call(*words: str | Path, env: dict[str, str] | None = None) -> str:
    """Runs a command in the root of the repository, and returns its output.

    Raises:
        ToolError: The command failed or is missing.
    """
    try:
        done = subprocess.run(
            words, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
    except FileNotFoundError:
        raise ToolError(f"{words[0]} is not installed") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise ToolError(f"{' '.join(map(str, words[:3]))} failed: {lines[-1] if lines else 'no output'}")
    return done.stdout
