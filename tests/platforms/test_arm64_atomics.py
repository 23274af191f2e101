"""The libraries for arm64 use LSE atomics where the processor has them, and exclusive loads and stores elsewhere."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import needs
from tests.platforms.conftest import Platform

# qemu's disassembler prints instructions that it does not know as bytes.
BYTES = re.compile(r"\.byte\s+0x(\w\w), 0x(\w\w), 0x(\w\w), 0x(\w\w)$", re.MULTILINE)
# The bits that all forms of LSE's compare-and-swap have, and their values. musl and the program
# themselves have none.
MASK, COMPARE_AND_SWAP = 0x3FA07C00, 0x08A07C00


def compare_and_swaps(platform: Platform, processor: str, program: Path, library: Path, log: Path) -> int:
    """Runs a program with threads on an emulated processor, and counts the instructions that qemu translated."""
    command = [needs.command("qemu-aarch64"), "-cpu", processor, "-L", platform.root, "-E", f"LD_PRELOAD={library}"]
    command += ["-d", "in_asm", "-D", str(log), str(program), *platform.cases]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=280)
    assert done.stdout.startswith("ok ")
    found = [int("".join(reversed(each)), 16) for each in BYTES.findall(log.read_text())]
    return sum(word & MASK == COMPARE_AND_SWAP for word in found)


@pytest.mark.parametrize("built", ["aarch64-musl"], indirect=True)
@pytest.mark.parametrize("name", ["exgen", "reaper"])
def test_the_processor_decides_which_atomic_instructions_run(
    runnable: Platform, compiled: Callable[..., Path], name: str, tmp_path: Path
) -> None:
    if not runnable.foreign:
        needs.machine_cannot("choose its processor")
    program, library = compiled(runnable, "platform_cases"), runnable.library(name)
    assert compare_and_swaps(runnable, "neoverse-n1", program, library, tmp_path / "new") > 0
    assert compare_and_swaps(runnable, "cortex-a72", program, library, tmp_path / "old") == 0
