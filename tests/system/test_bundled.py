"""Tests the bundled allocators with the installed command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from heapwright.measure.host import describe_host

from .conftest import Heapwright


def test_our_allocators_are_listed_with_their_settings(heapwright: Heapwright) -> None:
    rows = {row["name"]: row for row in json.loads(heapwright("allocators", "--json", "-").out)["allocators"]}
    exgen = rows["exgen"]
    assert exgen["bundled"]
    assert Path(exgen["path"]).is_file()
    huge = {"huge_pages"} if describe_host()["thp"] in ("always", "madvise") else set()
    assert {p["key"] for p in exgen["parameters"]} == {"keep", "purge_delay", "front"} | huge
    assert {s["key"] for s in exgen["not_searched"]} == {"huge_pages"} - huge
    assert "comes with heapwright" in heapwright("allocators").out
    checks = json.loads(heapwright("doctor", "--json", "-").out)["checks"]
    detail = next(c["detail"] for c in checks if c["name"] == "allocator: exgen")
    assert "comes with heapwright" in detail
    assert f"{3 + len(huge)} settings to search" in detail


def test_compare_and_bench_take_them(heapwright: Heapwright) -> None:
    words = ["-n", "1", "--json", "-", "--allocators", "glibc,exgen"]
    found = json.loads(heapwright("compare", *words, "--", "perl", "-e", "1").out)["allocators"]
    assert found["exgen"]["failure"] is None
    done = heapwright("bench", "startup", "--quick", "--threads", "1", *words)
    assert [a["name"] for a in json.loads(done.out)["allocators"]] == ["glibc", "exgen"]


@pytest.mark.long
def test_tune_runs_under_the_allocator_it_tunes(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    """The allocator's library is loaded in all runs, in the default's too, and in what `apply` and `run` use."""
    words = ["tune", "--allocators", "exgen", "--budget", "4", "--pairs", "6:6", "--study", "s.study"]
    done = heapwright(*words, "--json", "-", "--", str(program("large_blocks", "-DROUNDS=5")))
    assert done.status == 0, done.err
    ran = heapwright("run", "s.study", "--", "env")
    variables = dict(line.split("=", 1) for line in ran.out.splitlines() if "=" in line)
    assert Path(variables["LD_PRELOAD"]).name == "libexgen.so"
    shipped = heapwright("apply", "s.study").out
    assert "export LD_PRELOAD=/" in shipped
    status = heapwright("run", "s.study", "--", "cat", "/proc/self/status", env={"HEAPWRIGHT_HUGE_PAGES": "never"})
    assert "THP_enabled:\t1" not in status.out
    assert status.status == 0, status.err


def test_doctor_tells_the_state_of_huge_pages(heapwright: Heapwright) -> None:
    checks = json.loads(heapwright("doctor", "--json", "-").out)["checks"]
    [row] = [c for c in checks if c["name"] == "huge pages"]
    state = describe_host()["thp"]
    if state not in ("always", "madvise"):
        assert row["works"]
        assert "not used" in row["detail"]
    elif "gave this process none" not in row["detail"]:
        assert row["detail"].startswith(f"{state}, {'warm' if row['works'] else 'cold'}: a first touch takes ")
