"""Runs the native program that works on traces, and packs traces with it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from heapwright.errors import HeapwrightError, UsageError
from heapwright.files import NATIVE
from heapwright.trace.raw_files import packing_folder

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


def run_native(*words: str | Path, stdin: Iterable[bytes] = ()) -> tuple[str, str]:
    """Runs a sub-command of heapwright-trace.

    Args:
        words: the sub-command and its arguments.
        stdin: the pieces of its standard input. If it ends early, the rest is not written.

    Returns:
        Its standard output, and the last line of its standard error, which is a warning, or empty.

    Raises:
        HeapwrightError: it failed; the message is its last line.
    """
    command = [native_program("heapwright-trace"), *words]
    # Without a buffer: closing a pipe never writes, so it cannot fail.
    with subprocess.Popen(
        command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as native:
        assert native.stdin is not None
        with suppress(BrokenPipeError):
            for piece in stdin:
                left = memoryview(piece)
                while left:
                    left = left[native.stdin.write(left) :]
        output, errors = native.communicate()
    # A command line or a path may have bytes that are not UTF-8.
    messages = errors.decode("utf-8", "replace").strip().splitlines()
    line = messages[-1].removeprefix("heapwright-trace: ") if messages else ""
    if native.returncode:
        raise HeapwrightError(line or f"heapwright-trace {words[0]} ended with status {native.returncode}")
    return output.decode("utf-8", "replace"), line


def ask(kind: type[_Answer], command: str, *words: str | Path) -> tuple[_Answer, str]:
    """Runs a sub-command of heapwright-trace that prints JSON.

    Args:
        kind: the type of its answer.
        command: the sub-command.
        words: its arguments.

    Returns:
        The answer, and a warning for the user, or an empty string.

    Raises:
        HeapwrightError: as `run_native`.
    """
    text, line = run_native(command, *words)
    return msgspec.json.decode(text, type=kind), line


@contextmanager
def draft_for_native(path: Path) -> Iterator[Path]:
    """Names a file for heapwright-trace to write; renames it to `path` if the block succeeds.

    It lies in a folder of its own, which also takes the files that an interrupted native program leaves.

    Raises:
        HeapwrightError: the block failed, and its message named the draft; or the file cannot be made.
    """
    try:
        with packing_folder(path) as folder:
            draft = folder / path.name
            try:
                yield draft
            except HeapwrightError as error:
                raise type(error)(error.message.replace(str(draft), str(path)), error.hint) from None
            for made in folder.iterdir():  # an export may have a second file
                made.replace(path.with_name(made.name))
    except OSError as error:
        raise HeapwrightError(f"{path}: {error.strerror}") from None


def pack(raw: Path, trace: Path) -> tuple[Packed, str]:
    """Packs a trace of any form. The packed file is complete, or it does not exist.

    Returns:
        Its counts, and a warning if something was lost, or an empty string.
    """
    need_trace(raw)
    return ask(Packed, "pack", raw, trace)
