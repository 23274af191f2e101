"""Asks the target's loader which glibc settings took effect, because glibc silently drops invalid ones."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping

from heapwright.allocators.program_file import read_program


def find_loader(program: str) -> str | None:
    """The dynamic loader (PT_INTERP) a program starts with; follows `#!`; None for static or unreadable ones."""
    found = read_program(program)
    return (found.loader or None) if found else None


def list_tunables(loader: str, env: Mapping[str, str]) -> dict[str, int]:
    """`ld.so --list-tunables` under this environment: 'glibc.malloc.mxfast' → 0; empty if there is no list."""
    try:
        done = subprocess.run(
            [loader, "--list-tunables"], env=dict(env), capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    return tunables_of(done.stdout)


def tunables_of(text: str) -> dict[str, int]:
    """Read the output of `ld.so --list-tunables`: 'glibc.malloc.mxfast' → 0."""
    found = re.findall(r"^([\w.]+): (0x[0-9a-f]+|-?\d+) \(min:", text, re.MULTILINE)
    return {name: int(value, 0) for name, value in found}


def effective_glibc(program: str, settings: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """Ask the program's loader for the settings in force: key → plain decimal.

    Args:
        program: path of the program.
        settings: key → value, as asked for.
        env: the variables that set them.

    Returns:
        Empty if the loader cannot tell: for a static program, or a glibc before 2.33 (no --list-tunables).
    """
    loader = find_loader(program)
    if loader is None or not settings:
        return {}
    tunables = list_tunables(loader, {**os.environ, **env})
    names = {key: f"glibc.malloc.{key}" for key in settings}
    return {key: str(tunables[name]) for key, name in names.items() if name in tunables}
