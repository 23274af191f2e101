"""Measures whether the machine's huge pages are cold: whether the first touch of one is much slower than later touches.

The memory of a fresh virtual machine is often not there yet: the host adds each page when the guest touches it first.
For a 2 MiB page that takes up to milliseconds, and then huge pages look slow. After that the page is warm until the
machine ends, whichever process has it.

Two fresh mappings are touched one after the other. The kernel gives the second one the pages of the first, which has
been unmapped. So the first touch includes the host's work, and the second one does not.
"""

from __future__ import annotations

import ctypes
import mmap
import re
import statistics
import time
from pathlib import Path
from typing import Any

from heapwright.terminal_text import counted

HUGE_BYTES = 2 << 20
_PAGES = 128
_MEMORY_SHARE = 16  # at most one part in so many of the available memory
_LIMIT_S = 0.25  # of touching a mapping
_COLD_S = 0.001  # a median above this,
_COLD_RATIO = 3.0  # and above so many times that of warm pages, is cold
_MIN_PAGES = 4


def measure_cold_pages(pages: int = _PAGES) -> dict[str, Any] | None:
    """Touch some huge pages twice. It needs up to 256 MiB of memory for a moment.

    Args:
        pages: how many, at most; fewer if that takes too long.

    Returns:
        `pages` touched, medians `first_touch_s` and `again_s` in seconds for a page, `slow_pages` (first touches above
        a millisecond), and `cold`. None if the kernel gives no huge pages.
    """
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    first = _touch(min(pages, _available_bytes() // _MEMORY_SHARE // HUGE_BYTES))
    again = _touch(len(first)) if first else []
    if len(first) < _MIN_PAGES or len(again) < _MIN_PAGES:
        return None
    slow = sum(seconds > _COLD_S for seconds in first)
    once, twice = statistics.median(first), statistics.median(again)
    # Part of the memory may be warm: then the median is that of warm pages, and only some pages are
    # slow.
    cold = once > max(_COLD_S, _COLD_RATIO * twice) or (
        slow >= len(first) / 4 and slow > 2 * sum(seconds > _COLD_S for seconds in again)
    )
    return {"pages": len(first), "first_touch_s": once, "again_s": twice, "slow_pages": slow, "cold": cold}


def _available_bytes() -> int:
    """Return the memory that can be used without swapping; 0 if the kernel does not say."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    found = re.search(r"^MemAvailable:\s*(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def cold_sentence(found: dict[str, Any]) -> str:
    """Return the measurement as a sentence."""
    once, twice = (f"{1e3 * found[key]:.2g} ms" for key in ("first_touch_s", "again_s"))
    state = "cold" if found["cold"] else "warm"
    return (
        f"Huge pages were {state} before the runs: the first touch of one took {once}, the next {twice} (medians of"
        f" {counted(found['pages'], 'page')})."
    )


def _touch(pages: int) -> list[float]:
    """Map fresh memory and touch each of its huge pages; return the seconds of each, none if they are small pages."""
    with mmap.mmap(-1, (pages + 1) * HUGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        view = ctypes.c_char.from_buffer(memory)
        address = ctypes.addressof(view)
        del view  # the mapping cannot be closed while it is referred to
        start = -address % HUGE_BYTES
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            return []
        took: list[float] = []
        began = time.perf_counter()
        before = began
        for at in range(start, start + pages * HUGE_BYTES, HUGE_BYTES):
            memory[at] = 1
            now = time.perf_counter()
            took.append(now - before)
            before = now
            if now - began > _LIMIT_S:
                break
        huge = _huge_bytes(address, len(memory))
        return took if huge is None or huge >= len(took) * HUGE_BYTES // 2 else []


def _huge_bytes(address: int, size: int) -> int | None:
    """Return the bytes in huge pages of the mappings in a range of addresses; None if they cannot be read."""
    found, inside = 0, False
    try:
        with Path("/proc/self/smaps").open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                word = line.split(maxsplit=1)[0]
                if not word.endswith(":"):
                    start, _, end = word.partition("-")
                    inside = int(start, 16) < address + size and int(end, 16) > address
                elif inside and word == "AnonHugePages:":
                    found += int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return None
    return found
