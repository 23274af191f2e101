"""Tells the system's state of huge pages, and forbids them for a process.

The kernel has transparent huge pages (THP) in one of three states: `always`, `madvise` (a program asks for them), and
`never`. A process may go without them under `always` too (prctl PR_SET_THP_DISABLE); its children inherit that, also
through exec. No variable of a C library does this. So heapwright has a variable of its own: the meter and `heapwright
run` obey it before they start the program, and `heapwright apply` writes a preloaded library in its place.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

from heapwright.allocators.space_file import load_space_file
from heapwright.allocators.space_spec import SpaceFile
from heapwright.errors import HeapwrightError
from heapwright.files import NATIVE
from heapwright.platforms import INSIDE

VARIABLE = "HEAPWRIGHT_HUGE_PAGES"
FORBIDDEN = "never"
LIBRARY = "libheapwright-no-huge-pages.so"
PROCESS = "process"  # the name of the space with the settings of the process itself
_PR_SET_THP_DISABLE = 41  # linux/prctl.h
_ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_POOL = Path("/sys/kernel/mm/hugepages")


def thp_state() -> str:
    """Return 'always', 'madvise' or 'never'; empty if the kernel does not say."""
    try:
        text = _ENABLED.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    return text[text.find("[") + 1 : text.find("]")] if "[" in text else ""


def has_huge_page_pool() -> bool:
    """Return whether the system has a pool of huge pages (hugetlbfs), or may make one on demand."""
    for name in ("nr_hugepages", "nr_overcommit_hugepages"):
        for file in _POOL.glob(f"hugepages-*/{name}"):
            try:
                if int(file.read_text(encoding="ascii")) > 0:
                    return True
            except (OSError, ValueError):
                continue
    return False


@cache
def process_space() -> SpaceFile:
    """Return the space of the process itself, beside those of the allocators."""
    with as_file(files("heapwright.allocators") / "process.toml") as path:
        return load_space_file(path)


def are_forbidden(env: Mapping[str, str]) -> bool:
    """Return whether these variables forbid huge pages for the process."""
    return env.get(VARIABLE) == FORBIDDEN


def forbid_huge_pages() -> None:
    """Forbid transparent huge pages for this process and all programs that it starts or becomes.

    Raises:
        HeapwrightError: the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_THP_DISABLE, ctypes.c_ulong(1), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)):
        raise HeapwrightError(f"the kernel does not forbid huge pages: {os.strerror(ctypes.get_errno())}")


def with_library(env: Mapping[str, str], inside: bool = False) -> dict[str, str]:
    """Return variables that work without heapwright: a preloaded library takes the place of our variable.

    Args:
        env: the variables of a configuration.
        inside: whether they were measured in an image, so that libraries of ours have their paths there.
    """
    found = {key: value for key, value in env.items() if key != VARIABLE}
    if are_forbidden(env):
        folder = f"{INSIDE}/lib" if inside else str(NATIVE / "lib")
        found["LD_PRELOAD"] = ":".join(filter(None, (found.get("LD_PRELOAD", ""), f"{folder}/{LIBRARY}")))
    return found
