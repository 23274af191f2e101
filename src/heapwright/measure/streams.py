"""Reads the streams of a metered run until the meter ends: hashes stdout, keeps the end of stderr, passes both on.

A daemon may hold the pipes open for ever, so the reader waits for the end of the meter and not for the end of file.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import selectors
import signal
import subprocess
import threading
import time
from typing import IO

from heapwright.interruption import received_signal
from heapwright.measure.prefix import PrefixEnd
from heapwright.measure.stderr_relay import StderrRelay

_STDERR_TAIL = 4096  # bytes
_LOOK_S = 0.1  # between two looks at the meter, at `stop` and at the clock
_GRACE_S = 2.0  # for a process to end after a signal
_REPEAT_S = 0.2  # timeout(1) sends its signal twice: to its child, and to its group


class Stopped(Exception):
    """A run was cancelled by its `stop` event."""


class StreamReader:
    """Reads the streams of one run.

    Args:
        process: the meter, with pipes for the streams to read.
        end: detects the end of the run's prefix; later output is dropped.
        forward: gets stdout as it comes; None: nothing does.
        relay: gets stderr as it comes; None: nothing does.
        keep: gets a copy of the stdout that counts; None: nothing does.
        attended: the target is in our process group, and may handle the signal that ends us.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        end: PrefixEnd,
        forward: IO[bytes] | None,
        relay: StderrRelay | None,
        keep: IO[bytes] | None,
        attended: bool = False,
    ) -> None:
        self._process = process
        self._end = end
        self._forward = forward
        self._relay = relay
        self._keep = keep
        self._attended = attended
        self._streams = [stream for stream in (process.stdout, process.stderr) if stream is not None]
        self._digest = hashlib.sha256()
        self._tail = b""

    def read_all(self, stop: threading.Event | None) -> tuple[str, bytes]:
        """Read until the meter ends, and end the run at the end of its prefix.

        Args:
            stop: cancels the run when set.

        Returns:
            The SHA-256 of stdout and the last bytes of stderr.

        Raises:
            Stopped: `stop` was set.
        """
        failed = False
        with selectors.DefaultSelector() as selector:
            for stream in self._streams:
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ)
            try:
                self._read_while_running(selector, stop)
                if not self._end.wait(self._process):  # it has closed its streams but still runs
                    self._process.terminate()
                failed = self._process.wait() != 0
            except BaseException as error:
                interrupted = self._attended and isinstance(error, KeyboardInterrupt)
                try:
                    if interrupted:
                        with contextlib.suppress(OSError):  # Ctrl-C may have ended the reader of our output, too
                            self._leave_to_target(selector)
                finally:
                    _cancel(self._process, received_signal() if interrupted else None)
                raise
            finally:
                if self._relay is not None:
                    self._relay.end(failed)
                for stream in self._streams:
                    stream.close()
        return self._digest.hexdigest(), self._tail

    def _leave_to_target(self, selector: selectors.BaseSelector) -> None:
        """Give an attended target time to handle the signal that ends us, and pass on its output meanwhile.

        A terminal sends Ctrl-C to the target too. The meter passes other signals on. A second signal ends the time.
        """
        number = received_signal()
        if number not in (None, signal.SIGINT):
            self._process.send_signal(number)
        began = time.monotonic()
        while time.monotonic() < began + _GRACE_S:
            try:
                self._read_while_running(selector, None, began + _GRACE_S)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(timeout=max(0.0, began + _GRACE_S - time.monotonic()))
                return
            except KeyboardInterrupt:
                if time.monotonic() > began + _REPEAT_S:
                    return

    def _read_while_running(
        self, selector: selectors.BaseSelector, stop: threading.Event | None, until: float = math.inf
    ) -> None:
        """Read until all streams are at their end, or the meter has ended and nothing is left to read.

        Args:
            selector: of the streams.
            stop: cancels the run when set.
            until: when to stop reading in any case, on the monotonic clock.
        """
        ended = ending = False
        while selector.get_map() and time.monotonic() < until:
            if stop is not None and stop.is_set():
                raise Stopped
            ready = selector.select(0.0 if ended else _LOOK_S if ending else self._end.within(_LOOK_S))
            if not ready and ended:
                break
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fileobj)
                elif key.fileobj is self._process.stderr:
                    self._take_stderr(data)
                else:
                    self._take_stdout(data)
            if self._end.look() and not ending:
                self._process.terminate()  # the meter kills the tree and writes its report
                ending = True
            ended = ended or self._process.poll() is not None

    def _take_stderr(self, data: bytes) -> None:
        self._tail = (self._tail + self._end.read(self._process.stderr, data))[-_STDERR_TAIL:]
        if self._relay is not None:
            self._relay.write(data)

    def _take_stdout(self, data: bytes) -> None:
        if self._forward is not None:
            self._forward.write(data)
            self._forward.flush()
        data = self._end.read(self._process.stdout, data)
        self._digest.update(data)
        if self._keep is not None:
            self._keep.write(data)


def _cancel(process: subprocess.Popen[bytes], ended_by: int | None) -> None:
    """End a cancelled run; the meter ends the whole process tree.

    The meter leaves the first interrupt to an attended target, and acts on the second. If the target has ended by the
    signal that ends us, the meter passes this signal on to the processes that the target left.

    Args:
        process: the meter.
        ended_by: the signal that an attended target has got; None if it has got none.
    """
    if process.poll() is not None:
        return
    again = [] if ended_by in (None, signal.SIGINT) else [ended_by]
    for number in [*again, signal.SIGINT, signal.SIGINT]:
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_GRACE_S)
            return
    process.kill()
    process.wait()
