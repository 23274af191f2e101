"""Finds the command that runs a script without `#!`: /bin/sh, as execvp(3) does."""

from __future__ import annotations

import shutil
from collections.abc import Sequence


def under_shell(command: Sequence[str], path: str | None) -> list[str]:
    """Return the command that runs a script by /bin/sh, for a command that the kernel refused with ENOEXEC.

    Args:
        command: the script and its arguments.
        path: the value of PATH; None for this process's.
    """
    return ["/bin/sh", shutil.which(command[0], path=path) or command[0], *command[1:]]
