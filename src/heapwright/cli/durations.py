"""Parses durations of the command line."""

from __future__ import annotations

import argparse

from heapwright.errors import UsageError


def duration(text: str) -> float:
    """Parse a time, such as 90s, 30m or 6h, into seconds (an argparse type). A number alone is seconds."""
    from heapwright.study.options import parse_budget

    try:
        _, length = parse_budget(f"{text}s" if text[-1:].isdecimal() else text)
    except UsageError:
        length = 0.0
    if not length:
        raise argparse.ArgumentTypeError(f"'{text}' is not a time above 0, such as 90s, 30m or 6h")
    return length
