"""Whether huge pages are cold is measured on real pages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from heapwright.allocators.huge_pages import thp_state
from heapwright.measure.cold_pages import HUGE_BYTES, cold_sentence, measure_cold_pages
from heapwright.measure.meter import MeterOptions, run_metered
from tests import needs

MEASURE = "import json; from heapwright.measure.cold_pages import measure_cold_pages as m; print(json.dumps(m(8)))"


def test_some_pages_are_touched_twice(tmp_path: Path) -> None:
    if thp_state() not in ("always", "madvise"):
        needs.machine_cannot("use transparent huge pages: the kernel has none, or they are off")
    with (tmp_path / "out").open("wb+") as kept:
        run = run_metered([sys.executable, "-c", MEASURE], MeterOptions(backend="poll"), keep=kept)
        kept.seek(0)
        found = json.loads(kept.read())
    if found is None:
        needs.machine_cannot("give huge pages: memory is too fragmented")
    assert 4 <= found["pages"] <= 8
    assert min(found["first_touch_s"], found["again_s"]) > 0
    assert 0 <= found["slow_pages"] <= found["pages"]
    assert isinstance(found["cold"], bool)
    faults = run.metrics["system_thp_faults"]
    assert faults is None or faults >= found["pages"] // 2


def test_forbidden_huge_pages_give_no_answer(meter: Path) -> None:
    words: list[str | Path] = [meter, "--", sys.executable, "-c", MEASURE]
    env = {**os.environ, "HEAPWRIGHT_HUGE_PAGES": "never"}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) is None


def test_a_single_page_gives_no_answer() -> None:
    assert measure_cold_pages(1) is None


def test_the_sentence_says_whether_huge_pages_were_cold() -> None:
    found = {"pages": 64, "first_touch_s": 0.0048, "again_s": 0.00025, "slow_pages": 60, "cold": True}
    assert cold_sentence(found) == (
        "Huge pages were cold before the runs: the first touch of one took 4.8 ms, the next 0.25 ms"
        " (medians of 64 pages)."
    )
    assert cold_sentence({**found, "cold": False}).startswith("Huge pages were warm")
    assert HUGE_BYTES == 2 << 20
