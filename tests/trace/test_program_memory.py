"""Compares predictions with what their recordings measured of the program."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from heapwright.interleaving.replays import Replays, recorded_replays
from heapwright.measure.meter import MeterOptions
from heapwright.trace.info import read_info
from heapwright.trace.pack import native_program
from heapwright.trace.program_memory import ProgramMemory, misfit, program_memory
from heapwright.trace.recordings import Recordings, read_recordings, recorded_workload
from heapwright.trace.replay_report import Reading, Report
from tests.trace.recording import heapwright_record

MIB = 1 << 20


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory, program: Callable[..., Path]) -> Path:
    """The recording of a program that has 32 MiB of its own for a part of its time."""
    folder = tmp_path_factory.mktemp("recorded")
    done = heapwright_record("-o", "own.hwt", "--", program("maps_for_a_while"), folder=folder)
    assert done.returncode == 0, done.stderr
    return folder / "own.hwt"


def test_each_metric_begins_at_what_the_recording_measured(trace: Path) -> None:
    workload = recorded_workload([trace])
    recordings = read_recordings(workload)
    [memory] = recordings.program_memory.values()
    assert memory.peak_bytes > 32 * MIB
    assert memory.mean_bytes < 26 * MIB, "the mapping is there for a part of the time"
    assert memory.mean_bytes < memory.p95_bytes <= memory.peak_bytes
    with recorded_replays(workload, MeterOptions(), recordings.program_memory) as replays:
        metrics = replays.run(workload.inputs[0], {}).run.metrics
    for metric, bytes_ in memory.by_metric().items():
        if metrics.get(metric) is not None:
            assert metrics[metric] == pytest.approx(bytes_, abs=2 * MIB), metric


def test_a_replay_that_fits_its_recording_has_no_misfit(trace: Path) -> None:
    workload = recorded_workload([trace])
    recordings = read_recordings(workload)
    [memory] = recordings.program_memory.values()
    assert memory.exact, "under glibc the recorder measures malloc's memory"
    with recorded_replays(workload, MeterOptions(), recordings.program_memory) as replays:
        replays.prepare(workload.inputs[0])
    recordings.note_misfits(replays.misfits)
    assert recordings.misfit < 0.03


def test_a_replay_that_misses_its_recording_is_noticed(trace: Path) -> None:
    """Readings of malloc's memory that are 16 MiB higher: the replay has less than the program had."""
    workload = recorded_workload([trace])
    recordings = read_recordings(workload)
    [(name, memory)] = recordings.program_memory.items()
    more = replace(memory, malloc=tuple((at, size + 16 * MIB) for at, size in memory.malloc))
    with Replays(workload, {name: trace}, MeterOptions(), program_memory={name: more}) as replays:
        replays.prepare(workload.inputs[0])
    assert replays.misfits[name] == pytest.approx(16 * MIB / memory.peak_bytes, abs=0.05)
    recordings.note_misfits(replays.misfits)
    assert recordings.misfit > 0.3


def report(*resident_mib: int) -> Report:
    """The report of a replay with a reading each second."""
    readings = [Reading(0 if i == 0 else 10**9, size * MIB, 0, 0) for i, size in enumerate(resident_mib)]
    return Report(0, 0, 1, 0, readings)


@pytest.mark.parametrize(
    ("exact", "malloc_mib", "share"),
    [(True, 10, 0.0), (True, 5, 0.1), (True, 15, 0.1), (False, 5, 0.1), (False, 15, 0)],
)
def test_private_memory_only_bounds_what_malloc_has(exact: bool, malloc_mib: int, share: float) -> None:
    memory = ProgramMemory(50 * MIB, malloc=((1.4, malloc_mib * MIB), (1.5, malloc_mib * MIB)), exact=exact)
    assert misfit(memory, report(2, 12, 12)) == pytest.approx(share)


def test_memory_of_a_parent_is_not_that_of_the_replay(trace: Path) -> None:
    info, _ = read_info(trace)
    plain = program_memory(info)
    assert plain is not None
    info.forked = True
    info.resident_curve.heap_bytes[0] = 4 * MIB  # of the parent
    info.resident_curve.heap_bytes[1:] = [
        None if size is None else size + 4 * MIB for size in info.resident_curve.heap_bytes[1:]
    ]
    forked = program_memory(info)
    assert forked is not None
    assert max(size for _, size in forked.malloc) == max(size for _, size in plain.malloc)


def test_many_readings_are_thinned_and_those_of_malloc_stay(tmp_path: Path) -> None:
    lines = ["1000 0 malloc 0 100"]
    for number in range(5000):
        if number in (1234, 3333, 4998):
            lines.append(f"{2000 + number * 1000} 0 heap {number}")
        lines += [f"{2000 + number * 1000} 0 {kind} {bytes_}" for kind, bytes_ in (("files", 7), ("resident", number))]
    (tmp_path / "text").write_text("\n".join([*lines, "9000000 0 free 0"]) + "\n")
    words: list[str | Path] = [native_program("heapwright-trace"), "parse", tmp_path / "text", tmp_path / "many.hwt"]
    subprocess.run(words, check=True)
    info, _ = read_info(tmp_path / "many.hwt")
    curve = info.resident_curve
    assert 512 <= len(curve.resident_bytes) <= 1024
    assert [size for size in curve.heap_bytes if size is not None] == [1234, 3333, 4998]
    assert curve.resident_bytes == sorted(curve.resident_bytes)
    memory = program_memory(info)
    assert memory is not None
    assert memory.mean_bytes == pytest.approx(2500, rel=0.02)
    assert memory.p95_bytes == pytest.approx(4750, rel=0.02)


def test_a_recording_without_readings_tells_nothing() -> None:
    assert misfit(ProgramMemory(50 * MIB), report(2, 12)) is None
    assert Recordings().misfit == 0
