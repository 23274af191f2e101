"""The prefix of a run: its beginning, up to a time or to a text that the program prints.

A run that takes minutes may show early what is to be measured. A prefix ends it then, and what was measured by then
counts as the run.

    after a time    every run has the same length, whatever it has done by then: memory can be compared, time cannot
    at a text       every run has done the same work: memory and time can be compared
"""

from __future__ import annotations

import contextlib
import math
import subprocess
import time

import msgspec

from heapwright.metrics import METRICS

_UNTIMED = frozenset({"time", "count"})  # kinds of metrics that grow with the work that is done


class Prefix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a run is ended. Exactly one is set.

    Attributes:
        seconds: after this time; 0 for none.
        output: when it has printed this, to stdout or stderr; empty for none.
    """

    seconds: float = 0.0
    output: str = ""

    def shown(self) -> str:
        """What was measured, for people: 'the first 30 s of a run'."""
        if self.seconds:
            return f"the first {self.seconds:g} s of a run"
        return f"a run until it prints '{self.output}'"

    def as_option(self) -> str:
        """As `--prefix` takes it."""
        return f"{self.seconds:g}s" if self.seconds else self.output

    def compares(self, metric: str) -> bool:
        """Whether runs that end there can be compared in this metric."""
        return not self.seconds or METRICS[metric].kind not in _UNTIMED


class PrefixEnd:
    """Tells when a run has reached the end of its prefix. Its time begins when this is made.

    Attributes:
        reached: whether it has.
        stream: where the text stood; None before that.
    """

    def __init__(self, prefix: Prefix | None) -> None:
        self.reached = False
        self.stream: object | None = None
        self._text = prefix.output.encode() if prefix else b""
        self._end = time.monotonic() + prefix.seconds if prefix and prefix.seconds else math.inf
        self._before: dict[object, bytes] = {}  # by stream: the last bytes, in which the text may begin

    def within(self, seconds: float) -> float:
        """How long to wait for output at most, so that the end is not missed."""
        return max(0.0, min(seconds, self._end - time.monotonic()))

    def look(self) -> bool:
        """Whether the time is over."""
        self.reached = self.reached or time.monotonic() >= self._end
        return self.reached

    def wait(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait for a process that prints nothing any more; whether it has ended before the prefix does."""
        if self.reached or math.isinf(self._end):
            return True
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(self.within(math.inf))
            return True
        self.reached = True
        return False

    def read(self, stream: object, data: bytes) -> bytes:
        """Look for the text in what was read from a stream.

        Returns:
            The part of it that belongs to the prefix.
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
