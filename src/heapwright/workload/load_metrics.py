"""Reads the output of a server's load: operations, throughput, latency and errors.

A load is a command such as wrk or redis-benchmark. `[server.load_metrics]` of a workload file names its format, or
gives a regular expression for each figure. Some tools print a part for each test, and a load may have several phases:
`combine` makes one figure of all parts.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

import msgspec

from heapwright.units import is_plausible

Format = Literal["", "wrk", "hey", "ab", "redis-benchmark", "k6", "json"]
LatencyUnit = Literal["ns", "us", "ms", "s"]

_NUMBER = r"(\d+(?:\.\d+)?)"
_TO_MS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "μs": 1e-3, "ms": 1.0, "s": 1e3, "m": 60e3}
_NUMBER_AND_UNIT = re.compile(r"([-+]?[\d,]*\.?\d+(?:[eE][-+]?\d+)?)\s*(ns|us|µs|μs|ms|s|m)?")
_K6_PERCENTILES = {"p50_ms": ("p(50)", "med"), "p95_ms": ("p(95)",), "p99_ms": ("p(99)",)}


class LoadMetrics(msgspec.Struct, forbid_unknown_fields=True):
    """How to read the output of a load.

    Attributes:
        format: a known tool; empty if the other keys say all.
        file: the file that the load writes, relative to the workload's directory; empty for its standard output.
        latency_unit: the unit of latencies that are printed without one; not for a known tool.
        operations: how many operations the whole load does; or how to read this number, like the keys below.
        throughput_per_s, p50_ms, p95_ms, p99_ms, load_errors: a regular expression whose first group is the number; the
            last match counts. With format 'json', the key in the object, with dots between levels.
    """

    format: Format = ""
    file: str = ""
    latency_unit: LatencyUnit = "ms"
    operations: int | str = ""
    throughput_per_s: str = ""
    p50_ms: str = ""
    p95_ms: str = ""
    p99_ms: str = ""
    load_errors: str = ""


@dataclass(frozen=True)
class Figures:
    """The figures of one part of a load; None for those that it did not print.

    Attributes:
        operations: how many were done.
        throughput_per_s: operations per second.
        p50_ms, p95_ms, p99_ms: latency in milliseconds.
        load_errors: operations that failed.
    """

    operations: float | None = None
    throughput_per_s: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    load_errors: float | None = None


FIGURES: tuple[str, ...] = tuple(f.name for f in fields(Figures))
_LATENCIES = ("p50_ms", "p95_ms", "p99_ms")


def own_keys(how: LoadMetrics) -> dict[str, str]:
    """Return the figures for which the workload file says how to read them, with the expression or the JSON key."""
    return {name: text for name in FIGURES if isinstance(text := getattr(how, name), str) and text}


def wrong_key(how: LoadMetrics) -> tuple[str, str] | None:
    """Return the key of `[server.load_metrics]` that is wrong, and why; None if all are right."""
    given = own_keys(how)
    if isinstance(how.operations, int) and how.operations < 1:
        return "operations", "must be at least 1"
    if not how.format and not given and not isinstance(how.operations, int):
        known = ", ".join(f"'{name}'" for name in get_args(Format) if name)
        return "format", f"neither a format nor a key is given; give a format ({known}) or a key such as operations"
    for name, text in given.items() if how.format != "json" else ():
        try:
            groups = re.compile(text).groups
        except re.error as error:
            return name, f"not a regular expression: {error}"
        if groups < 1:
            return name, "needs a group for the number, for example 'p99: ([0-9.]+) ms'"
    return None


def read_parts(text: str, how: LoadMetrics) -> list[Figures]:
    """Return the parts of one load's output that have a figure.

    Args:
        text: the load's standard output, or the content of its file.
        how: how to read it.
    """
    if how.format == "json":
        found = [_read_json(text, how)]
    else:
        found = (_READERS[how.format](text) if how.format else []) or [Figures()]
        own = {name: value for name in FIGURES if (value := _match(name, text, how)) is not None}
        if own:  # they count once, however many parts the text has
            found = [replace(part, **(dict.fromkeys(own) if number else own)) for number, part in enumerate(found)]
    return [part for part in map(_without_impossible, found) if part != Figures()]


def _without_impossible(part: Figures) -> Figures:
    """Return the figures without those that no load can have."""
    wrong = {name: None for name in FIGURES if (v := getattr(part, name)) is not None and not is_plausible(v)}
    return replace(part, **wrong) if wrong else part


def combine(parts: Sequence[Figures], operations: int | None, wall_s: float) -> Figures:
    """Return the figures of a whole load.

    Operations and errors are sums. Latencies are those of the slowest part, because quantiles of parts cannot be
    combined. Throughput is operations over time.

    Args:
        parts: of all its phases.
        operations: how many the workload file says that the load does; None if it does not.
        wall_s: the sum of its phases' wall time, in seconds.
    """
    done = operations if operations is not None else _total(p.operations for p in parts)
    rated = [(p.operations, p.throughput_per_s) for p in parts if p.throughput_per_s]
    if rated and all(p.throughput_per_s or p.operations is None for p in parts):
        # parts without a count have the same count: redis-benchmark --csv does not print it
        counted = all(count is not None for count, _ in rated)
        weights = [(count or 0.0) if counted else 1.0 for count, _ in rated]
        seconds = sum(weight / rate for weight, (_, rate) in zip(weights, rated, strict=True))
        throughput = sum(weights) / seconds if seconds else None
    else:
        throughput = done / wall_s if done is not None and wall_s > 0 else None
    slowest = [max((v for p in parts if (v := getattr(p, name)) is not None), default=None) for name in _LATENCIES]
    return _figures(done, throughput, slowest, _total(p.load_errors for p in parts))


def _figures(
    operations: float | None, rate: float | None, quantiles: Iterable[float | None], errors: float | None = None
) -> Figures:
    """Return figures; `quantiles` are the 50th, 95th and 99th percentiles in ms."""
    p50_ms, p95_ms, p99_ms = quantiles
    return Figures(operations, rate, p50_ms, p95_ms, p99_ms, errors)


def _total(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def _match(name: str, text: str, how: LoadMetrics) -> float | None:
    """Return the number that the file's own regular expression for a figure finds last; None if there is none."""
    pattern = getattr(how, name)
    if not isinstance(pattern, str) or not pattern:
        return None
    last = None
    for last in re.finditer(pattern, text, re.MULTILINE):  # noqa: B007 (the last match counts)
        pass
    return _number(name, last[1] or "", how.latency_unit) if last else None


