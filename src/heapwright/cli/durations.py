"""Parses durations and percentages of the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from heapwright.errors import UsageError


def duration(text: str) -> float:
    """Parse a time, such as 500ms, 90s, 30m or 6h, into seconds (an argparse type). A number alone is seconds."""
    from heapwright.study.options import parse_budget

    number = text.removesuffix("ms")
    scale = 1.0 if number == text else 1e-3
    try:
        _, length = parse_budget(f"{number}s" if number[-1:].isdecimal() else text)
    except UsageError:
        length = 0.0
    if not length:
        raise argparse.ArgumentTypeError(f"'{text}' is not a time above 0, such as 90s, 30m or 6h")
    return scale * length


def percentage(bounds: str, allowed: Callable[[float], bool]) -> Callable[[str], float]:
    """Return an argparse type that parses a percentage, such as 5 or 5%, into a share.

    Args:
        bounds: the allowed values in words, such as 'from 0 to 50'.
        allowed: whether a number of per cent is allowed.
    """

    def parse(text: str) -> float:
        try:
            value = float(text.removesuffix("%"))
        except ValueError:
            value = -1.0
        if not allowed(value):
            raise argparse.ArgumentTypeError(f"'{text}' is not a percentage {bounds}")
        return value / 100

    return parse
