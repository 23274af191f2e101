"""Finds the allocations of a program that a recording cannot hold: those that it makes without calling malloc.

Some allocators have functions beside malloc's: jemalloc `mallocx`, mimalloc `mi_malloc`, TBB `scalable_malloc`. The
recorder stands before malloc, and sees no call of these. Where the allocator is a shared library, the loader says which
file calls them. Where it is linked into the program, its functions may have any name, and its texts show it
(`embedded`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from heapwright.allocators.embedded import embedded_name, find_embedded
from heapwright.allocators.loader_trace import trace_loading
from heapwright.allocators.takeover import ALL, bound_files
from heapwright.files import scratch_folder

# Functions that allocate, of jemalloc, mimalloc, TBB, tcmalloc and rpmalloc; some builds of jemalloc
# prefix theirs.
_ALLOCATES = re.compile(
    r"(?:\w+_)?(?:mallocx|rallocx)|mi_\w*(?:alloc|new)\w*|scalable_\w*(?:alloc|memalign)\w*"
    r"|tc_(?:\w*alloc|new\w*|memalign)|rp(?:malloc|calloc|realloc|aligned_alloc)"
)


def unrecorded_calls(program: str, env: Mapping[str, str]) -> str:
    """Says which allocations of a program a recording does not hold, as a clause; empty if none are known.

    Only what is loaded when the program starts is looked at, and the program does not run.

    Args:
        program: a path, or a name on PATH.
        env: the whole environment that the program would have.

    Returns:
        'jemalloc 5.3.0 is linked into it' or 'it calls mallocx of libjemalloc.so.2'.
    """
    embedded = find_embedded(program, ask=False)
    if embedded is not None:
        return f"{embedded_name(embedded)} is linked into it"
    with scratch_folder() as folder:
        trace_loading(program, env, folder)
        calls = [call for log in bound_files(folder, ALL) for call in log]
    # A library that gives malloc to others, such as libtbbmalloc_proxy, is recorded at its malloc.
    proxies = {provider for _, provider, name in calls if name == "malloc"}
    for user, provider, name in calls:
        if user not in (provider, *proxies) and _ALLOCATES.fullmatch(name):
            who = "it calls" if Path(user).name == Path(program).name else f"its library {Path(user).name} calls"
            return f"{who} {name} of {Path(provider).name}"
    return ""
