"""Ends runs early: a prefix is the beginning of a run, up to a time or to a text that the program prints.

The first seconds of a run of minutes often suffice to measure it. A prefix ends the run then, and the measurements up
to that point count as those of the run.

    after a time    every run has the same length but may have done different work: only memory can be compared
    at a text       every run has done the same work: memory and time can be compared
"""

from __future__ import annotations

import contextlib
import math
import subprocess
import time

import msgspec

from heapwright.metrics import METRICS
from heapwright.tomlfile import Seconds

_UNTIMED = frozenset({"time", "count"})  # kinds of metrics that grow with the amount of work


class Prefix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The end of a run; exactly one attribute is set.

    Attributes:
        seconds: end the run after this time; 0 for none.
        output: end the run when it has printed this text to stdout or stderr; empty for none.
    """

    seconds: Seconds = 0.0
    output: str = ""

    def shown(self) -> str:
        """Return the measured part as text: 'the first 30 s of a run'."""
        if self.seconds:
            return f"the first {self.seconds:g} s of a run"
        return f"a run until it prints '{self.output}'"

    def as_option(self) -> str:
        """Return the argument of `--prefix`."""
        return f"{self.seconds:g}s" if self.seconds else self.output

    def compares(self, metric: str) -> bool:
        """Return whether runs with this prefix can be compared in this metric."""
        return not self.seconds or METRICS[metric].kind not in _UNTIMED


class PrefixEnd:
    """Detects the end of a run's prefix. Its clock starts when the object is created.

    Attributes:
        reached: whether the run has reached the end of its prefix.
        stream: the stream that the text was found in; None before that.
    """

    def __init__(self, prefix: Prefix | None) -> None:
        self.reached = False
        self.stream: object | None = None
        self._text = prefix.output.encode() if prefix else b""
        self._end = time.monotonic() + prefix.seconds if prefix and prefix.seconds else math.inf
        self._before: dict[object, bytes] = {}  # stream → its last bytes, in which the text may begin

    def within(self, seconds: float) -> float:
        """Return `seconds`, but at most the time left until the end of the prefix."""
        return max(0.0, min(seconds, self._end - time.monotonic()))

    def look(self) -> bool:
        """Return whether the end is reached, after a look at the clock."""
        self.reached = self.reached or time.monotonic() >= self._end
        return self.reached

    def wait(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait for a process that has closed its streams; return whether it ended before its prefix."""
        if self.reached or math.isinf(self._end):
            return True
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(self.within(math.inf))
            return True
        self.reached = True
        return False

    def read(self, stream: object, data: bytes) -> bytes:
        """Search the data just read from a stream for the text.

        Returns:
            The part of the data that belongs to the prefix.
        """
        if self.reached:
            return b""
        if not self._text:
            return data
        before = self._before.get(stream, b"")
        at = (before + data).find(self._text)
        if at >= 0:
            self.reached, self.stream = True, stream
            return data[: at + len(self._text) - len(before)]
        self._before[stream] = (before + data)[-len(self._text) + 1 :] if len(self._text) > 1 else b""
        return data
