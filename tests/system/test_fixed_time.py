"""Tests loads that run for a fixed time: they are noticed, and work is compared instead of time."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.conftest import PROGRAMS

from .conftest import Heapwright
from .workloads import free_port

# Takes about the same time in every run, and says that it did more in every second run.
LOAD = """
n=$(cat runs 2>/dev/null || echo 0); echo $((n + 1)) >runs
"$@" load 50; sleep 0.1; echo "did $((1000 + n % 2 * 500)) operations"
"""


@pytest.fixture
def workload(heapwright: Heapwright) -> str:
    port = free_port()
    server = [sys.executable, "-I", "-S", str(PROGRAMS / "tiny_server.py"), str(port), "log"]
    (heapwright.folder / "w.toml").write_text(
        f"command = {json.dumps(server)}\n[output]\ncompare = 'none'\n[server]\nready_port = {port}\n"
        f"load = {json.dumps(['sh', '-c', LOAD, 'sh', *server])}\n"
        "[server.load_metrics]\noperations = 'did (.*) operations'\n"
    )
    return "w.toml"


SAID = "it did 1,000 to 1,500 operations in "


def test_measure_says_so(workload: str, heapwright: Heapwright) -> None:
    done = heapwright("measure", "--workload", workload, "-n", "2")
    assert done.status == 0
    assert SAID in done.err
    assert SAID not in heapwright("measure", "--workload", workload).err, "one run cannot tell"


def test_compare_compares_work(workload: str, heapwright: Heapwright) -> None:
    done = heapwright("compare", "--workload", workload, "-n", "2", "--allocators", "glibc")
    assert done.status == 0, done.err
    assert done.out.splitlines()[0].split() == ["allocator", "throughput", "cpu_per_op", "peak_rss"]
    assert SAID in done.out.replace("\n", " ")


@pytest.mark.long
def test_tune_minimises_work_per_time(workload: str, heapwright: Heapwright) -> None:
    words = ["tune", "--workload", workload, "--allocators", "glibc", "--budget", "1", "--pairs", "6:6"]
    words += ["--minimize", "cpu,wall", "--study", "s.study"]
    done = heapwright(*words, "--json", "t.json")
    assert SAID in done.err.replace("\n", " "), done.err
    found = json.loads(Path(heapwright.folder, "t.json").read_text())
    assert found["baseline"]["cpu_per_op_s"]["median"] > 0
    assert found["objectives_why"].endswith("The objectives are CPU time per operation.")
    again = heapwright(*words)
    assert "was begun with" not in again.err, "the same command finds its study"
    assert again.status == done.status
