"""Tests verbs with `--cluster` as users run them: their results, and the messages about workers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from heapwright.report.html import extract

from .farm import Farm

pytestmark = pytest.mark.xdist_group("farm")  # one cluster for all processes of pytest
HEAPWRIGHT = str(Path(sys.executable).with_name("heapwright"))


@pytest.mark.long
def test_bench_runs_on_a_cluster(shared_farm: Farm, tmp_path: Path) -> None:
    """Every round of every benchmark runs, and the worker returns the program's own figures."""
    words = [HEAPWRIGHT, "bench", "openmp", "--quick", "--threads", "2", "-n", "2", "--allocators", "glibc,exgen"]
    words += ["--cluster", shared_farm.address, "--json", "bench.json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "worker tcp://" in done.stderr
    found = json.loads((tmp_path / "bench.json").read_text())["results"]
    assert len(found) >= 6
    assert {row["allocator"] for row in found} == {"glibc", "exgen"}
    for row in found:
        assert row["failure"] is None
        assert row["rounds"] == 2


@pytest.mark.long
def test_the_report_has_the_workers(shared_farm: Farm, program: Callable[..., Path], tmp_path: Path) -> None:
    words = [HEAPWRIGHT, "landscape", "--param", "mmap_threshold", "--metric", "peak_heap", "-n", "1"]
    words += ["--study", "a.study", "--cluster", shared_farm.address, "--", str(program("mapping_calls"))]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = tmp_path / "a.html"
    subprocess.run([HEAPWRIGHT, "report", "a.study", "-o", str(page)], cwd=tmp_path, check=True)
    text = page.read_text()
    workers = extract(page)["studies"][0]["workers"]
    assert sum(w["runs"] for w in workers) > 10
    for worker in workers:
        assert worker["worker"].startswith("tcp://")
        assert worker["worker"] in text
