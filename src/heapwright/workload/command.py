"""Checks that a command can be started, and finds the shell for a script without `#!`."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from heapwright.errors import UsageError


def check_command(program: str, cwd: Path, search_path: str | None = None) -> None:
    """Check that a program can be started.

    Args:
        program: its name or path.
        cwd: where it starts.
        search_path: the value of PATH; None for this process's.

    Raises:
        UsageError: it is not found, is a directory, or is not executable.
    """
    if "/" in program:
        path = cwd / program
        if not path.exists():
            hint = _shell_hint(program, cwd, search_path) or (f"looked in {cwd}" if program[0] != "/" else "")
            raise UsageError(f"command not found: {program}", hint)
        if path.is_dir():
            raise UsageError(f"not a program: {program} is a directory")
        if not os.access(path, os.X_OK):
            raise UsageError(f"not executable: {program}", f"chmod +x {shlex.quote(program)}")
    elif shutil.which(program, path=search_path) is None:
        hint = f"did you mean ./{program}?" if (cwd / program).is_file() else "is it on PATH?"
        raise UsageError(f"command not found: {program}", _shell_hint(program, cwd, search_path) or hint)


def _shell_hint(program: str, cwd: Path, search_path: str | None) -> str:
    """Return what to do if a shell would understand the program's name: a whole line, or a variable; else empty."""
    first = (program.split() or [""])[0]
    name, sign, _ = program.partition("=")
    if sign and name.isidentifier():
        return "no shell reads the command: put env before it"
    if first != program and (shutil.which(first, path=search_path) or (cwd / first).is_file()):
        return f"no shell reads the command: leave out the quotes, or run sh -c {shlex.quote(program)}"
    return ""


def under_shell(command: Sequence[str], path: str | None) -> list[str]:
    """Return the command that runs a script by /bin/sh, for a command that the kernel refused with ENOEXEC.

    execvp(3) does the same.

    Args:
        command: the script and its arguments.
        path: the value of PATH; None for this process's.
    """
    return ["/bin/sh", shutil.which(command[0], path=path) or command[0], *command[1:]]
