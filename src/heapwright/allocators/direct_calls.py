"""Finds the allocations of a program that a recording cannot hold: those that it makes without calling malloc.

Some allocators have functions beside malloc's: jemalloc `mallocx`, mimalloc `mi_malloc`, TBB `scalable_malloc`. The
recorder stands before malloc, and sees no call of these. Where the allocator is a shared library, the loader says which
file calls them. Where it is linked into the program, its functions may have any name, and its texts show it
(`embedded`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from heapwright.allocators.embedded import embedded_name, find_embedded
from heapwright.allocators.loader_trace import trace_loading
from heapwright.allocators.program_file import read_program
from heapwright.allocators.takeover import bound_files
from heapwright.files import scratch_folder

# Functions that allocate, of jemalloc, mimalloc, TBB, tcmalloc and rpmalloc; some builds of jemalloc
# prefix theirs. Functions that only tell a size or set a mode have similar names.
_ALLOCATES = re.compile(
    r"(?:\w+_)?(?:mallocx|rallocx|smallocx)|mi_\w*(?:alloc|new)\w*(?<!_size)|scalable_\w*(?:alloc|memalign)"
    r"|tc_(?:\w*alloc|new\w*|\w*memalign)|rp(?:malloc|calloc|realloc|memalign|posix_memalign|aligned_\w*alloc)"
)


def allocates(name: str) -> bool:
    """Whether this is the name of a function of an allocator, beside malloc's, that allocates."""
    return bool(_ALLOCATES.fullmatch(name))


def unrecorded_calls(program: str, env: Mapping[str, str]) -> str:
    """Names the allocations that a recording of this program lacks, as a clause; empty if none are known.

    Args:
        program: a path, or a name on PATH. Its allocator may be asked for its version, which starts the program and
            ends it before `main`.
        env: see `direct_calls`.

    Returns:
        'jemalloc 5.3.0 is linked into it' or 'it calls mallocx of libjemalloc.so.2'.
    """
    embedded = find_embedded(program)
    return f"{embedded_name(embedded)} is linked into it" if embedded is not None else direct_calls(program, env)


def direct_calls(program: str, env: Mapping[str, str]) -> str:
    """Names a function of an allocator that a program calls beside malloc, as a clause; empty if none is known.

    The program does not run, so libraries that it loads later are not looked at.

    Args:
        program: a path, or a name on PATH; of a script its interpreter is looked at.
        env: the whole environment that the program would have.

    Returns:
        'it calls mallocx of libjemalloc.so.2'.
    """
    with scratch_folder() as folder:
        trace_loading(program, env, folder)
        calls = [call for log in bound_files(folder) for call in log]
    # A library that gives malloc to others, such as libtbbmalloc_proxy, is recorded at its malloc.
    proxies = {provider for _, provider, name in calls if name == "malloc"}
    found = read_program(program)
    itself = os.path.realpath(found.path) if found is not None else ""
    for user, provider, name in calls:
        if user not in (provider, *proxies) and allocates(name):
            who = "it calls" if os.path.realpath(user) == itself else f"its library {Path(user).name} calls"
            return f"{who} {name} of {Path(provider).name}"
    return ""
