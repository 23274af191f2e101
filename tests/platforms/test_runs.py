"""On each platform: programs run under the allocators, and a replay has the counts of the recording."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import needs
from tests.platforms.conftest import LIBRARIES, Platform

CASES = re.compile(r"ok (\d+)\n")


def test_the_cases_pass_without_a_library(runnable: Platform, compiled: Callable[..., Path]) -> None:
    done = runnable.run(compiled(runnable, "platform_cases"), *runnable.cases)
    assert (done.returncode, done.stderr) == (0, "")
    assert CASES.fullmatch(done.stdout)


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_cases_pass_with_a_preloaded_library(runnable: Platform, compiled: Callable[..., Path], name: str) -> None:
    variable = name.partition("-")[0].upper() + "_OPTIONS"
    program = compiled(runnable, "platform_cases")
    done = runnable.run(program, *runnable.cases, preload=runnable.library(name), env={variable: "stats=1"})
    assert done.returncode == 0, done.stderr
    assert CASES.fullmatch(done.stdout)
    assert " bytes live (" in done.stderr  # the library was there
    assert "failed" not in done.stderr


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_cases_pass_in_a_static_program(runnable: Platform, compiled: Callable[..., Path], name: str) -> None:
    library = str(runnable.folder / f"lib/lib{name}.a")
    path = compiled(runnable, "platform_cases", "-static", "-Wl,-u,heapwright_thread_functions", library)
    variable = name.partition("-")[0].upper() + "_OPTIONS"
    done = runnable.run(path, *runnable.cases, env={variable: "stats=1"})
    assert done.returncode == 0, done.stderr
    assert CASES.fullmatch(done.stdout)
    assert " bytes live (" in done.stderr


def test_the_cases_are_recorded_and_replayed(runnable: Platform, compiled: Callable[..., Path], tmp_path: Path) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    program = compiled(runnable, "platform_cases")
    env = {"HEAPWRIGHT_RECORD": str(folder)}
    done = runnable.run(program, *runnable.cases, preload=runnable.library("heapwright-record"), env=env)
    assert (done.returncode, done.stderr) == (0, "")
    found = CASES.fullmatch(done.stdout)
    assert found
    raws = sorted(folder.glob("*.raw"), key=lambda path: path.stat().st_size)
    # The process and its ten children. qemu 7.2 ignores MADV_WIPEONFORK, by which the recorder
    # notices a fork.
    assert len(raws) == (1 if runnable.foreign else 11)
    trace, ops, report = tmp_path / "a.hwt", tmp_path / "a.ops", tmp_path / "report.json"
    packed = runnable.run(runnable.folder / "heapwright-trace", "pack", raws[-1], trace)
    assert packed.returncode == 0, packed.stderr
    counts = json.loads(packed.stdout)
    mallocs = runnable.run(runnable.folder / "heapwright-trace", "dump", trace).stdout.count(" malloc ")
    assert 0 <= mallocs - int(found[1]) < 100  # the C library allocates a little itself
    info = json.loads(runnable.run(runnable.folder / "heapwright-trace", "info", trace).stdout)
    assert info["remote_frees"]["count"] > 0  # the cases test the allocators' remote frees, too
    expanded = runnable.run(runnable.folder / "heapwright-trace", "expand", trace, ops)
    assert expanded.returncode == 0, expanded.stderr
    replayed = runnable.run(
        runnable.folder / "heapwright-replay", ops, "--report", report, preload=runnable.library("exgen")
    )
    assert replayed.returncode == 0, replayed.stderr
    told = json.loads(report.read_text())
    assert told["events"] == told["events_expected"]
    assert told["events"] >= counts["allocations"]


def sampled(platform: Platform, folder: Path, *command: str | Path) -> list[int]:
    """Samples a program without a bound of cost; returns the requests of each of its processes, the most first."""
    folder.mkdir()
    env = {"HEAPWRIGHT_RECORD": str(folder), "HEAPWRIGHT_RECORD_SAMPLE": "16", "HEAPWRIGHT_RECORD_MAX_COST": "0"}
    done = platform.run(*command, preload=platform.library("heapwright-sample"), env=env)
    assert (done.returncode, done.stderr) == (0, "")
    found = []
    for raw in folder.glob("*.raw"):
        dumped = platform.run(platform.folder / "heapwright-trace", "dump", raw)
        assert dumped.returncode == 0, dumped.stderr
        found.append(sum(int(ticks) for ticks in re.findall(r" ticks (\d+)$", dumped.stdout, re.MULTILINE)))
    return sorted(found, reverse=True)


def test_a_sample_has_the_requests_of_each_forked_process(
    runnable: Platform, compiled: Callable[..., Path], tmp_path: Path
) -> None:
    if runnable.foreign:
        needs.machine_cannot("emulate MADV_WIPEONFORK, by which the recorder notices a fork")
    requests = sampled(runnable, tmp_path / "raw", compiled(runnable, "record_forks"), "400000", "0", "3", "20000")
    assert len(requests) == 4
    assert all(abs(found - made) < 1000 for found, made in zip(requests, (400_000, *[20_000] * 3), strict=True))


def test_a_sample_has_the_requests_of_threads_that_end(
    runnable: Platform, compiled: Callable[..., Path], tmp_path: Path
) -> None:
    (found,) = sampled(runnable, tmp_path / "raw", compiled(runnable, "record_frees"), "100000")
    made = 100_000 + 3000 * (200 + 32)
    # Requests after the last object of the sample are not known. The C library allocates a little
    # for each thread.
    assert -1000 < found - made < 20_000
