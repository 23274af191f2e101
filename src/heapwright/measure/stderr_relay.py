"""Passes the stderr of a command on, but holds back the meter's last words, which become heapwright's own message.

A meter that fails in a container writes a line to the same stderr as the command. Without this, the user would read the
line twice.
"""

from __future__ import annotations

from typing import IO

_STARTS = (b"heapwright-meter: ", b"Error: ")  # of the meter and of podman


class StderrRelay:
    """Writes at once all but a last line that may tell why the meter fails.

    Args:
        out: receives the text.
    """

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._held = b""
        self._in_line = False  # whether the text that was passed on ends within a line

    def write(self, data: bytes) -> None:
        """Pass on data, after the line that was held back."""
        data, self._held = self._held + data, b""
        at = data.rfind(b"\n", 0, len(data.rstrip(b"\n"))) + 1  # where the last line begins
        # The meter says so while it waits, and does not fail.
        if (at or not self._in_line) and data[at:].startswith(_STARTS) and b"; waiting for " not in data[at:]:
            data, self._held = data[:at], data[at:]
        self._pass_on(data)

    def end(self, failed: bool) -> None:
        """Drop the line that is held back if the meter has failed; otherwise pass it on."""
        data, self._held = self._held, b""
        if not failed:
            self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        if data:
            self._in_line = not data.endswith(b"\n")
            self._out.write(data)
            self._out.flush()
