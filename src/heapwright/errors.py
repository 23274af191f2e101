"""The one way a command fails: a line that says what is wrong, a hint what to do, an exit status."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

FAILED = 1
USAGE = 2
NO_GAIN = 3  # verify, apply, tune --exit-code: measured, and there is no gain (any more)
UNDECIDED = 4  # verify, tune --exit-code: the time did not suffice to tell
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


class UsageError(HeapwrightError):
    """What the user wrote on the command line or in a file cannot be meant; exit status 2."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, USAGE)


def unknown(what: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name we do not know, with the nearest one we do."""
    names = sorted(set(known))
    near = [n for n in names if len(name) > 2 and name.lower() in n][:3]
    near = near or difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known: {', '.join(names)}"
    return UsageError(f"unknown {what} '{name}'", hint)
