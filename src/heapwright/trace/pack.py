"""The native program that works on traces, and packing with it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TypeVar

import msgspec

from heapwright.errors import HeapwrightError, UsageError
from heapwright.files import NATIVE

_Told = TypeVar("_Told", bound=msgspec.Struct)


class Packed(msgspec.Struct):
    """What a packed trace holds. Sizes in bytes.

    Attributes:
        bytes: of the file.
        lost_bytes, lost_events: what could not be read, or is known to be missing.
        cut_short: the recording has no proper end.
    """

    events: int
    allocations: int
    threads: int
    peak_live_bytes: int
    bytes: int
    lost_bytes: int
    lost_events: int
    cut_short: bool


def native_program(name: str) -> Path:
    """An installed native program of heapwright.

    Raises:
        HeapwrightError: it is not there.
    """
    path = NATIVE / name
    if not os.access(path, os.X_OK):
        raise HeapwrightError(f"there is no program {path}", "run 'make build', or reinstall heapwright")
    return path


def need_trace(trace: Path) -> None:
    """Fails with one clear line unless the file can be read.

    Raises:
        UsageError: not there, a directory, not readable.
    """
    if not trace.exists():
        raise UsageError(f"no such trace: {trace}", "heapwright record makes one")
    if trace.is_dir():
        raise UsageError(f"not a trace: {trace} is a directory")
    if not os.access(trace, os.R_OK):
        raise UsageError(f"the trace cannot be read: {trace}")


def ask(kind: type[_Told], command: str, *words: str | Path) -> tuple[_Told, str]:
    """Runs a sub-command of heapwright-trace that tells in JSON what it did.

    Returns:
        what it told, and a warning for people where it had one.

    Raises:
        HeapwrightError: it failed; its own line says why.
    """
    done = subprocess.run(
        [native_program("heapwright-trace"), command, *words],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    said = done.stderr.strip().splitlines()
    line = said[-1].removeprefix("heapwright-trace: ") if said else ""
    if done.returncode:
        raise HeapwrightError(line or f"heapwright-trace {command} ended with status {done.returncode}")
    return msgspec.json.decode(done.stdout, type=kind), line


def pack(raw: Path, trace: Path) -> tuple[Packed, str]:
    """Packs a trace of any form; whole under its name, or not there.

    Returns:
        what it holds, and a warning where something was lost.
    """
    need_trace(raw)
    return ask(Packed, "pack", raw, trace)
