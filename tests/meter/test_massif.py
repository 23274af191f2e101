"""Compares --massif-compat with Massif itself, and the two event-driven back ends with each other.

The programs (tests/programs/massif_*.c) do the same in any address-space layout: Valgrind's is not the kernel's, so a
program whose calls depend on addresses differs between the two by itself, unless the meter imitates the layout:
test_massif_large.py has such programs. Each stays below Massif's 100 snapshots, after which Massif skips some.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import needs

from ..processes import alive, wait_for

PAGE = 4096
# Libraries of arm64 are aligned to 64 KiB. glibc maps more memory and unmaps the rest, and the
# number of these calls depends on addresses.
FIXED_ADDRESSES = ("setarch", "-R") if platform.machine() == "aarch64" else ()

# vgpreload_core.so (20,480 + 4,096 + 4,096 + 8,192) and the page Valgrind keeps below the first
# stack pointer on amd64; see native/meter/massif.h.
MASSIF_CONSTANT = 40_960


class Case(NamedTuple):
    program: str
    arenas: int = 1
    padding: int = 0  # bytes of environment: the initial stack counts

    def __str__(self) -> str:
        arenas = f"-{self.arenas}-arenas" if self.arenas > 1 else ""
        return self.program + arenas + (f"-env-{self.padding}" if self.padding else "")


CASES = [
    Case("brk"),
    Case("dlopen"),
    Case("fixed"),
    Case("fork"),
    Case("grow"),
    Case("leak_loop"),
    Case("malloc"),
    Case("mremap"),
    Case("munmap"),
    Case("shm"),
    Case("threads"),
    Case("threads", arenas=2),
    Case("grow", padding=3000),
    Case("grow", padding=3600),
]


def environment(case: Case) -> dict[str, str]:
    """Return a small environment, the same for both, without variables of the caller's shell."""
    padding = {"PADDING": "x" * case.padding} if case.padding else {}
    return {"PATH": os.environ["PATH"], "MALLOC_ARENA_MAX": str(case.arenas), **padding}


def run_meter(meter: Path, report: Path, case: Case, path: Path, *options: str) -> dict[str, Any]:
    command: list[str | Path] = [*FIXED_ADDRESSES, meter, "--output", report, *options, "--", path]
    subprocess.run(command, env=environment(case), check=True, timeout=120)
    ledger: dict[str, Any] = json.loads(report.read_text())
    return ledger


def massif_peak(out: Path, case: Case, path: Path) -> int:
    """Return max(mem_heap_B) over all snapshots of the real Massif; its own 'peak' label can be stale."""
    valgrind = needs.command("valgrind")
    options = ["--tool=massif", "--pages-as-heap=yes", "--peak-inaccuracy=0.0", f"--massif-out-file={out}", "-q"]
    subprocess.run([valgrind, *options, path], env=environment(case), check=True, timeout=240)
    heaps = [int(heap) for heap in re.findall(r"^mem_heap_B=(\d+)$", out.read_text(), re.M)]
    assert 0 < len(heaps) < 100, "Massif skips snapshots from 100 on: make the program shorter"
    return max(heaps)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.few(7)
def test_massif_peak_equals_that_of_massif(
    case: Case, meter: Path, program: Callable[..., Path], tmp_path: Path
) -> None:
    path = program(f"massif_{case.program}")
    ledger = run_meter(meter, tmp_path / "meter.json", case, path, "--massif-compat")
    assert ledger["meter"] == "ptrace"
    assert massif_peak(tmp_path / "massif.out", case, path) - ledger["massif_peak_bytes"] == MASSIF_CONSTANT


@pytest.mark.parametrize("case", [case for case in CASES if not case.padding and case.arenas == 1], ids=str)
def test_ptrace_agrees_with_notify(case: Case, meter: Path, program: Callable[..., Path], tmp_path: Path) -> None:
    path = program(f"massif_{case.program}")
    by_ptrace, by_notify = (
        run_meter(meter, tmp_path / f"{backend}.json", case, path, "--backend", backend)
        for backend in ("ptrace", "notify")
    )
    assert by_ptrace["meter"] == "ptrace"
    if by_notify["meter"] != "notify":
        needs.machine_cannot("use seccomp user notification")
    for exact in ("mapping_calls", "processes"):
        assert by_ptrace[exact] == by_notify[exact], exact
    # Which mappings of parent and child coincide is a race; those of the parent have 20 MiB.
    race = (20 << 20) if case.program == "fork" else 0

    def agree(metric: str, pages: int) -> None:
        assert by_ptrace[metric] == pytest.approx(by_notify[metric], abs=race + pages * PAGE), metric

    agree("peak_vm_bytes", 1)  # the offset of the stack in its page
    # The meter tells thread stacks from the heap by observed calls. Resident memory also depends on
    # how many pages the kernel maps around a fault.
    agree("peak_heap_bytes", 16)
    agree("peak_rss_bytes", 128)


# Programs that check how their children and threads end, and fail if a tracer changes it.
@pytest.mark.parametrize("options", [("--backend", "ptrace"), ("--massif-compat",)], ids=" ".join)
@pytest.mark.parametrize("name", ["exec_thread", "signals"])
def test_the_output_is_the_same_under_tracing(
    name: str, options: tuple[str, ...], meter: Path, program: Callable[..., Path], tmp_path: Path
) -> None:
    ledger = run_meter(meter, tmp_path / "meter.json", Case(name), program(f"massif_{name}"), *options)
    assert (ledger["meter"], ledger["exit_code"], ledger["signal"]) == ("ptrace", 0, None)


def test_a_killed_meter_takes_its_tracees_along(meter: Path, tmp_path: Path) -> None:
    # Without a tracer their mapping calls would fail, so they must end rather than continue with
    # errors.
    script = f"echo $$ >{tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; while :; do sleep 1; done"
    running = subprocess.Popen([meter, "--backend", "ptrace", "--", "sh", "-c", script])
    try:
        wait_for((tmp_path / "pid").exists)
        target = int((tmp_path / "pid").read_text())
        running.kill()
        running.wait()
        wait_for(lambda: not alive(target))
    finally:
        running.kill()
