"""Counts instructions without hardware counters, in one run under callgrind: repeatable, but 10 to 20 times slower."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from heapwright.errors import HeapwrightError


def count_instructions(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: Path | None = None,
    status: int = 0,
) -> float | None:
    """Count the user instructions (callgrind's Ir) of a command and its children, summed over processes.

    Args:
        command: the program and its arguments.
        env: its environment; None for ours.
        cwd: its directory; None for ours.
        stdin: a file; None for /dev/null.
        status: the expected exit status; 128 + signal if a signal should end the command.

    Returns:
        The count; None if the command ended with another status. Some allocators reserve more address space than
        valgrind can give, which ends the program at its start.

    Raises:
        HeapwrightError: valgrind is missing or wrote no profile.
    """
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise HeapwrightError("--instructions=callgrind needs valgrind", "sudo apt-get install -y valgrind")
    with tempfile.TemporaryDirectory(prefix="heapwright-") as folder:
        source = stdin.open("rb") if stdin else None
        words = [valgrind, "--tool=callgrind", "--trace-children=yes", "--quiet"]
        words += [f"--callgrind-out-file={folder}/out.%p", "--", *command]
        try:
            done = subprocess.run(
                words,
                env=dict(env) if env is not None else None,
                cwd=cwd,
                stdin=source or subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )
        finally:
            if source:
                source.close()
        totals = [
            int(match[1])
            for path in Path(folder).iterdir()
            if (match := re.search(r"^(?:totals|summary): (\d+)", path.read_text(errors="replace"), re.M))
        ]
    if not totals:
        raise HeapwrightError(f"callgrind counted nothing for {command[0]}", "does it run under valgrind?")
    ended = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return float(sum(totals)) if ended == status else None
