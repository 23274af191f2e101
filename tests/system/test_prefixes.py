"""Tests prefixes of long runs with the installed command: given by the user, and chosen by `tune`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Heapwright

TWO = ("--allocators", "glibc,exgen")


@pytest.fixture
def slow(program: Callable[..., Path]) -> str:
    """A program with a given run time, whose peak is at the beginning."""
    return str(program("slow"))


@pytest.mark.parametrize("text", ["500ms", "1m30s", "0s"])
def test_a_time_that_is_none_is_not_taken_for_a_text(heapwright: Heapwright, text: str) -> None:
    done = heapwright("measure", "--prefix", text, "--", "touch", "ran")
    assert done.status == 2
    assert f"'{text}' is not a time that can end a run" in done.err
    assert not (heapwright.folder / "ran").exists()


def test_a_text_of_prefix_ends_every_run(heapwright: Heapwright, slow: str) -> None:
    """Times are compared too, because all prefixes contain the same work."""
    began = time.monotonic()
    done = heapwright("compare", *TWO, "-n", "3", "--prefix", "built", "--json", "c.json", "--", slow, "60")
    assert done.status == 0, done.err
    assert time.monotonic() - began < 60
    found = json.loads((heapwright.folder / "c.json").read_text())["allocators"]
    assert found["exgen"]["ratio"]["peak_rss_bytes"]["high"] < 1, "its headers are smaller"
    assert found["exgen"]["ratio"]["cpu_s"]["value"] is not None


def test_time_of_a_fixed_length_is_not_compared(heapwright: Heapwright, slow: str) -> None:
    for verb in (("compare", "--metrics", "cpu"), ("tune", "--minimize", "cpu,peak_rss")):
        done = heapwright(*verb, "--prefix", "1s", "--", slow, "60")
        assert done.status == 2
        assert "CPU time of the first 1 s of a run cannot be compared" in done.err


def test_a_text_that_never_comes_is_a_failure(heapwright: Heapwright, slow: str) -> None:
    done = heapwright("measure", "--prefix", "ready", "--", slow, "0.1")
    assert done.status == 1
    assert "a run failed: it ended and did not print 'ready'" in done.err


def test_a_workload_file_ends_a_recording(heapwright: Heapwright, slow: str) -> None:
    (heapwright.folder / "w.toml").write_text(f'command = ["{slow}", "60"]\n[prefix]\noutput = "built"\n')
    done = heapwright("record", "--workload", "w.toml", "-o", "slow.hwt", "--json", "r.json")
    assert done.status == 0, done.err
    processes = json.loads((heapwright.folder / "r.json").read_text())["processes"]
    assert processes[0]["allocations"] >= 300_000


@pytest.mark.long  # 100 s; tests/study/test_prefix.py has the same study of a simulated program
def test_a_long_program_is_proven_by_prefixes(heapwright: Heapwright, slow: str) -> None:
    """One whole run takes a fifth of the budget."""
    heapwright.report = True
    began = time.monotonic()
    done = heapwright("tune", *TWO, "--budget", "40s", "--study", "s.study", "--json", "found.json", "--", slow, "8")
    assert done.status == 0, done.err
    assert time.monotonic() - began < 55
    assert "Memory is near its peak early: the first" in done.err
    found = json.loads((heapwright.folder / "found.json").read_text())
    assert found["prefix"]["seconds"] < 4
    assert found["objectives"] == ["peak_rss_bytes"]
    assert found["claim"].startswith("With exgen"), found["claim"]
    assert f"pairs of the first {found['prefix']['seconds']:g} s of a run" in found["claim"]
    assert "A whole run takes 8." in found["objectives_why"]
    page = (heapwright.folder / "s.html").read_text()
    assert f"heapwright measure -n 10 --prefix {found['prefix']['seconds']:g}s -- {slow} 8" in page
    began = time.monotonic()
    done = heapwright("verify", "--max-time", "60s", "--json", "v.json", "s.study")
    assert done.status in (0, 4), done.err
    assert time.monotonic() - began < 90
    assert json.loads((heapwright.folder / "v.json").read_text())["pairs"] >= 8, (
        "of prefixes: whole runs would be too long"
    )
