"""Drives tune, verify and apply with requirements on a real program."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Heapwright


@pytest.mark.long
def test_a_requirement_bounds_the_pick(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    """The largest top_pad leaves 11% of the mapping calls, but its heap is too large."""
    words = ["--allocators", "glibc", "--params", "top_pad", "--method", "grid", "--budget", "10", "--pairs", "6:6"]
    words += [
        "--proxy",
        "none",
        "--no-runtime",
        "--minimize",
        "mapping_calls",
        "--study",
        "s.study",
        "--json",
        "t.json",
    ]
    heapwright.report = True
    required = ["--require", "peak_heap <= 1.5x", "--require", "minor_faults <= 1000000"]
    done = heapwright("tune", *words, *required, "--", str(program("mapping_calls")))
    assert done.status == 0, done.err
    told = json.loads((heapwright.folder / "t.json").read_text())
    pick = told["picks"]["time"]
    assert list(pick["requirements"].values()) == ["kept", "kept"]
    assert pick["confirmed"]["peak_heap_bytes"]["high"] <= 1.5
    assert 0.12 < pick["confirmed"]["mapping_calls"]["ratio"] < 0.5
    assert "peak_heap     <= 1.5x" in done.out
    page = (heapwright.folder / "s.html").read_text()
    assert 'aria-label="Requirements of the time pick"' in page

    done = heapwright("verify", "s.study", "--max-time", "60s", "--json", "v.json")
    assert done.status == 0, done.err
    assert "Requirement met: peak_heap <= 1.5x" in done.out
    assert [line.split()[-1] for line in done.out.splitlines()[-2:]] == ["met", "met"]
    done = heapwright("apply", "s.study")
    assert (done.status, done.err) == (0, "")
    assert "top_pad" in done.out
