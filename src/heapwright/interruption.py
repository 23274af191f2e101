"""Notes the signals that end a command, so that a KeyboardInterrupt that other code swallows is raised again.

Python raises KeyboardInterrupt wherever the main thread is. A library may catch it there (a bare `except` around an
optional import), and Python itself drops it in a `__del__` or a callback from C ("Exception ignored in"). The command
would then go on as if there had been no signal. So each run of a program first calls `raise_if_interrupted`.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_received: list[int] = []


@contextlib.contextmanager
def ending_signals() -> Iterator[list[int]]:
    """Make SIGTERM and SIGHUP raise KeyboardInterrupt as SIGINT does, and note all three, while a command runs.

    A signal that is ignored or has another handler keeps that: nohup ignores SIGHUP, and a shell ignores SIGINT for a
    command in the background.

    Yields:
        The numbers of the signals that came.
    """
    _received.clear()
    usual: dict[signal.Signals, Callable[[int, FrameType | None], Any] | signal.Handlers] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    numbers = [number for number, handler in usual.items() if signal.getsignal(number) == handler]
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        numbers = []
    for number in numbers:
        signal.signal(number, _interrupt)
    try:
        yield _received
    finally:
        for number in numbers:
            signal.signal(number, usual[number])
        _received.clear()


def raise_if_interrupted() -> None:
    """Raise KeyboardInterrupt if a signal was to end the command.

    Raises:
        KeyboardInterrupt: such a signal came, and the command still goes on.
    """
    if _received:
        raise KeyboardInterrupt


def received_signal() -> int | None:
    """Return the number of the first signal that was to end the command; None if none came."""
    return _received[0] if _received else None


def _interrupt(number: int, _frame: FrameType | None) -> None:
    _received.append(number)
    raise KeyboardInterrupt
