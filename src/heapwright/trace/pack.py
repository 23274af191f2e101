"""Runs the native program that works on traces, and packs traces with it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TypeVar

import msgspec

from heapwright.errors import HeapwrightError, UsageError
from heapwright.files import NATIVE

_Answer = TypeVar("_Answer", bound=msgspec.Struct)


class Packed(msgspec.Struct):
    """Counts of a packed trace. Sizes are in bytes.

    Attributes:
        bytes: size of the file.
        lost_bytes, lost_events: that could not be read, or are known to be missing.
        cut_short: the recording has no proper end.
        sample: it holds one in so many small objects; 0: all. The counts are those of the chosen objects.
        requests: allocations and reallocs of the process, also of objects that are not in the sample.
    """

    events: int
    allocations: int
    threads: int
    peak_live_bytes: int
    bytes: int
    lost_bytes: int
    lost_events: int
    cut_short: bool
    sample: int = 0
    requests: int = 0


def native_program(name: str) -> Path:
    """Returns the path of an installed native program of heapwright.

    Raises:
        HeapwrightError: the program does not exist.
    """
    path = NATIVE / name
    if not os.access(path, os.X_OK):
        raise HeapwrightError(f"there is no program {path}", "run 'make build', or reinstall heapwright")
    return path


def need_trace(trace: Path) -> None:
    """Fails with one clear line unless the file can be read.

    Raises:
        UsageError: the file does not exist, is not a regular file or is not readable.
    """
    if not trace.exists():
        raise UsageError(f"no such trace: {trace}", "heapwright record makes one")
    if trace.is_dir():
        raise UsageError(f"not a trace: {trace} is a directory")
    if not trace.is_file():
        raise UsageError(f"{trace} is a device or a pipe", "a trace is read from a regular file")
    if not os.access(trace, os.R_OK):
        raise UsageError(f"the trace cannot be read: {trace}")


def ask(kind: type[_Answer], command: str, *words: str | Path) -> tuple[_Answer, str]:
    """Runs a sub-command of heapwright-trace that prints JSON.

    Args:
        kind: the type of its answer.
        command: the sub-command.
        words: its arguments.

    Returns:
        The answer, and a warning for the user, or an empty string.

    Raises:
        HeapwrightError: it failed; the message is its last line.
    """
    done = subprocess.run(
        [native_program("heapwright-trace"), command, *words],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    messages = done.stderr.strip().splitlines()
    line = messages[-1].removeprefix("heapwright-trace: ") if messages else ""
    if done.returncode:
        raise HeapwrightError(line or f"heapwright-trace {command} ended with status {done.returncode}")
    return msgspec.json.decode(done.stdout, type=kind), line


def pack(raw: Path, trace: Path) -> tuple[Packed, str]:
    """Packs a trace of any form. The packed file is complete, or it does not exist.

    Returns:
        Its counts, and a warning if something was lost, or an empty string.
    """
    need_trace(raw)
    return ask(Packed, "pack", raw, trace)
