"""Samples of threads and of forked processes: each counts its own requests, once."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.trace.recording import heapwright_record
from tests.trace.test_replay import heapwright
from tests.trace.test_sampling import Build, dump, info, record, ticks


def test_threads_and_remote_frees(program: Build, tmp_path: Path) -> None:
    (process,) = record(tmp_path / "r.hwt", [program("record_remote"), "4", "200000"], "--sample", "16")
    assert process["threads"] == 5
    assert process["lost_events"] == 0
    kinds = [line[2] for line in dump(tmp_path / "r.hwt")]
    assert kinds.count("malloc") - kinds.count("free") <= 50
    assert kinds.count("thread_end") >= 4
    found = info(tmp_path / "r.hwt")
    assert abs(found["allocations"] - 800_000) < 2_000


def test_forked_children_have_samples_of_their_own(tmp_path: Path) -> None:
    code = (
        "import os\n"
        "keep = [bytes(i % 300 + 600) for i in range(20000)]\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0:\n"
        "        more = [bytes(700 + i % 100) for i in range(20000)]\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
    )
    found = record(tmp_path / "f.hwt", [sys.executable, "-c", code], "--sample", "16")
    assert len(found) == 4
    assert all(process["allocations"] > 1000 and process["lost_events"] == 0 for process in found)


def test_a_forked_child_counts_its_own_requests(program: Build, tmp_path: Path) -> None:
    command: list[str | Path] = [program("record_forks"), "400000", "0", "3", "20000"]
    parent, *children = record(tmp_path / "f.hwt", command, "--sample", "16")
    assert abs(ticks(Path(parent["trace"])) - 400_000) < 1000
    assert len(children) == 3
    for child in children:
        assert abs(ticks(Path(child["trace"])) - 20_000) < 1000
        assert abs(child["allocations"] - 20_000) < 1000
        assert abs(child["sample"]["objects"] * 16 - 20_000) < 5 * (20_000 * 16) ** 0.5
    chosen = [
        [line[1:] for line in dump(Path(child["trace"])) if line[2] in ("malloc", "free", "ticks")]
        for child in children
    ]
    assert chosen[0] != chosen[1]
    assert chosen[1] != chosen[2]


@pytest.mark.parametrize("options", [("--sample", "16"), ()])
def test_the_trace_of_a_forked_child_begins_at_the_fork(
    options: tuple[str, ...], program: Build, tmp_path: Path
) -> None:
    command: list[str | Path] = [program("record_forks"), "1000", "0", "1", "20000", "300"]
    child, _ = record(tmp_path / "f.hwt", command, *options)
    assert int(dump(Path(child["trace"]))[0][0]) >= 300_000_000  # ns


def test_a_daemon_counts_its_own_requests(program: Build, tmp_path: Path) -> None:
    """The C library's daemon() does not call the function fork()."""
    command: list[str | Path] = [program("record_cases", "-fno-builtin"), "daemon"]
    options = ("--force", "-o", "d.hwt", "--json", "d.json", "--sample", "16", "--max-cost", "0")
    done = heapwright_record(*options, "--", *command, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "d.json").read_text())["processes"]
    found = sorted(ticks(tmp_path / each["trace"]) for each in told)
    assert len(found) == 3
    assert abs(found[2] - 400_000) < 1000
    assert abs(found[1] - 20_000) < 1000


def test_a_child_that_is_forked_in_a_window_is_in_it(tmp_path: Path) -> None:
    code = (
        "import os, signal\n"
        "os.kill(os.getpid(), signal.SIGUSR2)\n"
        "keep = [bytes(700 + i % 100) for i in range(20000)]\n"
        "if os.fork() == 0:\n"
        "    more = [bytes(700 + i % 100) for i in range(20000)]\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    command = [sys.executable, "-c", code]
    found = record(tmp_path / "w.hwt", command, "--sample", "8", "--window-signal", "USR2")
    assert len(found) == 2
    assert all(process["allocations"] > 10_000 for process in found)


def test_a_child_samples_though_the_window_of_its_parent_has_closed(program: Build, tmp_path: Path) -> None:
    command: list[str | Path] = [program("record_forks"), "40000", "300", "2", "20000"]
    _, *children = record(tmp_path / "f.hwt", command, "--sample", "8", "--for", "0.2")
    assert len(children) == 2
    for child in children:
        assert abs(child["sample"]["objects"] * 8 - 20_000) < 5 * (20_000 * 8) ** 0.5


def test_threads_that_are_older_than_a_window_count_their_requests_in_it(program: Build, tmp_path: Path) -> None:
    """The first object of each in the window stands for the requests before it, whose number is not known."""
    rate, threads, inside = 512, 200, 300
    command: list[str | Path] = [program("record_older", "-pthread"), str(threads), "5000", str(inside)]
    record(tmp_path / "o.hwt", command, "--sample", str(rate), "--max-cost", "0", "--window-signal", "RTMAX")
    truth = threads * inside
    bound = 5 * (truth * rate) ** 0.5
    assert abs(ticks(tmp_path / "o.hwt") - truth) < bound
    assert abs(info(tmp_path / "o.hwt")["allocations"] - truth) < bound


def test_threads_that_free_objects_of_others_count_once(program: Build, tmp_path: Path) -> None:
    """They have objects of their own in lower levels only, which are dropped."""
    command: list[str | Path] = [program("record_frees", "-pthread"), "1000000"]
    record(tmp_path / "full.hwt", command)
    (process,) = record(tmp_path / "f.hwt", command, "--sample", "2", "--max-cost", "2")
    assert process["sample"]["rate"] >= 64, "it was not thinned"
    assert abs(ticks(tmp_path / "f.hwt") - info(tmp_path / "full.hwt")["allocations"]) < 4000


def test_the_end_of_a_thread_that_frees_late_is_recorded(program: Build, tmp_path: Path) -> None:
    command: list[str | Path] = [program("record_cases", "-fno-builtin", "-pthread"), "late"]
    record(tmp_path / "l.hwt", command, "--sample", "65536")
    kinds = [line[2] for line in dump(tmp_path / "l.hwt")]
    assert kinds.count("free") == 1
    assert kinds.count("thread_end") == 1


def test_a_sample_of_short_threads_has_their_live_bytes(program: Build, tmp_path: Path) -> None:
    """Half of the threads have no object in the sample. Their requests count, and copies that fall to others must not
    live until the end.
    """
    short = program("detached_threads", "-pthread")
    trace, sample = tmp_path / "t.hwt", tmp_path / "s.hwt"
    heapwright("record", "-q", "-o", trace, "--", short, "4000", "1", "50")
    heapwright("record", "-q", "-o", sample, "--sample", "64", "--", short, "4000", "1", "50")
    full, found = info(trace), info(sample)
    truth = 4000 * 50
    assert abs(found["allocations"] - full["allocations"]) < 0.01 * truth
    counts = [next(top["count"] for top in each["top_sizes"] if top["size"] == 100) for each in (full, found)]
    assert counts[0] == truth
    assert abs(counts[1] - truth) < 5 * (truth * 64) ** 0.5
    assert found["peak_live_bytes"] < full["peak_live_bytes"] + 64 * 1024
