"""Runs the native meter with one back end; the harness of its tests.

Figures are what tests/programs/behaviours.c does, in MiB, plus a few for the C library and the program itself.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..processes import PACE

MIB = 1 << 20
SMALL = 6 * MIB  # memory of a small C program besides its own allocations
BACKENDS = ("notify", "ptrace", "poll")
EXACT = ("notify", "ptrace")


class Ran(NamedTuple):
    status: int
    out: str
    err: str
    ledger: dict[str, Any]


class Meter:
    """The native meter with one back end, and behaviours.c."""

    def __init__(self, path: Path, backend: str, program: Path, folder: Path) -> None:
        self.path, self.backend, self.program, self.folder = path, backend, program, folder
        self.report = folder / "ledger.json"

    def words(self, command: Sequence[str | Path], *options: str) -> list[str | Path]:
        return [self.path, "--backend", self.backend, "--output", self.report, *options, "--", *command]

    def run(self, *command: str | Path, options: Sequence[str] = (), **more: Any) -> Ran:
        done = subprocess.run(
            self.words(command, *options), capture_output=True, text=True, check=False, timeout=60 * PACE, **more
        )
        return Ran(done.returncode, done.stdout, done.stderr, self.ledger() if self.report.exists() else {})

    def ledger(self) -> dict[str, Any]:
        """The output of the last run."""
        ledger: dict[str, Any] = json.loads(self.report.read_text())
        return ledger

    def behave(self, *arguments: str, options: Sequence[str] = ()) -> dict[str, Any]:
        """Run behaviours.c and check that it noticed no change of its behaviour."""
        ran = self.run(self.program, *arguments, options=options)
        assert (ran.status, ran.err) == (0, "")
        assert (ran.ledger["meter"], ran.ledger["exit_code"], ran.ledger["signal"]) == (self.backend, 0, None)
        return ran.ledger
