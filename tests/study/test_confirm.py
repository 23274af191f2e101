"""What a confirmation says of metrics that were hardly ever measured."""

from __future__ import annotations

import json

from heapwright.study.confirm import judge
from heapwright.study.options import Options
from heapwright.study.store import StoredRun
from heapwright.study.view import Config

CONFIGS = {1: Config(1, "glibc", {}, {}), 2: Config(2, "glibc", {"k": "1"}, {"K": "1"})}


def run(block: int, config: int, **metrics: float) -> StoredRun:
    return StoredRun("confirm", block, "default", config, 0.1, "", "", dict(metrics), {})


def test_a_count_that_is_mostly_zero_has_no_ratio() -> None:
    """Major faults happened in one pair only; in the others one side was zero."""
    runs = []
    for block in range(10):
        faults = 3.0 if block == 4 else 0.0
        runs.append(run(block, 1, peak_rss_bytes=100.0 + block, cpu_s=1.0, major_faults=faults))
        runs.append(run(block, 2, peak_rss_bytes=90.0 + block, cpu_s=1.0, major_faults=faults + 1.0))
    (found,) = judge(runs, CONFIGS, 1, Options()).values()
    assert set(found) == {"peak_rss_bytes", "cpu_s"}
    assert found["peak_rss_bytes"].verdict == "better"
    assert found["cpu_s"].verdict == "same"
    json.dumps([c.high for c in found.values()], allow_nan=False)
