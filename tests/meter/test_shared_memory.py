"""Tests proportional memory, simultaneous processes and the tree's own cgroup, with every back end.

tests/programs/behaviours.c says what each tree shares. A reading walks page tables, so a tree of 192 MiB has to live
for some hundred milliseconds before the meter's budget allows one: the children here sleep for a second.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import needs

from ..processes import PACE, wait_for
from .harness import MIB, SMALL, Meter
from .test_surroundings import public as public

PSS = ("--pss",)
# Readings have a budget of processor time. In an emulated machine one takes so long that the next
# comes too late.
reads_often = needs.only_where(PACE == 1, "read proportional memory often enough (it is emulated)")


# Proportional memory


@reads_often
def test_shared_pages_count_once(any_meter: Meter) -> None:
    ledger = any_meter.behave("share", "2", "0", "0", options=PSS)
    assert 192 * MIB <= ledger["peak_rss_bytes"] <= 192 * MIB + 3 * SMALL
    assert 64 * MIB <= ledger["peak_pss_bytes"] <= 64 * MIB + SMALL
    assert ledger["max_processes"] == 3
    # During most of the run RSS counts the memory three times, PSS once.
    assert ledger["mean_pss_bytes"] <= ledger["peak_pss_bytes"]
    assert ledger["mean_rss_bytes"] > 1.5 * ledger["mean_pss_bytes"]
    assert ledger["mean_pss_bytes"] > 0.6 * PACE / ledger["wall_s"] * 64 * MIB


@reads_often
def test_pages_that_a_child_writes_are_its_own(any_meter: Meter) -> None:
    """Writing copies pages, which does not change RSS."""
    ledger = any_meter.behave("share", "1", "32", "0", options=PSS)
    assert 128 * MIB <= ledger["peak_rss_bytes"] <= 128 * MIB + 2 * SMALL
    assert 96 * MIB <= ledger["peak_pss_bytes"] <= 96 * MIB + SMALL


@reads_often
@pytest.mark.few(1)
def test_a_child_that_has_ended_counts_no_more(any_meter: Meter) -> None:
    ledger = any_meter.behave("share", "1", "64", "1000", options=PSS)
    assert 128 * MIB <= ledger["peak_pss_bytes"] <= 128 * MIB + SMALL
    # 128 MiB for one second of at least two, then 64.
    assert ledger["mean_pss_bytes"] <= 0.85 * 128 * MIB


@reads_often
def test_one_process_has_it_too(any_meter: Meter) -> None:
    ledger = any_meter.behave("steps", options=PSS)
    assert 64 * MIB <= ledger["peak_pss_bytes"] <= ledger["peak_rss_bytes"]
    share = 0.3 * PACE / ledger["wall_s"]
    assert 0.7 * share * 64 * MIB <= ledger["mean_pss_bytes"] <= ledger["mean_rss_bytes"]
    assert ledger["max_processes"] == 1
    assert ledger["pss_samples"] >= 2


@reads_often
def test_a_vfork_child_is_not_counted_twice(any_meter: Meter) -> None:
    for name, processes in (("vfork-slow", 1), ("vfork", 2)):
        ledger = any_meter.behave(name, options=PSS)
        assert 64 * MIB <= ledger["peak_pss_bytes"] <= 64 * MIB + SMALL
        assert ledger["max_processes"] == processes


@reads_often
def test_a_process_without_its_first_thread(any_meter: Meter) -> None:
    assert 64 * MIB <= any_meter.behave("leaderless", options=PSS)["peak_pss_bytes"] <= 64 * MIB + SMALL


@reads_often
def test_the_peak_before_memory_goes_is_seen_however_short(exact_meter: Meter) -> None:
    """40 MiB that exist only briefly, between two ticks; the meter still sees the mapping calls.

    The budget of readings grows with the time, so the program waits first. On a busy machine a slow reading may still
    have spent it: one of five runs sees the peak.
    """
    for _ in range(5):
        command = ("sh", "-c", 'sleep 0.5; exec "$0" peaks', exact_meter.program)
        ledger = exact_meter.run(*command, options=PSS).ledger
        assert ledger["peak_pss_bytes"] <= ledger["peak_rss_bytes"]
        if ledger["peak_pss_bytes"] >= 40 * MIB:
            return
    pytest.fail("no run saw the peak")


@reads_often
def test_a_short_run_has_its_true_peak_or_none(any_meter: Meter) -> None:
    """60 MiB in a tenth of a second, in small steps: the budget allows only a few readings."""
    script = "print(len([str(number) * 20 for number in range(300000)]))"
    for _ in range(5):
        ledger = any_meter.run(sys.executable, "-c", script, options=PSS).ledger
        assert ledger["peak_pss_bytes"] is None or ledger["peak_pss_bytes"] >= 0.8 * ledger["peak_rss_bytes"]


@reads_often
def test_a_short_tree_has_no_less_than_its_largest_process(any_meter: Meter) -> None:
    """A parent and two children that grow by 20 MiB each, all in a few tenths of a second."""
    script = """import os
