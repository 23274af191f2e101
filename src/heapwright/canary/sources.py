"""Further numbers of a canary: the output of a command, or a series of a Prometheus endpoint."""

from __future__ import annotations

import http.client
import math
import os
import re
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable

from heapwright.errors import UsageError
from heapwright.measure.process_group import describe_exit_status, run_group
from heapwright.terminal_text import warn
from heapwright.workload.last_line import TAIL_BYTES, last_line

TIMEOUT_S = 10
_MAX_PRINTED = 4096  # bytes of the output of a command
_MAX_SHOWN = 60  # characters of it in a message
_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{.*\})?\s+(?P<value>\S+)(?:\s+\S+)?\s*$")

Source = Callable[[], tuple[float | None, float | None]]


class _FirstFailure:
    """Warns of the first failure of a source; a service that is down for hours would fill the terminal otherwise.

    Args:
        name: of the number.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._told = False

    def tell(self, group: str, why: str) -> None:
        """Warn that a group has no number, unless an earlier failure was told."""
        if not self._told:
            self._told = True
            warn(f"{self._name}: no number of the {group}: {why}. Further failures of {self._name} are not shown")


def of_command(text: str) -> tuple[str, str, Source]:
    """Return name, definition and source of `NAME=COMMAND`.

    The shell runs the command once for each group, with `{group}` replaced by control or treatment.

    Raises:
        UsageError: it has another form.
    """
    name, equals, command = text.partition("=")
    if not name or not equals or not command.strip():
        raise UsageError(f"--number '{text}' is not NAME=COMMAND", "for example --number 'errors=./errors.sh {group}'")
    if "{group}" not in command:
        raise UsageError(f"--number {name}: the command has no {{group}}", "it is replaced by control or treatment")

    failure = _FirstFailure(name)

    def ask(group: str) -> float | None:
        words = ["/bin/sh", "-c", command.replace("{group}", group)]
        value, why = None, ""
        try:
            with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as complaints:
                status = run_group(words, TIMEOUT_S, stdin=subprocess.DEVNULL, stdout=printed, stderr=complaints)
                if status:
                    complaints.seek(max(0, complaints.seek(0, os.SEEK_END) - TAIL_BYTES))
                    last = last_line(complaints.read().decode(errors="replace"))
                    why = describe_exit_status(status) + (f": {last}" if last else "")
                else:
                    printed.seek(0)
                    text = printed.read(_MAX_PRINTED).decode(errors="replace").strip()
                    value = _number(text)
                    why = f"the command printed '{text[:_MAX_SHOWN]}'" if value is None else ""
        except OSError as error:
            why = f"the command does not start: {error}"
        except subprocess.TimeoutExpired:
            why = f"the command did not end within {TIMEOUT_S} s"
        if why:
            failure.tell(group, why)
        return value

    return name, command, lambda: (ask("control"), ask("treatment"))


def of_prometheus(control: str, treatment: str, series: str) -> Source:
    """Return the source of a series of two endpoints in Prometheus's text format: the sum over its labels.

    Args:
        control, treatment: their URLs.
        series: the name of the series. Of a counter (a name that ends in _total, _sum or _count), the growth per second
            counts.
    """
    before: dict[str, tuple[float, float]] = {}  # by group
    counter = series.endswith(("_total", "_sum", "_count"))
    failure = _FirstFailure(series)

    def ask(group: str, url: str) -> float | None:
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
                value = sum_of_series(answer.read().decode(errors="replace"), series)
        except (OSError, ValueError, http.client.HTTPException) as error:  # it may restart during the answer
            reason = getattr(error, "reason", error)
            failure.tell(group, f"{url} cannot be read: {getattr(reason, 'strerror', None) or reason}")
            return None
        if value is None:
            failure.tell(group, f"{url} has no number of this series")
        if value is None or not counter:
            return value
        now = time.monotonic()
        then, last = before.get(group, (now, math.nan))
        before[group] = now, value
        return (value - last) / (now - then) if now > then and value >= last else None

    return lambda: (ask("control", control), ask("treatment", treatment))


def sum_of_series(text: str, series: str) -> float | None:
    """Return the sum of a series over its labels in Prometheus's text format; None if it has no finite value."""
    found = [
        value
        for line in text.splitlines()
        if (match := _SAMPLE.match(line)) and match["name"] == series and (value := _number(match["value"])) is not None
    ]
    return sum(found) if found else None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
