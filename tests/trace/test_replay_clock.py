"""The time that an allocator sees in a replay: that of the recording."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from heapwright.interleaving.replays import Replays
from heapwright.measure.meter import MeterOptions
from heapwright.workload.model import Input, Workload, WorkloadFile
from tests.trace.test_pack import parse
from tests.trace.test_replay import replay

SECOND = 10**9


def seen(program: Callable[..., Path], folder: Path, trace: Path, *words: str) -> list[list[int]]:
    """Replays a trace under a malloc that reads the clocks; returns what each block of 4242 bytes saw."""
    library = program("clock_reader", "-shared", "-fPIC")
    log = folder / "clock"
    log.unlink(missing_ok=True)
    replay(trace, "--set", f"LD_PRELOAD={library}", "--set", f"CLOCK_FILE={log}", *words)
    return [[int(number) for number in line.split()] for line in log.read_text().splitlines()]


def test_allocator_sees_recorded_time(program: Callable[..., Path], tmp_path: Path) -> None:
    times = [0, 10**6, 5 * SECOND, 65 * SECOND]
    trace = parse(tmp_path, "".join(f"{time} 0 malloc {number} 4242\n" for number, time in enumerate(times)))
    found = seen(program, tmp_path, trace)
    for column, units in ((0, 1), (1, 1000), (2, SECOND)):
        passed = [(row[column] - found[0][column]) * units for row in found]
        assert all(abs(a - b) <= units for a, b in zip(passed, times, strict=True)), (column, passed)


def test_real_pace_waits_for_the_recorded_time(program: Callable[..., Path], tmp_path: Path) -> None:
    trace = parse(tmp_path, f"0 0 malloc 0 4242\n{SECOND // 2} 0 malloc 1 4242\n")
    library = program("clock_reader", "-shared", "-fPIC")
    words = ("--set", f"LD_PRELOAD={library}", "--set", f"CLOCK_FILE={tmp_path / 'clock'}")
    found = replay(trace, "--pace", "real", *words)
    assert found["pace"] == "real"
    assert found["runs"][0]["calls_s"] >= 0.5


def test_time_of_threads_does_not_go_back(program: Callable[..., Path], tmp_path: Path) -> None:
    lines = ["0 1 thread_start\n"]
    lines += [f"{number * 10**7} {number % 2} malloc {number} 4242\n" for number in range(200)]
    found = seen(program, tmp_path, parse(tmp_path, "".join(lines)))
    assert len(found) == 200
    assert max(row[0] for row in found) - min(row[0] for row in found) == 199 * 10**7


@pytest.mark.parametrize(("program_s", "times"), [({}, 1), ({"in": 40.0}, 4), ({"in": 2.0}, 0.2), ({"other": 40.0}, 1)])
def test_allocator_sees_the_time_that_the_program_takes(
    program: Callable[..., Path], tmp_path: Path, program_s: dict[str, float], times: float
) -> None:
    """On a busy machine the program takes longer than recorded. Without the recorder it is faster."""
    trace = parse(tmp_path, f"0 0 malloc 0 4242\n{SECOND} 0 malloc 1 4242\n{10 * SECOND} 0 malloc 2 4242\n")
    input_, log = Input("in"), tmp_path / "clock"
    workload = Workload(WorkloadFile(command=["sh"], env={"CLOCK_FILE": str(log)}), tmp_path, (input_,))
    library = program("clock_reader", "-shared", "-fPIC")
    with Replays(workload, {"in": trace}, MeterOptions(), program_s=program_s) as replays:
        assert not replays.run(input_, {"LD_PRELOAD": str(library)}).failure
    seen_ns = [int(line.split()[0]) for line in log.read_text().splitlines()]
    assert [(ns - seen_ns[0]) / SECOND for ns in seen_ns] == pytest.approx([0, times, 10 * times], abs=0.001)
