"""The meter's figures of huge pages are those that the program reads itself, and it can forbid huge pages."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from heapwright.measure.host import describe_host
from tests import needs

from .harness import MIB, Meter

CHUNK = 2 * MIB
HEAP = 32  # MiB

Heap = Callable[..., Path]


@pytest.fixture
def heap(program: Heap) -> Path:
    if describe_host()["thp"] not in ("madvise", "always"):
        needs.machine_cannot("use transparent huge pages: the kernel has none, or they are off")
    return program("huge_heap")


def test_huge_pages_are_counted(any_meter: Meter, heap: Path) -> None:
    ran = any_meter.run(heap, str(HEAP), "huge", options=["--series", "50"])
    said, ledger = int(ran.out), ran.ledger
    if said < HEAP * MIB // 2:
        needs.machine_cannot(f"give {HEAP} MiB of huge pages: memory is too fragmented")
    assert abs(ledger["huge_bytes"] - said) <= CHUNK
    assert 0 < ledger["mean_huge_bytes"] <= ledger["huge_bytes"] <= ledger["peak_rss_bytes"]
    assert 0.5 < ledger["huge_share"] <= 1
    assert ledger["system_thp_faults"] >= said // CHUNK
    assert ledger["system_thp_collapses"] >= 0
    assert max(ledger["series"]["huge"]) == ledger["huge_bytes"]
    assert len(ledger["series"]["huge"]) == len(ledger["series"]["t"])


def test_small_pages_are_none(any_meter: Meter, heap: Path) -> None:
    ran = any_meter.run(heap, str(HEAP), "small")
    assert int(ran.out) <= CHUNK
    assert ran.ledger["huge_bytes"] <= CHUNK
    assert ran.ledger["huge_share"] < 0.1


def test_readings_for_proportional_memory_count_huge_pages(any_meter: Meter, heap: Path) -> None:
    ran = any_meter.run(heap, str(HEAP), "huge", options=["--pss"])
    if int(ran.out) < HEAP * MIB // 2:
        needs.machine_cannot(f"give {HEAP} MiB of huge pages: memory is too fragmented")
    assert ran.ledger["huge_samples"] == ran.ledger["pss_samples"]
    assert ran.ledger["huge_cpu_s"] == 0
    assert abs(ran.ledger["huge_bytes"] - int(ran.out)) <= CHUNK


def test_the_environment_forbids_huge_pages(any_meter: Meter, heap: Path) -> None:
    env = {**os.environ, "HEAPWRIGHT_HUGE_PAGES": "never"}
    ran = any_meter.run(heap, str(HEAP), "huge", env=env)
    assert (int(ran.out), ran.ledger["huge_bytes"]) == (0, 0)
    inherited = any_meter.run("/bin/sh", "-c", '"$0" 32 huge & wait', heap, env=env)  # through fork and exec
    assert int(inherited.out) == 0


def test_a_run_too_short_for_a_reading_has_no_figure(meter_with: Callable[[str], Meter]) -> None:
    ledger = meter_with("poll").run("/bin/true", options=["--interval-ms", "5000"]).ledger
    assert (ledger["huge_bytes"], ledger["mean_huge_bytes"], ledger["huge_share"]) == (None, None, None)
