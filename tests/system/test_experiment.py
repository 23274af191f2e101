"""Tests `heapwright experiment` with the installed command: it resumes after a kill, and compares its searches."""

from __future__ import annotations

import contextlib
import csv
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from heapwright.study.store import read_study
from tests.processes import wait_for

from .conftest import Heapwright, environment

TEXT = """
methods = ["random", "local"]
seeds = 2
budgets = [4]
minimize = ["minor_faults"]
targets = [0.99]
allocators = ["glibc"]
options = ["--proxy", "none", "--no-runtime"]
[[program]]
name = "count"
command = ["sh", "-c", "seq 1 10000 | sort -n | tail -1"]
"""


def _processes_in(folder: Path) -> list[str]:
    """Return the ids of the processes that work in a folder."""
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdecimal() and (process / "cwd").resolve() == folder.resolve():
                found.append(process.name)
    return found


@pytest.mark.timeout(600)
def test_a_killed_experiment_goes_on(heapwright: Heapwright) -> None:
    folder = heapwright.folder
    (folder / "e.toml").write_text(TEXT)
    running = subprocess.Popen(
        [heapwright.path, "experiment", "-q", "e.toml"], cwd=folder, env=environment(), start_new_session=True
    )
    while not (folder / "e/count-local-4-1.study").exists():  # the first search has ended
        time.sleep(0.05)
        assert running.poll() is None
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    wait_for(
        lambda: not _processes_in(folder)
    )  # the search is in a session of its own, and is told when its parent ends
    first = (folder / "e/count-random-4-1.study").read_bytes()
    done = heapwright("experiment", "e.toml")
    assert done.status == 0, done.err
    assert "1 of 4: " not in done.err
    assert "4 of 4: count, local, seed 2, budget 4" in done.err
    assert (folder / "e/count-random-4-1.study").read_bytes() == first, "a finished search is not run again"
    rows = list(csv.DictReader((folder / "e/summary.csv").open()))
    assert [(r["method"], r["searches"]) for r in rows] == [("random", "2"), ("local", "2")]
    runs = list(csv.DictReader((folder / "e/runs.csv").open()))
    assert {r["study"] for r in runs} == {f"count-{m}-4-{s}" for m in ("random", "local") for s in (1, 2)}
    assert (folder / "e/report.html").read_text().count("<svg") == 4
    assert "heapwright experiment e.toml" in (folder / "e/results.md").read_text()
    again = heapwright("experiment", "e.toml", "--results-only")
    assert (again.status, again.err) == (0, "")


TRACES = """
methods = ["random", "local"]
seeds = 1
budgets = [3]
minimize = ["mean_rss"]
allocators = ["glibc"]
[[program]]
name = "blocks"
trace = "a.hwt"
[[program]]
name = "modelled"
trace = "a.model"
[[program]]
name = "count"
command = ["sh", "-c", "seq 1 10000 | sort -n | tail -1"]
options = ["--proxy", "none", "--no-runtime"]
"""


