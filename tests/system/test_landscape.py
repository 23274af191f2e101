"""Tests `landscape` on real programs: its results and files, and that it resumes after a kill."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Heapwright

CURVE = ["landscape", "--param", "mmap_threshold", "--range", "mmap_threshold=1K:1G", "--step", "2"]


def test_a_sweep_of_one_setting_shows_its_effect(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    """mapping_calls allocates large blocks: a threshold below their size maps each, one far above maps none."""
    out = [
        "--metric",
        "mapping_calls",
        "--json",
        "l.json",
        "--csv",
        "l.csv",
        "--plot",
        "l.svg",
        "--plot-optima",
        "o.svg",
    ]
    done = heapwright(*CURVE, *out, "--", str(program("mapping_calls")))
    assert done.status == 0, done.err
    found = json.loads((heapwright.folder / "l.json").read_text())
    values = [p["settings"]["mmap_threshold"] for p in found["places"]]
    assert values == [str(1 << k) for k in range(10, 31, 2)]
    calls = [p["median"] for p in found["places"]]
    assert calls[0] > calls[-1]
    assert found["best"]["ratio"] == min(p["ratio"] for p in found["places"])
    assert found["smoothness"]["step"] > 0
    rows = list(csv.DictReader((heapwright.folder / "l.csv").open()))
    assert sum(r["mmap_threshold"] == "" for r in rows) == 4  # one run of the default for every five points
    assert len(rows) == 11 + 8 + 4  # eight points are measured twice
    assert (found["places_repeated"], found["differs"], found["gains"]) == (8, True, found["best"]["ratio"] < 0.99)
    assert found["highest_to_lowest"]["pairs"] == found["best"]["confirmed"]["pairs"] == 8
    picture = (heapwright.folder / "l.svg").read_text()
    assert picture.startswith("<?xml")
    network = found["analysis"]
    assert sum(o["basin"] for o in network["local_optima"]) == sum(p["ratio"] is not None for p in found["places"])
    assert network["autocorrelation"][0] == pytest.approx(found["smoothness"]["autocorrelation"])
    assert (heapwright.folder / "o.svg").read_text().startswith("<?xml")
    assert "analysis: neutrality " in " ".join(done.out.split())
    assert " fresh pairs with the default" in " ".join(done.out.split())
    assert all(len(line) <= 80 for line in done.out.splitlines())

    made = sum(1 for _ in (heapwright.folder / "l.csv").open())
    words = [*CURVE, "--metric", "peak_heap", "--json", "-", "--csv", "l.csv"]
    other = json.loads(heapwright(*words, "--", str(program("mapping_calls"))).out)
    assert (other["metric"], other["study"]) == ("peak_heap_bytes", found["study"])
    assert other["best"]["confirmed"] is not None  # only its own lowest point was measured again, not the sweep
    assert sum(1 for _ in (heapwright.folder / "l.csv").open()) == made


def test_a_setting_that_does_nothing_is_flat(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    """A program with one thread has one arena."""
    words = ["landscape", "--param", "arena_max", "--metric", "mapping_calls", "--json", "l.json"]
    done = heapwright(*words, "--", str(program("mapping_calls")))
    assert done.status == 0, done.err
    found = json.loads((heapwright.folder / "l.json").read_text())
    assert (found["gains"], found["differs"], found["smoothness"]["verdict"][:4]) == (False, False, "flat")
    text = " ".join(done.out.split())
    assert "no point is shown to be better than the default: the lowest of the sweep, arena_max=" in text
    assert "noise: ±" in text


@pytest.mark.long
def test_a_killed_sweep_goes_on(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    log = heapwright.folder / "starts"
    command = ["sh", "-c", 'echo >>"$0"; exec "$1"', str(log), str(program("mapping_calls"))]
    words = ["landscape", "--param", "mmap_threshold", "--param", "top_pad", "--step", "5", "-q", "--study", "l.study"]
    words += ["--metric", "mapping_calls", "--json", "-", "--", *command]
    for runs in (4, 12):
        process = heapwright.start(*words)
        while process.poll() is None and (not log.exists() or len(log.read_text().splitlines()) < runs):
            time.sleep(0.002)
        process.kill()
        process.communicate()
    done = heapwright(*words)
    assert done.status == 0, done.err
    found = json.loads(done.out)
    points, repeated = len(found["places"]), found["places_repeated"]
    assert sorted(p["runs"] for p in found["places"]) == [1] * (points - repeated) + [2] * repeated
    ends = 3 if found["highest_to_lowest"] else 2  # the default, the lowest and the highest point
    expected = 6 + points + repeated + -(-(points + repeated) // 5) + 8 * ends
    assert expected <= len(log.read_text().splitlines()) <= expected + 2
    made = log.read_text()
    assert heapwright(*words).out == done.out
    assert log.read_text() == made


KIND = "unknown picture format '.gif' (use a name that ends in .svg, .png or .pdf)"
EXAMPLE = "(for example mmap_threshold=256:32M)"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--param", "mmap_treshold"], "unknown parameter 'mmap_treshold' (did you mean 'mmap_threshold'?)"),
        (["--param", "top_pad", "--range", "top_pad=9"], f"--range top_pad=9 is not P=LOW:HIGH {EXAMPLE}"),
        (
            ["--param", "a", "--param", "b", "--param", "c"],
            "a landscape has at most two parameters (leave out some --param)",
        ),
        (["--param", "top_pad", "--plot", "l.gif"], f"--plot l.gif: {KIND}"),
        (["--param", "top_pad", "--metric", "cpuu"], "unknown metric 'cpuu' (did you mean 'cpu'?)"),
    ],
)
def test_bad_input_is_refused_and_leaves_no_file(words: list[str], message: str, heapwright: Heapwright) -> None:
    done = heapwright("landscape", *words, "--", "true")
    assert (done.status, done.out, done.err) == (2, "", f"heapwright: {message}\n")
    assert list(heapwright.folder.iterdir()) == []
