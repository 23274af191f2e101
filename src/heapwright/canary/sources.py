"""Further numbers of a canary: the output of a command, or a series of a Prometheus endpoint."""

from __future__ import annotations

import math
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable

from heapwright.errors import UsageError

TIMEOUT_S = 10
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
        try:
            done = subprocess.run(
                ["/bin/sh", "-c", command.replace("{group}", group)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return _number(done.stdout) if done.returncode == 0 else None

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
        except (OSError, ValueError, urllib.error.URLError):
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