@pytest.mark.timeout(600)
@pytest.mark.long
def test_recordings_and_models_are_searched_by_replays(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    folder = heapwright.folder
    shutil.copy(program("tiny_blocks", "-DBLOCKS=20000"), folder / "prog")
    for words in (("record", "-q", "-o", "a.hwt", "--", "./prog"), ("fit", "a.hwt", "-o", "a.model")):
        done = heapwright(*words)
        assert done.status == 0, done.err
    (folder / "prog").unlink()  # no program runs
    (folder / "e.toml").write_text(TRACES)
    done = heapwright("experiment", "e.toml")
    assert done.status == 0, done.err
    with read_study(folder / "e/blocks-random-3-1.study") as store:
        assert store.meta.recordings is not None
        searched = {r.config for r in store.runs() if r.phase == "search" and r.config != 1}
    assert len(searched) == 3
    rows = list(csv.DictReader((folder / "e/summary.csv").open()))
    runs = [("blocks", "replays"), ("modelled", "replays"), ("count", "program")]
    assert [(r["program"], r["runs"]) for r in rows] == [one for one in runs for _ in range(2)]
    assert [float(r["infeasible_share"]) for r in rows] == [0] * 6
    searches = list(csv.DictReader((folder / "e/searches.csv").open()))
    assert [(r["evaluations"], r["machines"]) for r in searches] == [("3", "")] * 6
    for name in ("results.md", "results.tex", "report.html"):
        said = "Results on blocks and modelled are predicted by replays of recordings, not proven on the program."
        assert said in (folder / "e" / name).read_text(), name
    (folder / "a.hwt").write_text("no trace")
    done = heapwright("experiment", "-o", "again", "e.toml")
    assert done.status == 1
    lines = done.err.splitlines()
    assert any(line.startswith("heapwright: blocks-random-3-1.study: ") for line in lines), done.err
    assert lines[-1].startswith("heapwright: 2 searches failed "), done.err
    assert "6 of 6: count, local" in done.err, "the other searches go on"
    assert "blocks" not in (folder / "again/summary.csv").read_text()


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("none.toml", "cannot read none.toml"),
        ("folder", "--cluster folder is neither an address nor a TOML file"),
        ("tcp:/head", "--cluster tcp:/head is neither an address"),
    ],
)
def test_a_wrong_cluster_is_one_line(where: str, message: str, heapwright: Heapwright) -> None:
    (heapwright.folder / "e.toml").write_text(TEXT)
    done = heapwright("experiment", "e.toml", "--cluster", where)
    assert done.status == 2
    assert message in done.err
    assert len(done.err.splitlines()) == 1
    assert not Path(heapwright.folder / "e").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"local"]', '"locale"]', "unknown method 'locale'"),
        ("seeds = 2", "seeds = 0", "e.toml:3: seeds: must be at least 1"),
        ("budgets = [4]", "budgets = []", "e.toml:4: budgets: is empty"),
        ("[0.99]", "[0]", "targets: must be ratios"),
        ('"--proxy"', '"--seed"', "options: --seed is given by the experiment"),
        ('"sh"', '"no-such-program"', "command not found: no-such-program"),
        ('"count"', '"a/b"', "name 'a/b' may have letters"),
        ("targets", "target", "target"),
        ('["glibc"]', '["glibc", "jemaloc"]', "e.toml: unknown allocator 'jemaloc' (did you mean 'jemalloc'?)"),
        ('"--proxy"', '"--proxie"', "unrecognized arguments: --proxie"),
        ('"--proxy", ', '"--price", "x", "--proxy", ', "e.toml: --price"),
    ],
)
def test_a_wrong_definition_is_one_line(old: str, new: str, message: str, heapwright: Heapwright) -> None:
    (heapwright.folder / "e.toml").write_text(TEXT.replace(old, new))
    done = heapwright("experiment", "e.toml")
    assert done.status == 2
    assert message in done.err
    assert len(done.err.splitlines()) == 1
    assert not Path(heapwright.folder / "e").exists()


def test_the_results_of_no_search_make_no_folder(heapwright: Heapwright) -> None:
    (heapwright.folder / "e.toml").write_text(TEXT)
    done = heapwright("experiment", "e.toml", "--results-only")
    assert (done.status, done.err) == (
        1,
        "heapwright: e has no finished search of this definition (leave out --results-only)\n",
    )
    assert not Path(heapwright.folder / "e").exists()


def test_a_failed_experiment_without_results_promises_none(heapwright: Heapwright) -> None:
    (heapwright.folder / "e.toml").write_text(TEXT.replace('["sh", ', '["false", '))
    done = heapwright("experiment", "-q", "e.toml")
    assert done.status == 1
    assert done.err.startswith("heapwright: count-random-4-1.study: the command fails by itself")
    assert "results" not in done.err


def test_a_failure_is_said_once(heapwright: Heapwright) -> None:
    """Regression: the line about a failed search came again as the error at the end."""
    (heapwright.folder / "e.toml").write_text(TEXT.replace('["sh", ', '["false", '))
    done = heapwright("experiment", "e.toml")
    assert done.status == 1
    assert done.err.count("count-random-4-1.study") == 1
    assert "2 searches failed; 2 of the same program and method were left out" in done.err
