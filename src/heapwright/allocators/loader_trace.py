"""Asks the dynamic loader which malloc a program would get, without running the program.

    LD_TRACE_LOADED_OBJECTS=1 LD_WARN=yes LD_BIND_NOW=1 LD_DEBUG=bindings  LOADER PROGRAM

makes glibc's loader load a program's libraries, bind every symbol, write the bindings, and stop before the first
instruction of the program. It takes milliseconds. The bindings are those of the start: a library that is loaded later
may bring a malloc of its own, and the program may start others, which only a run can show.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from heapwright.allocators.program_file import read_program
from heapwright.allocators.registry import Allocator
from heapwright.allocators.takeover import Bindings, bindings, takeover_failure, watch_environment
from heapwright.errors import HeapwrightError
from heapwright.files import scratch_folder

_SECONDS = 20.0


def trace_bindings(program: str, env: Mapping[str, str], folder: Path) -> Bindings:
    """Whose malloc the files of a program are bound to when it starts.

    Args:
        program: a path, or a name on PATH; of a script its interpreter is asked.
        env: the whole environment that the program would have, the library to preload included.
        folder: an empty folder. The loader writes its log there.

    Returns:
        One process, or none where the loader cannot tell: see `trace_loading`, and programs whose own malloc may pass
        its calls on.
    """
    found = read_program(program)
    if found is None or found.passes_on:
        return []
    trace_loading(program, env, folder)
    return bindings(folder)


def trace_loading(program: str, env: Mapping[str, str], folder: Path) -> None:
    """Let the loader write all bindings of a program into a folder, without running the program.

    It writes nothing for static and set-user-ID programs, C libraries other than glibc, and programs for another
    machine.

    Args:
        program: a path, or a name on PATH; of a script its interpreter is asked.
        env: the whole environment that the program would have, the library to preload included.
        folder: an empty folder. The loader writes its log there.
    """
    found = read_program(program)
    if found is None or not found.loader or found.path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID):
        return
    asked = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_WARN": "yes", **watch_environment(folder)}
    with suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            [found.loader, os.path.realpath(found.path)],
            env={**env, **asked},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )


def check_loaded(allocator: Allocator, program: str, env: Mapping[str, str]) -> None:
    """Check that a program would get the malloc of an allocator that is preloaded, as far as its loader can tell.

    Args:
        allocator: the allocator.
        program: see `trace_bindings`.
        env: the whole environment that the program would have, the library to preload included.

    Raises:
        HeapwrightError: the program would get another malloc.
    """
    if not allocator.preload:
        return
    with scratch_folder() as folder:
        bound = trace_bindings(program, env, folder)
    if bound and (why := takeover_failure(allocator.library or "", program, bound)):
        raise HeapwrightError(f"{allocator.name} is {why}")
