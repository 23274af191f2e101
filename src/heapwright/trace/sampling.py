"""Describes the extent of a recording: a sample of objects, a window of time, a bound of size; exports the recorder.

The library libheapwright-sample.so reads the variables below, or a settings file beside it (native/recorder/begin.h).
"""

from __future__ import annotations

import errno
import signal
from dataclasses import dataclass
from pathlib import Path

from heapwright.errors import HeapwrightError, UsageError
from heapwright.files import write_whole
from heapwright.measure.process_group import find_signal
from heapwright.platforms import host_platform, need_platform
from heapwright.trace.raw_files import check_length

LIBRARY = "libheapwright-sample.so"
SETTINGS = "libheapwright-sample.conf"
DEFAULT_RATE = 64  # of a recording with a bound and no rate
DEFAULT_PERCENT = 3  # native/recorder/sampling.h has the same
MIN_PERCENT = 2  # so much do calls on objects that are not chosen cost at most (docs/results/record.md)
MAX_RATE = 1 << 16  # with more, a rate at the top level would not fit (native/recorder/settings.cpp)
MIN_BYTES = 4 << 20  # a block of 64 KiB for each level of the sample


@dataclass(frozen=True)
class Sampling:
    """The objects to record; by default all, from the beginning to the end.

    Attributes:
        rate: 1 in so many small objects is recorded; 0: not given.
        max_bytes: bound of the raw file of each process; 0: none.
        max_percent: bound of what recording a sample adds to a process's CPU time, in per cent; 0: none.
        after_s: seconds from the start of a process to its window.
        for_s: length of the window in seconds; 0: to the end.
        window_signal: number of the signal that begins and ends the window; 0: none.
    """

    rate: int = 0
    max_bytes: int = 0
    after_s: float = 0.0
    for_s: float = 0.0
    window_signal: int = 0
    max_percent: int = DEFAULT_PERCENT

    @property
    def complete(self) -> bool:
        """Whether all objects and the whole time are recorded, without a bound."""
        return self == Sampling()

    @property
    def small_rate(self) -> int:
        """1 in so many small objects is recorded at the beginning."""
        return self.rate or (DEFAULT_RATE if self.max_bytes else 1)

    def variables(self) -> dict[str, str]:
        """Returns the recorder's environment variables."""
        if self.complete:
            return {}
        values = {
            "SAMPLE": str(self.small_rate),
            "MAX_SIZE": str(self.max_bytes) if self.max_bytes else "",
            "AFTER": f"{self.after_s:g}" if self.after_s else "",
            "FOR": f"{self.for_s:g}" if self.for_s else "",
            "MAX_COST": str(self.max_percent) if self.max_percent != DEFAULT_PERCENT else "",
            "WINDOW_SIGNAL": str(self.window_signal) if self.window_signal else "",
        }
        return {f"HEAPWRIGHT_RECORD_{name}": value for name, value in values.items() if value}


def parse_signal(text: str) -> int:
    """Returns the number of a signal such as 'USR2' or 'SIGUSR2'.

    Raises:
        UsageError: there is no such signal, or it cannot be caught.
    """
    found = find_signal(text)
    if found is None or found in (signal.SIGKILL, signal.SIGSTOP):
        raise UsageError(f"'{text}' is not a signal that a program can handle", "for example --window-signal RTMAX")
    return int(found)


def export(folder: Path, sampling: Sampling, raw: Path, platform: str | None = None) -> Path:
    """Writes the recorder and its settings into a folder, for a machine without heapwright.

    Args:
        folder: for the two files; it is made if it does not exist.
        sampling: what to record.
        raw: the folder on that machine in which the recorder makes raw files.
        platform: of that machine, one of `platforms.PLATFORMS`; None for this machine's.

    Returns:
        The library.

    Raises:
        HeapwrightError: the recorder is not installed, or not built for the platform; or the disk is full.
        UsageError: the folder cannot be written, or the recorder cannot use the path of `raw`.
    """
    source = need_platform(platform or host_platform()) / "lib" / LIBRARY
    if not source.is_file():
        raise HeapwrightError(f"there is no recorder {source}", "run 'make build', or reinstall heapwright")
    check_length(raw)
    variables = {"HEAPWRIGHT_RECORD": str(raw), "HEAPWRIGHT_RECORD_SAMPLE": "1"} | sampling.variables()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / LIBRARY, source.read_bytes())  # programs may run with an earlier one
        write_whole(folder / SETTINGS, "".join(f"{key}={value}\n" for key, value in variables.items()))
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        kind, hint = (HeapwrightError, "free some space") if full else (UsageError, "name a folder that can be written")
        raise kind(f"{folder} cannot be written: {error.strerror}", hint) from None
    return folder / LIBRARY