def _number(name: str, text: str, unit: str) -> float | None:
    """Return a printed number: latencies in milliseconds, '1.2s' or in the unit given."""
    found = _NUMBER_AND_UNIT.fullmatch(text.strip())
    if found is None:
        return None
    value = float(found[1].replace(",", ""))
    return value * _TO_MS[found[2] or unit] if name in _LATENCIES else value


def _read_json(text: str, how: LoadMetrics) -> Figures:
    """Read one JSON object: the whole text, or its last line that is one."""
    content = _json_object(text)
    found: dict[str, float] = {}
    for name in FIGURES:
        key = getattr(how, name)
        value: Any = content
        for level in (key if isinstance(key, str) and key else name).split("."):
            value = value.get(level) if isinstance(value, dict) else None
        number = _number(name, str(value), how.latency_unit) if isinstance(value, int | float | str) else None
        if number is not None and not isinstance(value, bool):
            found[name] = number
    return Figures(**found)


def _json_object(text: str) -> dict[str, Any]:
    for candidate in (text, *(line for line in reversed(text.splitlines()) if line.lstrip().startswith("{"))):
        try:
            found = msgspec.json.decode(candidate)
        except (msgspec.DecodeError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return {}


def _first(pattern: str, text: str, scale: float = 1.0) -> float | None:
    found = re.search(pattern, text, re.MULTILINE)
    return float(found[1]) * scale if found else None


def _latency(pattern: str, text: str) -> float | None:
    """Return a latency in ms; the pattern's groups are the number and its unit."""
    found = re.search(pattern, text, re.MULTILINE)
    return float(found[1]) * _TO_MS[found[2]] if found else None


def _read_wrk(text: str) -> list[Figures]:
    """wrk: quantiles only with --latency, and never the 95th."""
    done = _first(r"^ *(\d+) requests in ", text)
    status = _first(r"Non-2xx or 3xx responses: (\d+)", text) or 0.0
    socket = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    errors = status + (sum(map(float, socket.groups())) if socket else 0.0)
    quantile = {q: _latency(rf"^ +{q}% +{_NUMBER}(us|ms|s|m)$", text) for q in (50, 99)}
    rate = _first(rf"^Requests/sec: +{_NUMBER}", text)
    return [Figures(done, rate, quantile[50], None, quantile[99], errors if done is not None else None)]


def _read_hey(text: str) -> list[Figures]:
    statuses = [
        (int(code), float(n)) for code, n in re.findall(r"^ +\[(\d{3})\]\s+(\d+) responses", text, re.MULTILINE)
    ]
    refused = sum(map(float, re.findall(r"^ +\[(\d+)\]", text.partition("Error distribution:")[2], re.MULTILINE)))
    quantiles = (_first(rf"^ +{q}%+ in {_NUMBER} secs", text, 1e3) for q in (50, 95, 99))
    if "Requests/sec:" not in text:
        return []
    failed = sum(n for code, n in statuses if code >= 400) + refused
    return [_figures(sum(n for _, n in statuses), _first(rf"Requests/sec:\s+{_NUMBER}", text), quantiles, failed)]


def _read_ab(text: str) -> list[Figures]:
    """ab's report. It counts an answer as failed if its length differs from the first one's, which is no error."""
    failed = _first(r"^Failed requests: +(\d+)", text)
    lengths = _first(r"^   \(Connect: .* Length: (\d+), ", text) or 0.0
    status = _first(r"^Non-2xx responses: +(\d+)", text) or 0.0
    return [
        _figures(
            _first(r"^Complete requests: +(\d+)", text),
            _first(rf"^Requests per second: +{_NUMBER}", text),
            (_first(rf"^ +{q}% +(\d+)$", text) for q in (50, 95, 99)),
            failed - lengths + status if failed is not None else None,
        )
    ]


def _read_redis_benchmark(text: str) -> list[Figures]:
    """redis-benchmark in each of its forms: the report, --csv, and -q, which prints no count and one quantile."""
    lines = text.replace("\r", "\n")
    if '"test","rps"' in lines:
        rows = csv.DictReader(io.StringIO(lines[lines.index('"test","rps"') :]))
        return [
            _figures(None, _float(row, "rps"), (_float(row, f"p{q}_latency_ms") for q in (50, 95, 99))) for row in rows
        ]
    parts = []
    for report in re.split(r"====== .* ======$", lines, flags=re.MULTILINE)[1:]:
        head = r"^ +avg +min +p50 +p95 +p99 +max\n +\S+ +\S+ +"
        quantiles = [_first(head + r"\S+ +" * at + _NUMBER, report) for at in range(3)]
        done = _first(r"^ +(\d+) requests completed in ", report)
        parts.append(_figures(done, _first(rf"throughput summary: {_NUMBER}", report), quantiles))
    for rate, median in re.findall(rf": {_NUMBER} requests per second(?:, p50={_NUMBER} msec)?", lines):
        if not lines.count("throughput summary"):
            parts.append(Figures(None, float(rate), float(median) if median else None))
    return parts


def _float(row: dict[str, str], key: str) -> float | None:
    try:
        value = float(row[key])
    except (KeyError, TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def _read_k6(text: str) -> list[Figures]:
    """k6: the file of --summary-export, or the data that handleSummary gets, where figures are under 'values'."""
    metrics = _json_object(text).get("metrics")
    if not isinstance(metrics, dict):
        return []

    def value(metric: str, *keys: str) -> float | None:
        found = metrics.get(metric)
        found = found.get("values", found) if isinstance(found, dict) else {}
        for key in keys:
            if isinstance(found, dict) and isinstance(number := found.get(key), int | float):
                return float(number)
        return None

    # http_req_failed is a rate of the value 'true': its 'passes' are the requests that failed
    count, errors = value("http_reqs", "count"), value("http_req_failed", "passes")
    # A request that is refused counts with a duration of 0.
    known = _K6_PERCENTILES.values() if errors is None or errors != count else ()
    quantiles = [value("http_req_duration", *keys) for keys in known] or [None] * len(_K6_PERCENTILES)
    return [_figures(count, value("http_reqs", "rate"), quantiles, errors)]


_READERS: dict[str, Callable[[str], list[Figures]]] = {
    "wrk": _read_wrk,
    "hey": _read_hey,
    "ab": _read_ab,
    "redis-benchmark": _read_redis_benchmark,
    "k6": _read_k6,
}
