"""Tests a program whose runs fall into two groups: its study completes, and its report mentions the groups."""

from __future__ import annotations

import json
import sys

import pytest

from .conftest import Heapwright

LEAN = """
[allocator]
name = "moods"
[[param]]
key = "mood"
env = "MOOD"
type = "enum"
values = ["lean", "plain"]
explain = "The behaviour of the program below."
"""
# Without MOOD, every fifth run needs 60% more memory.
PROGRAM = """
import os, pathlib
mood, count = os.environ.get("MOOD"), pathlib.Path("count")
runs = int(count.read_text()) if count.exists() else 0
if mood is None:
    count.write_text(str(runs + 1))
size = 20 if mood == "lean" else 64 if mood is None and runs % 5 == 0 else 40
bytearray(size << 20)
"""


@pytest.mark.long
def test_two_speeds_are_said(heapwright: Heapwright) -> None:
    (heapwright.folder / "moods.toml").write_text(LEAN)
    words = ["tune", "--space", "moods.toml", "--minimize", "peak_heap", "--budget", "2", "--study", "s.study"]
    done = heapwright(*words, "--json", "-", "--", sys.executable, "-S", "-c", PROGRAM)
    assert done.status == 0, done.err
    found = json.loads(done.out)
    confirmed = found["picks"]["memory"]["confirmed"]["peak_heap_bytes"]
    assert (confirmed["verdict"], confirmed["pairs"]) == ("better", 40)
    (said,) = (w for w in found["warnings"] if "groups" in w)
    assert "of the memory pick: runs of the default fall into two groups: 32 of 40 around" in said
    assert heapwright("report", "s.study", "-o", "r.html").status == 0
    assert "fall into two groups: 32 of 40 around" in (heapwright.folder / "r.html").read_text()
