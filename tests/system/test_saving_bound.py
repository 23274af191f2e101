"""Tests the bound that `tune` prints before it searches: the largest gain that malloc can give a program."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Heapwright

MIB = 1 << 20
QUICK = ("--allocators", "glibc", "--budget", "1", "--pairs", "6:6", "--study", "s.study", "--json", "found.json")
UNKNOWN = "The possible saving is unknown until this program's allocations are recorded."


def tuned(heapwright: Heapwright, *command: str) -> tuple[dict[str, Any], str]:
    """Tunes a command; returns the final bound and all messages."""
    heapwright.report = True
    done = heapwright("tune", *QUICK, "--", *command)
    assert done.status == 0, done.err
    found: dict[str, Any] = json.loads((heapwright.folder / "found.json").read_text())["matters"]
    assert found["sentence"] in " ".join(done.out.split()), "the summary says it"
    assert found["sentence"] in done.err, "it was said on the way"
    assert found["sentence"].replace("'", "&#39;") in (heapwright.folder / "s.html").read_text()
    return found, done.err


@pytest.mark.long
def test_a_mapped_file_is_not_mallocs(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    (heapwright.folder / "data").write_bytes(bytes(64 * MIB))
    found, said = tuned(heapwright, str(program("holders")), "data")
    assert found["shares"]["files"] > 0.9
    assert found["held_share"] < 0.03
    first = "Malloc holds less than 1% of this program's peak memory, and "
    assert first in said
    assert "is pages of files: malloc can save almost no memory" in said
    assert said.index(first) < said.index("searching on replays"), "before anything is searched"
    assert found["busiest"] == ""
    assert "memory at the peak" in (heapwright.folder / "s.html").read_text()


@pytest.mark.long
def test_a_recording_says_what_of_the_heap_must_stay(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    found, said = tuned(heapwright, str(program("holders")))
    assert UNKNOWN in said, "before the recording"
    assert 0.75 < found["shares"]["heap"] < 0.85  # 64 of 82 MiB
    assert 0.15 < found["shares"]["other"] < 0.25
    # 63.5 MiB were live at once. The peak has only the last block and the memory of every process
    # in addition.
    assert 16 / 84 < found["memory_bound"] < 21 / 82
    assert 63 * MIB < found["live_bytes"] < 64.5 * MIB
    assert 0.6 < found["recorded_share"] < 0.9
    assert 0 < found["cpu_bound"] <= 1
    # The largest bound on CPU time says too little to be mentioned.
    time = f" and at most {100 * found['cpu_bound']:.0f}% of CPU time" if found["cpu_bound"] < 0.95 else ""
    assert found["sentence"] == (
        f"If the program uses its blocks in full, at most {100 * found['memory_bound']:.0f}% of peak memory{time}"
        " can be saved."
    )


@pytest.mark.long
def test_the_program_that_has_the_memory_is_named(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    found, _ = tuned(heapwright, "sh", "-c", f"{program('holders')}; true")
    assert found["busiest"] == program("holders").name
    assert found["busiest_share"] > 0.9
    assert f"(the largest process, {found['busiest']}, has " in found["sentence"]
