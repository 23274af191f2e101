"""Imports and exports traces of other tools: wl workloads both ways, heaptrack's text in (docs/info.md).

The native program reads and writes the formats. This module unpacks heaptrack's files: gzip with Python's module, zstd
with the zstd program. A compressed file that ends early is used up to that point, and a `!cut` line tells the native
program.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal

import msgspec

from heapwright.errors import HeapwrightError, UsageError
from heapwright.trace.info import Loss
from heapwright.trace.model import PackedCounts
from heapwright.trace.pack import draft_for_native, need_trace, run_native

Format = Literal["wl", "heaptrack"]

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_PIECE = 1 << 20


class ExportCounts(msgspec.Struct):
    """Counts of an export.

    Attributes:
        events: operations written.
        left_out: events of kinds that the format does not have.
        loss: what could not be read of the trace.
    """

    events: int
    left_out: int
    loss: Loss


def recognise(path: Path, given_format: Format | None = None) -> Format:
    """Returns the format of a file: the given one, or the one that its first bytes show.

    Raises:
        UsageError: there is no such file, or its format cannot be imported.
    """
    if not path.is_file():
        raise UsageError(f"no such file: {path}" if not path.exists() else f"not a file: {path}")
    if given_format:
        return given_format
    with path.open("rb") as file:
        start = file.read(4096)
    if start.startswith((_GZIP, _ZSTD)) or (start.startswith(b"v ") and b"\n" in start):
        return "heaptrack"
    if start.lstrip(b"\0").startswith(b"\x08"):
        return "wl"
    raise UsageError(
        f"{path} is neither a wl workload nor a heaptrack file", "name the format with --format, if you know it"
    )


def import_wl(path: Path, trace: Path) -> PackedCounts:
    """Converts a wl workload to a packed trace.

    Raises:
        HeapwrightError: nothing of the workload can be read, or the trace cannot be written.
    """
    with draft_for_native(trace) as draft:
        return msgspec.json.decode(run_native("import-wl", path, draft)[0], type=PackedCounts)


def import_heaptrack(path: Path, trace: Path) -> PackedCounts:
    """Converts heaptrack's text, plain or compressed, to a packed trace.

    Raises:
        HeapwrightError: nothing of the text can be read, or the trace cannot be written.
    """
    with path.open("rb") as file:
        if file.read(4) == _ZSTD:
            _zstd_program(path)  # before anything is begun
    with draft_for_native(trace) as draft:
        try:
            output, _ = run_native("import-heaptrack", draft, stdin=_text(path))
        except HeapwrightError as error:
            raise HeapwrightError(f"{path}: {error.message}", error.hint) from None
    return msgspec.json.decode(output, type=PackedCounts)


def _text(path: Path) -> Iterator[bytes]:
    """Yields the pieces of a text, and a last line `!cut …` if the file could not be unpacked to its end."""
    with path.open("rb") as file:
        start = file.read(4)
        file.seek(0)
        if start.startswith(_GZIP):
            yield from _gzip(file)
        elif start == _ZSTD:
            yield from _zstd(path)
        else:
            while piece := file.read(_PIECE):
                yield piece


def _gzip(file: IO[bytes]) -> Iterator[bytes]:
    with gzip.open(file) as text:
        while True:
            try:
                piece = text.read1(_PIECE)
            except (EOFError, OSError, zlib.error):
                yield b"\n!cut the gzip file ends early or is damaged\n"
                return
            if not piece:
                return
            yield piece


def _zstd_program(path: Path) -> str:
    program = shutil.which("zstd")
    if program is None:
        raise HeapwrightError(
            f"{path} is compressed with zstd, and there is no zstd program", "install the package zstd"
        )
    return program


def _zstd(path: Path) -> Iterator[bytes]:
    words = [_zstd_program(path), "--decompress", "--stdout", "--quiet", "--no-progress", str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as unpacking:
        assert unpacking.stdout is not None
        while piece := unpacking.stdout.read(_PIECE):
            yield piece
    if unpacking.returncode:
        yield b"\n!cut the zstd file ends early or is damaged\n"


def export_wl(trace: Path, path: Path) -> ExportCounts:
    """Converts a trace to a wl workload.

    Raises:
        UsageError: there is no such trace.
        HeapwrightError: the trace cannot be read, or the file cannot be written.
    """
    need_trace(trace)
    with draft_for_native(path) as draft:
        return msgspec.json.decode(run_native("export-wl", trace, draft)[0], type=ExportCounts)
