"""Keeps the readings of a canary: a file with one JSON object a line, which survives a kill at any moment.

The first line is the header; each further line is one reading. A line that was cut off is dropped when the file is
read. A canary that goes on appends to its file, so readings and gaps of all its sessions count.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from heapwright.canary.instances import InstanceReading
from heapwright.errors import HeapwrightError

VERSION = 1
_HEADER_START = b'{"control":'


class Header(msgspec.Struct):
    """The facts that must agree when a canary goes on.

    Attributes:
        control, treatment: the instances.
        every_s: seconds between two readings.
        proportional: whether memory is PSS.
        numbers: further numbers, by name, as the user gave them.
        version: of the file.
    """

    control: list[str]
    treatment: list[str]
    every_s: float
    proportional: bool
    numbers: dict[str, str] = {}
    version: int = VERSION


class Reading(msgspec.Struct):
    """All instances at one moment.

    Attributes:
        time: seconds since 1970.
        control, treatment: a reading for each instance; None while it is down.
        numbers: name → (control, treatment); None where the source gave no number.
    """

    time: float
    control: list[InstanceReading | None]
    treatment: list[InstanceReading | None]
    numbers: dict[str, tuple[float | None, float | None]] = {}


def load_readings(path: Path) -> tuple[Header, list[Reading]]:
    """Read a file of readings.

    Raises:
        HeapwrightError: the file cannot be read, or is not a canary's.
    """
    try:
        lines = path.read_bytes().split(b"\n")
        header = msgspec.json.decode(lines[0], type=Header)
    except OSError as error:
        raise HeapwrightError(f"cannot read {path}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise HeapwrightError(f"{path} is not a file of 'heapwright canary'") from None
    if header.version != VERSION:
        raise HeapwrightError(f"{path} is of version {header.version} of the format; this heapwright reads {VERSION}")
    found = []
    for line in lines[1:]:
        try:
            found.append(msgspec.json.decode(line, type=Reading))
        except (msgspec.DecodeError, UnicodeDecodeError):  # cut off by a kill or a full disk
            continue
    return header, found


class ReadingFile:
    """Appends readings. Use it as a context manager.

    Args:
        path: the file; it is made if it does not exist.
        header: of this canary. A canary that goes on reads memory as before, so `proportional` becomes the file's.

    Raises:
        HeapwrightError: the file is of another canary, or cannot be written; or its memory may no longer be read.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.before: list[Reading] = []
        try:
            text = path.read_bytes() if path.is_file() else b""
            if text and not _is_cut_header(text):
                found, self.before = load_readings(path)
                if found.proportional and not header.proportional:
                    raise HeapwrightError(
                        f"{path} has proportional memory, which may not be read now",
                        "run it as the user who began it, or as root",
                    )
                header.proportional = found.proportional
                if found != header:
                    raise HeapwrightError(
                        f"{path} has the readings of another canary",
                        "give the same options, or another file with -o",
                    )
                self._file = path.open("ab", buffering=0)
                if not text.endswith(b"\n"):  # the last line was cut off
                    self._file.write(b"\n")
            else:
                self._file = path.open("wb", buffering=0)
                self._append(header)
        except OSError as error:
            raise HeapwrightError(f"cannot write {path}: {error.strerror}") from None

    def __enter__(self) -> ReadingFile:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._file.close()

    def add(self, reading: Reading) -> None:
        """Append a reading.

        Raises:
            HeapwrightError: the disk is full; earlier readings are intact.
        """
        try:
            self._append(reading)
        except OSError as error:
            raise HeapwrightError(f"cannot write {self.path}: {error.strerror}; earlier readings are intact") from None

    def _append(self, value: msgspec.Struct) -> None:
        rest = memoryview(msgspec.json.encode(value) + b"\n")
        while rest:
            rest = rest[self._file.write(rest) or 0 :]  # a disk that fills up takes a part
        os.fdatasync(self._file.fileno())


def _is_cut_header(text: bytes) -> bool:
    """Return whether a file holds only the beginning of a header, as after a kill."""
    return b"\n" not in text and text[: len(_HEADER_START)] == _HEADER_START[: len(text)]