for _ in range(2):
    if os.fork() == 0:
        print(len([str(number) * 20 for number in range(100000)]))
        os._exit(0)
os.wait(), os.wait()
"""
    for _ in range(5):
        ledger = any_meter.run(sys.executable, "-c", script, options=PSS).ledger
        assert ledger["peak_pss_bytes"] is None or ledger["peak_pss_bytes"] >= 0.4 * ledger["peak_rss_bytes"]


def test_a_program_that_ends_at_once_is_read_at_its_end(exact_meter: Meter) -> None:
    ledger = exact_meter.run("true", options=PSS).ledger
    assert 0 < ledger["mean_pss_bytes"] <= ledger["peak_pss_bytes"] <= SMALL


def test_proportional_memory_is_not_read_unless_asked_for(any_meter: Meter) -> None:
    ledger = any_meter.behave("steps")
    assert (ledger["peak_pss_bytes"], ledger["mean_pss_bytes"]) == (None, None)
    assert "pss_samples" not in ledger


@reads_often
def test_a_process_that_may_not_be_looked_into(public: Meter) -> None:
    user = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": "/"} if os.geteuid() == 0 else {}
    ran = public.run(public.program, "hidden", options=PSS, **user)
    assert (ran.status, ran.ledger["exit_code"]) == (0, 0)
    assert ran.ledger["peak_rss_bytes"] >= 32 * MIB
    assert ran.ledger["warnings"] == [
        "proportional memory leaves out the time in which a process could not be read: Permission denied"
    ]


def test_huge_pages_of_a_process_that_may_not_be_read_leave_no_partial_sum(public: Meter) -> None:
    user: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": "/"} if os.geteuid() == 0 else {}
    ran = public.run("/bin/sh", "-c", f"{public.program} hidden & wait", **user)
    assert (ran.status, ran.ledger["exit_code"]) == (0, 0)
    assert ran.ledger["warnings"] == [
        "huge pages leave out the time in which a process could not be read: Permission denied"
    ]


# Simultaneous processes


@pytest.mark.parametrize(
    ("script", "processes"),
    [
        (f"exec sleep {0.1 * PACE}", 1),
        (f"sleep {0.1 * PACE}; sleep {0.1 * PACE}; :", 2),
        (f"sleep {0.3 * PACE} & sleep {0.3 * PACE}; wait", 3),
        (f"sleep {0.1 * PACE}; exec sleep {0.1 * PACE}", 2),
    ],
)
def test_processes_alive_at_once(script: str, processes: int, any_meter: Meter) -> None:
    assert any_meter.run("/bin/sh", "-c", script).ledger["max_processes"] == processes


def test_processes_one_after_the_other_are_two_at_once(exact_meter: Meter) -> None:
    ran = exact_meter.run("/bin/sh", "-c", "i=0; while [ $i -lt 60 ]; do i=$((i+1)); /bin/true || exit 1; done")
    assert (ran.ledger["processes"], ran.ledger["max_processes"]) == (61, 2)


def test_a_program_that_polling_does_not_see_is_one_process(any_meter: Meter) -> None:
    assert any_meter.run("true").ledger["max_processes"] == 1


# A cgroup of its own


@pytest.fixture
def group() -> Iterator[Path]:
    """Create a memory cgroup: below ours (version 1), or beside it (version 2: inner groups have no processes)."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    first = next((m[1] for line in lines if (m := re.fullmatch(r"\d+:(?:[^:]*,)?memory(?:,[^:]*)?:(.*)", line))), None)
    second = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "/")
    name = f"heapwright-test-{os.getpid()}"
    folder = (
        Path(f"/sys/fs/cgroup/memory/{first}") / name
        if first is not None
        else (Path(f"/sys/fs/cgroup/{second}") / (f"../{name}" if second != "/" else name)).resolve()
    )
    try:
        folder.mkdir()
    except OSError as error:
        needs.machine_cannot(f"make a cgroup ({error.strerror})")

    def removed() -> bool:
        try:
            folder.rmdir()
        except OSError:  # busy for as long as the kernel tidies up
            return False
        return True

    try:
        if not any((folder / file).exists() for file in ("memory.current", "memory.usage_in_bytes")):
            needs.machine_cannot("limit memory by a cgroup (no memory controller)")
        yield folder
    finally:
        wait_for(removed)


