"""Counts the instructions that malloc and free execute on arm64 and compares them with arm64_hot_path.golden.

qemu translates one instruction at a time and logs each. A commit that changes the counts must change the golden file,
too. The counts are those of the compiler that tools/platforms fixes.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import needs
from tests.platforms.conftest import Platform

GOLDEN = Path(__file__).with_name("arm64_hot_path.golden")
FUNCTIONS = ("malloc", "free", "operator new", "operator delete")
EXECUTED = re.compile(r"^Trace \d+: \S+ \[\w+/(\w+)/", re.MULTILINE)
NEAR = 1 << 20  # bytes: the program's own instructions are this near to main


def counts(platform: Platform, program: Path, library: Path, log: Path) -> dict[str, int]:
    """Runs the program, and returns the instructions of the last call of each function, with its `ret`."""
    command = [needs.command("qemu-aarch64"), "-L", platform.root, "-E", f"LD_PRELOAD={library}", "-singlestep"]
    command += ["-d", "exec,nochain", "-D", str(log), str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=280)
    places = {name: int(at, 16) for name, at in re.findall(r"^(.+) 0x(\w+)$", done.stdout, re.MULTILINE)}
    executed = [int(at, 16) for at in EXECUTED.findall(log.read_text())]
    found = {}
    for name in FUNCTIONS:
        first = len(executed) - 1 - executed[::-1].index(places[name])
        after = next(i for i in range(first, len(executed)) if abs(executed[i] - places["main"]) < NEAR)
        found[name] = after - first
    return found


def golden() -> dict[str, int]:
    """Platform, allocator and function → instructions."""
    lines = [line for line in GOLDEN.read_text().splitlines() if line and not line.startswith("#")]
    return {" ".join(words[:-1]): int(words[-1]) for words in map(str.split, lines)}


@pytest.mark.parametrize("built", ["aarch64-glibc", "aarch64-musl"], indirect=True)
@pytest.mark.parametrize("allocator", ["exgen", "reaper"])
def test_the_hot_path_has_the_golden_count(
    runnable: Platform, compiled: Callable[..., Path], allocator: str, tmp_path: Path
) -> None:
    library = runnable.library(allocator)
    found = counts(runnable, compiled(runnable, "hot_calls"), library, tmp_path / "log")
    rows = {f"{runnable.name} {allocator} {name}": count for name, count in found.items()}
    text = "\n".join(f"{name:40} {count:3}" for name, count in rows.items())
    assert rows.items() <= golden().items(), f"if it is meant to, put this into {GOLDEN.name}:\n{text}"


def test_the_golden_file_has_every_row() -> None:
    names = {f"aarch64-{libc} {a} {f}" for libc in ("glibc", "musl") for a in ("exgen", "reaper") for f in FUNCTIONS}
    assert set(golden()) == names
    assert max(golden().values()) < 40, "a hot path calls nothing"
