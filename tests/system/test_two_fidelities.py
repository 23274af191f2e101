"""Tests `tune` on replays of a real program's allocations, with the installed command."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Heapwright
from .test_tune import result, rows

# Allocates many blocks just above glibc's thresholds for caching, frees half of them, then sleeps
# for half a second. A replay is faster, because it does not sleep.
PROGRAM = """
import time
kept = []
for size in (60, 3000, 500, 20000):
    kept += [bytearray(size) for _ in range(3000)]
    kept = kept[::2]
time.sleep(0.5)
print(len(kept))
"""
COMMAND = ["env", "PYTHONMALLOC=malloc", sys.executable, "-S", "program.py"]
QUICK = ["--pairs", "6:6", "--budget", "10", "--allocators", "glibc", "--params", "mmap_threshold,tcache_count,mxfast"]


@pytest.mark.long
def test_memory_is_searched_on_replays(heapwright: Heapwright, tmp_path: Path) -> None:
    """By --proxy replay: on a busy machine replays may take too long beside the program, and the search leaves them."""
    (tmp_path / "program.py").write_text(PROGRAM)
    study = tmp_path / "s.study"
    options = ["--proxy", "replay", "--minimize", "peak_rss", "--study", str(study), "--json", "-", *QUICK]
    found = result(heapwright("tune", *options, "--", *COMMAND))
    told: dict[str, Any] = found["proxy"]
    assert told["used"]
    assert told["replay_s"] > 0  # a busy machine decides by how much it is below the program's time
    assert told["program_s"] > 0
    assert told["recorded"]["default"]["events"] > 10_000
    trace = next(study.with_name("s.study.traces").glob("*.hwt"))
    info = json.loads(heapwright("info", str(trace), "--json", "-").out)
    assert info["events"] == told["recorded"]["default"]["events"]
    replays = rows(study, "SELECT count(DISTINCT config) FROM run WHERE phase = 'replay'")[0][0]
    assert replays == 11, "the default and all that the budget holds"
    assert not told["why"]
    assert not rows(study, "SELECT 1 FROM run WHERE phase = 'search'")
    for pair in told["agreement"][0]["pairs"]:
        assert abs(pair[0] - pair[1]) < 0.1, "the prediction of the program's memory is wrong"
    before = rows(study, "SELECT count(*) FROM run")
    again = result(heapwright("tune", *options, "--", *COMMAND))
    assert rows(study, "SELECT count(*) FROM run") == before
    assert again["picks"] == found["picks"]


@pytest.mark.long
def test_a_static_program_is_searched_itself(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    path = str(program("mapping_calls", "-static"))
    done = heapwright("tune", "--study", "s.study", "--json", "-", *QUICK, "--", path)
    found = result(done)
    assert not found["proxy"]["used"]
    assert "linked statically" in found["proxy"]["why"]
    assert "the search runs the program itself: it is linked statically, so it cannot be recorded" in done.err


@pytest.mark.long
def test_a_recording_that_misses_most_of_the_memory_is_not_searched(heapwright: Heapwright, tmp_path: Path) -> None:
    """A recording does not contain memory that the program maps itself, so replays say nothing about it."""
    text = "import mmap\nm = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
    (tmp_path / "own.py").write_text(f"{text}for at in range(0, 64 << 20, 4096):\n    m[at] = 1\n")
    done = heapwright("tune", "--study", "s.study", "--json", "-", *QUICK, "--", *COMMAND[:-1], "own.py")
    found = result(done)
    assert not found["proxy"]["used"]
    assert found["proxy"]["why"].startswith("the recording accounts for ")
    assert "that the program has at its peak" in found["proxy"]["why"]
    assert not rows(tmp_path / "s.study", "SELECT 1 FROM run WHERE phase = 'replay'")


def test_a_program_that_never_allocates_is_searched_itself(heapwright: Heapwright) -> None:
    found = result(heapwright("tune", "--study", "s.study", "--json", "-", *QUICK, "--", "/bin/true"))
    assert found["proxy"] == {
        **found["proxy"],
        "used": False,
        "why": "nothing was recorded of true: no call of malloc was seen",
    }


def test_replays_that_cannot_be_are_refused_if_asked_for(heapwright: Heapwright) -> None:
    done = heapwright("tune", "--proxy", "replay", "--minimize", "major_faults", *QUICK, "--", "true")
    assert done.status == 1
    assert (
        done.err.strip()
        .splitlines()[-1]
        .startswith("heapwright: the program cannot be searched on replays: a replay does not measure")
    )
