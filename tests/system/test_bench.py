"""Tests `bench`: the benchmark programs under several allocators, and the row that each failure gives."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import needs

from .conftest import Heapwright

WORDS = ["bench", "server", "--quick", "-n", "2", "--threads", "1"]


@pytest.fixture
def bump(program: Callable[..., Path]) -> str:
    return str(program("bump_malloc", "-shared", "-fPIC"))


@pytest.mark.longer
def test_bench_writes_tables_json_csv_markdown_and_plots(heapwright: Heapwright, bump: str) -> None:
    exports = ["--json", "b.json", "--csv", "b.csv", "--markdown", "b.md", "--plots", "plots"]
    rounds = needs.repeats(2, 1)
    words = ["bench", "realistic", "--quick", "-n", str(rounds), "--threads", "1,2", "--allocators", f"glibc,{bump}"]
    done = heapwright(*words, *exports)
    assert done.status == 0, done.err
    found = json.loads((heapwright.folder / "b.json").read_text())
    assert (found["schema_version"], found["suite"], found["reference"]) == (1, "realistic", "glibc")
    assert "thp" in found["host"]
    assert found["allocators"][0]["version"].startswith("2.")
    rows = {(r["benchmark"], r["allocator"], r["threads"]): r for r in found["results"]}
    assert len(rows) == 2 * (2 + 1 + 2)
    # bump_malloc's pool is full long before the end.
    broken = [r for (_, allocator, _), r in rows.items() if allocator != "glibc"]
    assert all(r["failure"].startswith("exit status 1: out of memory: ") for r in broken)
    glibc = rows["realistic", "glibc", 2]
    assert glibc["failure"] is None
    assert glibc["rounds"] == rounds
    assert glibc["overhead"] > 1
    assert 0 < glibc["void_share"] < 1
    ends = 1 if rounds > 1 else None
    assert glibc["ratio"]["cpu_s"] == {"value": 1, "low": ends, "high": ends}
    assert {(v["benchmark"], v["threads"]) for v in found["void"]} == {
        ("realistic", 1),
        ("realistic", 2),
        ("realistic-handover", 2),
        ("realistic-realloc", 1),
        ("realistic-realloc", 2),
    }
    runs = list(csv.DictReader((heapwright.folder / "b.csv").open()))
    assert [r["allocator"] for r in runs].count("void") == 5 * rounds
    text = (heapwright.folder / "b.md").read_text()
    assert f"    heapwright bench realistic --threads 1,2 -n {rounds} --quick --allocators glibc," in text
    assert "Void: " in text
    plots = {path.name for path in (heapwright.folder / "plots").iterdir()}
    assert {"realistic-cost.svg", "realistic-memory.svg", "realistic-handover-cost.svg"} <= plots
    assert "realistic: CPU time per malloc/free pair" in done.out
    assert all(len(line) <= 80 for line in done.out.splitlines() if not line.startswith("  "))


@pytest.mark.parametrize(
    ("mood", "failure"),
    [
        ("crash", "killed by SIGABRT"),
        ("hang", "hung: stopped at the time limit"),
        ("overlap", "corrupted memory: corruption: block 0x"),
    ],
)
def test_a_broken_allocator_does_not_stop_the_others(
    mood: str, failure: str, heapwright: Heapwright, bump: str
) -> None:
    limit = "4" if mood == "hang" else "30"  # also that of glibc, on a busy machine
    words = [*WORDS, "--timeout", limit, "--json", "-", "--allocators", f"{bump},glibc"]
    done = heapwright(*words, env={"BUMP": mood})
    broken, glibc = json.loads(done.out)["results"]
    assert broken["failure"].startswith(failure)
    assert "wall_s" not in broken
    assert glibc["failure"] is None
    assert glibc["ratio"] == {}  # because the reference is broken
    assert done.status == 0


def test_an_allocator_that_was_not_loaded_is_reported(heapwright: Heapwright) -> None:
    library = heapwright.folder / "libnothing.so"
    library.write_text("no library")
    done = heapwright(*WORDS, "--allocators", f"glibc,{library}")
    assert done.status == 0
    assert "libnothing.so  " in done.out
    assert "server, libnothing.so, 1 thread: not loaded: malloc is bound to " in done.out
    done = heapwright(*WORDS, "-q", "--allocators", f"glibc,{library}")
    assert "server, libnothing.so, 1 thread: not loaded: malloc is bound to " in done.err


def test_an_allocator_can_be_compared_with_itself(heapwright: Heapwright) -> None:
    words = ["bench", "startup", "--quick", "-n", "3", "--json", "-", "--allocators", "glibc,glibc"]
    first, second = json.loads(heapwright(*words).out)["results"]
    assert (first["allocator"], second["allocator"]) == ("glibc", "glibc-2")
    # Stack addresses vary from run to run, which makes a difference of a page or two.
    assert second["empty_vm_bytes"] == pytest.approx(first["empty_vm_bytes"], abs=1 << 16)
    ratio = second["ratio"]["wall_s"]
    assert ratio["low"] < ratio["value"] < ratio["high"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["servre"], "unknown suite 'servre' (did you mean 'server'?)"),
        (["--allocators", "glibcc"], "unknown allocator 'glibcc' (did you mean 'glibc'?)"),
        (["--allocators", "./no.so"], "no such allocator library: ./no.so"),
    ],
)
def test_bad_input_is_refused_in_one_line(words: list[str], message: str, heapwright: Heapwright) -> None:
    done = heapwright("bench", *words)
    assert (done.status, done.out, done.err) == (2, "", f"heapwright: {message}\n")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--threads", "0"], "'0' is not a list of thread counts from 1 to 1024"),
        (["--threads", "two"], "'two' is not a list of thread counts from 1 to 1024"),
        (["-n", "0"], "'0' is not a whole number of at least 1"),
        (["--timeout", "-1"], "'-1' is not a number of seconds above 0"),
        (["--csv", "no/where.csv"], "no/where.csv: there is no directory no (create it first)"),
    ],
)
def test_bad_options_are_refused_in_one_line(words: list[str], what: str, heapwright: Heapwright) -> None:
    done = heapwright("bench", *words)
    assert (done.status, done.out) == (2, "")
    assert what in done.err
    assert done.err.count("\n") == 1