def join(group: Path) -> str:
    """Return the shell command that moves the shell into a group."""
    return f"echo $$ > '{group}/cgroup.procs'"


def test_a_command_that_moves_into_a_group_of_its_own(group: Path, any_meter: Meter) -> None:
    """As under systemd-run --scope, the kernel charges shared pages once."""
    script = f"{join(group)}; exec {any_meter.program} share 2 0 0"
    ledger = any_meter.run("/bin/sh", "-c", script, options=PSS).ledger
    assert ledger["exit_code"] == 0
    assert 64 * MIB <= ledger["cgroup_peak_bytes"] <= 64 * MIB + 2 * SMALL


def test_a_meter_in_a_group_of_its_own(group: Path, any_meter: Meter) -> None:
    words = [str(word) for word in any_meter.words([any_meter.program, "steps"])]
    for _ in range(2):  # the second time the group's peak is not the kernel's but the run's, as the group is used
        subprocess.run(["/bin/sh", "-c", f'{join(group)}; exec "$@"', "sh", *words], check=True, timeout=60)
        assert 60 * MIB <= any_meter.ledger()["cgroup_peak_bytes"] <= 64 * MIB + 2 * SMALL


def test_a_group_that_others_are_in_has_no_figure(group: Path, any_meter: Meter) -> None:
    script = f"{join(group)}; exec {any_meter.program} steps"
    with subprocess.Popen(["/bin/sh", "-c", f"{join(group)}; exec sleep 60"]) as other:
        wait_for(lambda: str(other.pid) in (group / "cgroup.procs").read_text().split())
        ledger = any_meter.run("/bin/sh", "-c", script).ledger
        other.kill()
    assert (ledger["exit_code"], ledger["cgroup_peak_bytes"]) == (0, None)


def test_a_tree_of_which_a_part_is_elsewhere_has_no_figure(group: Path, any_meter: Meter) -> None:
    script = f"sleep {PACE} & {join(group)}; {any_meter.program} steps; wait"
    ledger = any_meter.run("/bin/sh", "-c", script).ledger
    assert (ledger["exit_code"], ledger["cgroup_peak_bytes"]) == (0, None)


def test_a_group_that_the_tree_joins_after_its_peak_has_no_figure(group: Path, any_meter: Meter) -> None:
    ledger = any_meter.run("/bin/sh", "-c", f"{any_meter.program} steps; {join(group)}").ledger
    assert (ledger["exit_code"], ledger["cgroup_peak_bytes"]) == (0, None)


def test_in_everybodys_group_there_is_no_figure(any_meter: Meter) -> None:
    assert any_meter.behave("steps")["cgroup_peak_bytes"] is None
