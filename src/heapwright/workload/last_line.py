"""The last line that a program wrote, which often says why it failed."""

from __future__ import annotations

from heapwright.terminal_text import visible

TAIL_BYTES = 4096  # of a program's output, to find its last line
_MAX_CHARACTERS = 200


def last_line(text: str) -> str:
    """Return the last line that a program wrote, shortened and safe to print; empty if it wrote none."""
    lines = [line for line in text.strip().splitlines() if not line.startswith("heapwright-meter: ")]
    return visible(lines[-1].strip()[:_MAX_CHARACTERS]) if lines else ""
