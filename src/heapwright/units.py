"""Formats quantities for people: bytes, times, rates and counts, each with its unit."""

from __future__ import annotations

MAX_PLAUSIBLE = 1e24  # no measured number of seconds, bytes or events is as large


def is_plausible(value: float) -> bool:
    """Whether a number can be a measurement: neither negative, nor too large, nor NaN."""
    return 0 <= value < MAX_PLAUSIBLE


def show_bytes(value: float) -> str:
    """1536 → '1.5 KiB'."""
    size = float(value)
    for unit, digits in (("B", 0), ("KiB", 1), ("MiB", 1)):
        if abs(round(size, digits)) < 1024:
            return f"{size:.{digits}f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"


def show_seconds(value: float) -> str:
    """0.0123 → '12.3 ms'."""
    if abs(value) < 0.99995:
        return f"{value * 1e3:.1f} ms"
    if abs(value) < 119.995:
        return f"{value:.2f} s"
    if abs(value) < 7197:
        return f"{value / 60:.1f} min"
    return f"{value / 3600:.1f} h" if abs(value) < 48 * 3600 else f"{value / 86400:.1f} d"


def percent_change(ratio: float) -> float:
    """The change that a ratio stands for, in per cent: 0.828 → −17.2."""
    return 100 * (ratio - 1)


def percent(ratio: float) -> str:
    """The change that a ratio stands for: 0.828 → '−17.2%'."""
    return f"{percent_change(ratio):+.1f}%".replace("-", "−")


def percent_interval(low: float, high: float) -> str:
    """The changes that the ends of a ratio's interval stand for: 0.816, 0.841 → '[−18.4, −15.9]'."""
    return f"[{percent_change(low):+.1f}, {percent_change(high):+.1f}]".replace("-", "−")


def show_latency(seconds: float) -> str:
    """A short time with three digits: 0.0000123 → '12.3 µs'."""
    if abs(seconds) >= 0.9995:
        return show_seconds(seconds)
    if abs(seconds) >= 0.9995e-3:
        return f"{three_digits(seconds * 1e3)} ms"
    return f"{three_digits(seconds * 1e6)} µs"


def show_rate(per_second: float) -> str:
    """12345 → '12.3 k/s'."""
    shown = three_digits(per_second) if abs(per_second) < 1e4 else show_count(per_second)
    return shown + ("/s" if " " in shown else " /s")


def show_estimate(seconds: float) -> str:
    """A time to come, for which two digits are enough: 95.2 → '2 min'."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def show_exactly(seconds: float) -> str:
    """A time that the user gave, not rounded: 90 → '90 s', 600 → '10 min'."""
    for length, unit in ((3600, "h"), (60, "min")):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:.10g} {unit}"
    return f"{seconds:.10g} s"


def show_budget(seconds: float) -> str:
    """A time of whole minutes in the notation of --budget: 600 → '10m', 7200 → '2h'."""
    return f"{seconds / 3600:g}h" if seconds >= 7200 or seconds % 3600 == 0 else f"{seconds / 60:g}m"


def show_count(value: float) -> str:
    """1234567 → '1.23 M'."""
    for limit, scale, unit in ((999.5e6, 1e9, "G"), (999.5e3, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= limit:
            return f"{three_digits(value / scale)} {unit}"
    return f"{value:.0f}"


def three_digits(value: float) -> str:
    """Three significant digits, more before the point, never an exponent."""
    return f"{value:.3g}" if 1e-3 < abs(value) < 999.5 else f"{value:.0f}"
