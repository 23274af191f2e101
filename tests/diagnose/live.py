"""Starts a program that waits, and asks heapwright-diagnose about it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heapwright.files import NATIVE
from tests import needs
from tests.conftest import ROOT


def tool() -> Path:
    """heapwright-diagnose, the one built last."""
    folders = (ROOT / "build/native/native/diagnose", NATIVE)
    built = [path for folder in folders if (path := folder / "heapwright-diagnose").is_file()]
    if not built:
        needs.not_built("heapwright-diagnose")
    return max(built, key=lambda path: path.stat().st_mtime)


def diagnose(pid: int) -> dict[str, Any]:
    done = subprocess.run([tool(), str(pid)], capture_output=True, text=True, check=True, timeout=60)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextmanager
def waiting(*words: str | Path, env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Starts a program with pipes at stdin and stdout, and kills it at the end."""
    process = subprocess.Popen(
        words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    """The program's next line on stdout."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.endswith("\n"), f"the program ended with {process.poll()}"
    return line


def answer(process: subprocess.Popen[str]) -> str:
    """Sends an empty line to the program, and returns its next one."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return line_of(process)


def close(found: float, expected: float, ratio: float = 0.01) -> bool:
    return abs(found - expected) <= ratio * expected


def resident_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss:"))
