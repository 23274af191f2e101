"""Defines the errors that a command reports: one line that says what is wrong, a hint what to do, an exit status."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

FAILED = 1
USAGE = 2
NO_GAIN = 3  # verify, apply, tune --exit-code: no gain is proven, or it no longer holds
UNDECIDED = 4  # verify, tune --exit-code: the time was too short to decide
INTERRUPTED = 130


class HeapwrightError(Exception):
    """A failure the user can understand and act on; the CLI prints it without a traceback.

    Args:
        message: what is wrong, one line.
        hint: what to do about it, one line, or empty.
        status: the exit status (1 failed, 2 usage).
    """

    def __init__(self, message: str, hint: str = "", status: int = FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.status = status

    def __str__(self) -> str:
        """The line that a command prints: the message, and the hint in brackets."""
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(HeapwrightError):
    """The command line or a file of the user is invalid; exit status 2."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, USAGE)


def unknown(what: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for an unknown name, with the nearest known names as its hint.

    Args:
        what: the kind of name, such as 'metric'.
        name: the unknown name.
        known: all known names.
    """
    names = sorted(set(known))
    near = [n for n in names if len(name) > 2 and name.lower() in n][:3]
    near = near or difflib.get_close_matches(name, names, n=1, cutoff=0.8)
    near = near or sorted((n for n in names if name.lower().startswith(n + "_")), key=len)[-1:]  # cpu_time: cpu
    near = near or difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known: {', '.join(names)}"
    return UsageError(f"unknown {what} '{name}'", hint)


def install_extra(extra: str) -> str:
    """Return how to install heapwright with one of its extras; it is on no package index."""
    wheel, clone = f"pip install './WHEEL.whl[{extra}]'", f"pip install '.[{extra}]'"
    return f"install it from heapwright's wheel, {wheel}, or in a clone, {clone}"
