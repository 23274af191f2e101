"""Runs the examples of servers: their files are read, and every metric of their loads is measured."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests import needs
from tests.conftest import ROOT

from .conftest import Heapwright
from .workloads import free_port

EVERY = {"idle_rss_bytes", "load_operations", "throughput_per_s", "p50_ms", "p95_ms", "p99_ms", "cpu_per_op_s"}


def example(heapwright: Heapwright, name: str, port: str, *shorter: tuple[str, str]) -> str:
    """Copy the examples, with a free port and a shorter load; return the workload file."""
    shutil.copytree(ROOT / "examples", heapwright.folder / "examples")
    file = heapwright.folder / "examples" / name
    text = file.read_text().replace(port, str(free_port())).replace("pause = 1", "pause = 0.1")
    for old, new in shorter:
        assert old in text, old
        text = text.replace(old, new)
    text, changed = re.subn(r"idle = [12] ", "idle = 0.1 ", text)
    assert changed == 1
    file.write_text(text)
    return f"examples/{name}"


def measured(heapwright: Heapwright, file: str) -> dict[str, float | None]:
    done = heapwright("measure", "--workload", file, "--json", "m.json")
    assert done.status == 0, done.err
    for label in ("idle resident memory", "throughput", "99th percentile latency", "CPU time per operation"):
        assert f"\n{label}  " in done.out
    run: dict[str, float | None] = json.loads(Path(heapwright.folder, "m.json").read_text())["runs"][0]
    assert {name for name in EVERY if not run[name]} == set()
    assert (run["p50_ms"] or 0) <= (run["p95_ms"] or 0) <= (run["p99_ms"] or 0)
    assert 0 < (run["idle_rss_bytes"] or 0) <= (run["peak_rss_bytes"] or 0) * 1.02
    assert (run["cpu_per_op_s"] or 0) * (run["load_operations"] or 0) < (run["cpu_s"] or 0)
    return run


def test_the_example_of_an_http_server_runs(heapwright: Heapwright) -> None:
    file = example(heapwright, "http-server.toml", "18765", ('"600"', '"60"'), ('"300"', '"30"'))
    run = measured(heapwright, file)
    assert (run["load_operations"], run["load_errors"]) == (90, 0)


@pytest.mark.parametrize(
    ("name", "port", "operations"), [("python-server.toml", "18771", "300"), ("java-server.toml", "18772", "600")]
)
@pytest.mark.few(1)
def test_the_examples_of_runtimes_servers_run(heapwright: Heapwright, name: str, port: str, operations: str) -> None:
    if name.startswith("java"):
        needs.command("javac")
    run = measured(heapwright, example(heapwright, f"runtimes/{name}", port, (f'"{operations}", "16"', '"30", "4"')))
    rest = 150 if name.startswith("python") else 300
    assert (run["load_operations"], run["load_errors"]) == (30 + rest, 0)


@needs.with_command("redis-server")
def test_the_example_of_redis_runs(heapwright: Heapwright) -> None:
    file = example(heapwright, "redis.toml", "17777", ('"200000"', '"2000"'), ('"100000"', '"1000"'))
    assert measured(heapwright, file)["load_operations"] == 2000 + 2 * 1000 + 1000
