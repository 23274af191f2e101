"""Further numbers of a canary: the output of a command, or a series of a Prometheus endpoint."""

from __future__ import annotations

import http.client
import math
import re
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable

from heapwright.errors import UsageError
from heapwright.measure.process_group import run_group

TIMEOUT_S = 10
_MAX_PRINTED = 4096  # bytes of the output of a command
_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{.*\})?\s+(?P<value>\S+)(?:\s+\S+)?\s*$")

Source = Callable[[], tuple[float | None, float | None]]


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

    def ask(group: str) -> float | None:
        words = ["/bin/sh", "-c", command.replace("{group}", group)]
        nothing = subprocess.DEVNULL
        try:
            with tempfile.TemporaryFile() as printed:
                status = run_group(words, TIMEOUT_S, stdin=nothing, stdout=printed, stderr=nothing)
                printed.seek(0)
                text = printed.read(_MAX_PRINTED).decode(errors="replace")
        except (OSError, subprocess.TimeoutExpired):
            return None
        return _number(text) if status == 0 else None

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

    def ask(group: str, url: str) -> float | None:
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
                value = sum_of_series(answer.read().decode(errors="replace"), series)
        except (OSError, ValueError, http.client.HTTPException):  # it may restart during the answer
            return None
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
