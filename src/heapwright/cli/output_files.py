"""Checks the paths of the files to write while the command line is read, so that no result is lost at the end."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from heapwright.errors import HeapwrightError, UsageError
from heapwright.files import is_stream

_DATABASE = b"SQLite format 3\0"  # the first bytes of each


def output_file(text: str) -> Path:
    """An argparse type: a file to write. It refuses what cannot be written before anything is measured.

    Raises:
        ArgumentTypeError: the file cannot be written, it is '-', or a study.
    """
    if text == "-":
        raise argparse.ArgumentTypeError(
            "this option does not write to stdout (name a file; './-' is a file called '-')"
        )
    path = Path(text)
    folder = path.absolute().parent
    if text.endswith("/"):
        raise argparse.ArgumentTypeError(f"{text} names a directory (name a file)")
    if is_stream(path) and not path.is_dir():
        return path
    if not folder.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: there is no directory {path.parent} (create it first)")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a directory (name a file)")
    if not os.access(folder, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text}: no files can be created in {path.parent}")
    if _is_database(path):
        raise argparse.ArgumentTypeError(f"{text} is a study or another database (name another file)")
    return path


def _is_database(path: Path) -> bool:
    """Whether an existing file is a database of SQLite, such as a study: no option may overwrite it."""
    try:
        with path.open("rb") as file:
            return file.read(len(_DATABASE)) == _DATABASE
    except OSError:  # none there, or not readable
        return False


def refuse_study(study: Path, *outputs: str | Path | None) -> None:
    """Refuse options that would overwrite the study of this command, also a new one.

    Args:
        study: its path.
        outputs: the files that options name; '-' for stdout, None for none.

    Raises:
        UsageError: one of them is the study.
    """
    for output in outputs:
        if output is not None and str(output) != "-" and Path(output).absolute() == study.absolute():
            raise UsageError(f"{output} is the study of this command", "name another file")


def regular_file(text: str) -> Path:
    """An argparse type: a file that is written beside its place and renamed, so it must not be a device or a pipe.

    Raises:
        ArgumentTypeError: the file cannot be written, or it is no regular file.
    """
    path = output_file(text)
    if is_stream(path):
        raise argparse.ArgumentTypeError(f"{text} is a device or a pipe (name a regular file)")
    return path


def file_or_stdout(text: str) -> Path:
    """An argparse type: a file to write, as `output_file` checks it, or '-' for stdout.

    Raises:
        HeapwrightError: it is '-', and stdout is closed.
        ArgumentTypeError: the file cannot be written.
    """
    if text != "-":
        return output_file(text)
    if sys.__stdout__ is None:
        raise HeapwrightError("stdout is closed, so '-' cannot be written", "name a file")
    return Path(text)


def json_file(text: str) -> str:
    """The argparse type of --json: as `file_or_stdout`, but the text stays."""
    file_or_stdout(text)
    return text


def output_folder(text: str) -> Path:
    """An argparse type: a folder to write into, which is made if it is missing.

    Raises:
        ArgumentTypeError: it is a file, or no file can be created in it or beside it.
    """
    path = Path(text)
    if not path.is_dir():
        if path.exists():
            raise argparse.ArgumentTypeError(f"{text} is not a directory (name a directory)")
        return output_file(text)
    if not os.access(path, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text}: no files can be created in it")
    return path


@contextmanager
def naming_stdout() -> Iterator[None]:
    """Name stdout in the error if it cannot be written. A closed pipe is no error of this kind."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, "stdout") from None
