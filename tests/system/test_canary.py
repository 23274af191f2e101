"""`heapwright canary` on pairs of real processes: a planted gain, a kill, bad input."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from .conftest import Heapwright

WORKER = """
import random, sys, time
kept = [b"x" * int(float(sys.argv[1]) * 2**20)]
while True:
    kept[1:] = [b"y" * random.randrange(1, 2**18)]
    sum(range(20000))
    time.sleep(0.01)
"""


@contextmanager
def workers(*mib: float) -> Iterator[list[str]]:
    with ExitStack() as stack:
        found = []
        for size in mib:
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", WORKER, str(size)]))
            stack.callback(process.kill)
            found.append(str(process.pid))
        time.sleep(0.5)
        yield found


@pytest.mark.long
def test_a_planted_gain_is_found_and_the_page_shows_it(heapwright: Heapwright, tmp_path: Path) -> None:
    with workers(60, 40) as (control, treatment):
        done = heapwright(
            *("canary", "--control", control, "--treatment", treatment, "--every", "0.05s", "--for", "90s"),
            *("--json", "canary.json", "--html", "canary.html", "--number", "length=printf {group} | wc -c"),
        )
    assert done.status == 0, done.err
    assert done.out.count("Memory lower in the treatment") == 1
    assert "single instance" in done.out
    found = json.loads((tmp_path / "canary.json").read_text())
    assert found["numbers"]["memory_bytes"]["verdict"] == "lower"
    assert found["numbers"]["memory_bytes"]["high"] < 0.9
    assert found["numbers"]["length"]["ratio"] == pytest.approx(9 / 7)
    assert "Memory lower in the treatment" in (tmp_path / "canary.html").read_text()


def test_a_killed_canary_goes_on(heapwright: Heapwright, tmp_path: Path) -> None:
    with workers(30, 30) as (control, treatment):
        words = ("canary", "--control", control, "--treatment", treatment, "--every", "0.1s", "-q")
        process = heapwright.start(*words)
        time.sleep(2.5)
        process.kill()
        process.communicate()
        first = len((tmp_path / "canary.jsonl").read_text().splitlines()) - 1
        assert first >= 2
        done = heapwright(*words, "--for", "1s", "--json", "canary.json")
        assert done.status == 4, done.err
        other = heapwright("canary", "--control", control, "--treatment", treatment, "--for", "1s")
        assert other.status == 1
        assert "another canary" in other.err
        short = heapwright(*words[:-3], "--every", "0.1s", "--for", "0.5s", "-o", "short.jsonl")
        assert "--for 0.5 s ends before the first look, which comes after 19.2 s: there will be no claim" in short.err
        assert "first look" not in done.err, "a canary that goes on may be near its look"
    found = json.loads((tmp_path / "canary.json").read_text())
    assert found["samples"] > first
    assert found["claim"].startswith("No claim yet")


def test_bad_input_gets_one_line(heapwright: Heapwright) -> None:
    for words, status, line in (
        (("--control", "1", "--treatment", "1"), 2, "in the control and in the treatment"),
        (("--control", "999999999", "--treatment", "1"), 1, "999999999 has no process"),
        (("--control", ",", "--treatment", "1"), 2, "names no instance"),
        (("--control", "1", "--treatment", "2", "--series", "x"), 2, "belong together"),
        (("--control", "1", "--treatment", "2", "--number", "x=y"), 2, "no {group}"),
    ):
        done = heapwright("canary", *words)
        assert done.status == status, done.err
        assert line in done.err
        assert len(done.err.strip().splitlines()) <= 2
