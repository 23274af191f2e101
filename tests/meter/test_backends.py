"""Every back end on processes that are hard to meter: tests/programs/behaviours.c checks itself that nothing is
different for it, here is checked that the ledger tells what happened.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import needs

from ..processes import PACE, wait_for
from .harness import MIB, SMALL, Meter

COUNTED = MIB  # the kernel adds what each CPU counts of resident memory now and then: 32 pages or more are left out

# Processes


def test_fork_counts_both(any_meter: Meter) -> None:
    ledger = any_meter.behave("fork")
    assert ledger["processes"] == 2
    # The child's copy of the parent's 64 MiB is counted as resident in both, as the kernel does.
    assert 160 * MIB <= ledger["peak_rss_bytes"] <= 160 * MIB + SMALL
    assert 160 * MIB <= ledger["peak_heap_bytes"] <= 160 * MIB + SMALL


def test_a_vfork_child_is_not_counted_twice(any_meter: Meter) -> None:
    ledger = any_meter.behave("vfork")
    assert 64 * MIB <= ledger["peak_rss_bytes"] <= 64 * MIB + SMALL
    assert 64 * MIB <= ledger["peak_heap_bytes"] <= 64 * MIB + SMALL


def test_a_vfork_child_is_not_counted_twice_in_the_moment_of_its_exec(any_meter: Meter) -> None:
    ledger = any_meter.behave("vfork-often", options=["--interval-ms", "1"])
    assert 64 * MIB <= ledger["peak_rss_bytes"] <= 64 * MIB + SMALL
    assert 64 * MIB <= ledger["peak_heap_bytes"] <= 64 * MIB + SMALL


def test_exec_stays_one_process(any_meter: Meter) -> None:
    ledger = any_meter.behave("exec")
    assert ledger["processes"] == 1
    assert 64 * MIB <= ledger["peak_rss_bytes"] <= 64 * MIB + SMALL


@pytest.mark.longer
def test_a_look_within_exec_takes_no_stack_for_heap(exact_meter: Meter) -> None:
    """The kernel grows the stack by 128 KiB late in exec; the test corrects the rare reading from before that."""
    one, many = (
        exact_meter.behave("exec-often", n, options=["--interval-ms", "1"])
        for n in ("0", str(needs.repeats(2000, 500) // PACE))
    )
    assert many["peak_heap_bytes"] == one["peak_heap_bytes"]


def test_thread_stacks_are_no_heap(any_meter: Meter) -> None:
    ledger = any_meter.behave("threads")
    assert ledger["max_threads"] == 5
    assert ledger["peak_vm_bytes"] > 256 * MIB
    if any_meter.backend != "poll":  # which cannot tell a stack from other memory
        assert ledger["peak_heap_bytes"] < SMALL


def test_a_daemon_is_waited_for(any_meter: Meter) -> None:
    mark = any_meter.folder / "mark"
    ledger = any_meter.behave("daemon", str(mark))
    assert mark.exists()
    # Polling may miss the process in between, which ends at once.
    assert ledger["processes"] in ((2, 3) if any_meter.backend == "poll" else (3,))
    assert 48 * MIB <= ledger["peak_rss_bytes"] <= 48 * MIB + 3 * SMALL


def test_a_daemon_can_be_left_alone(any_meter: Meter) -> None:
    mark = any_meter.folder / "mark"
    ran = any_meter.run(any_meter.program, "daemon", str(mark), options=["--wait", "root"])
    assert (ran.status, ran.ledger["exit_code"]) == (0, 0)
    assert ran.ledger["peak_rss_bytes"] < 48 * MIB
    if any_meter.backend == "ptrace":
        assert (
            ran.err
            == "heapwright-meter: under ptrace no process can be left running: killing those that the command left\n"
        )
    else:
        wait_for(mark.exists)  # it lives on; with notify the watchdog answers its calls


def test_a_32_bit_child_is_measured(any_meter: Meter, program: Callable[..., Path]) -> None:
    small = program("behaviours", *needs.gcc_for_32_bits())
    ran = any_meter.run("/bin/sh", "-c", f"{small} fork; {small} returns; exit 4")
    assert (ran.status, ran.ledger["exit_code"]) == (0, 4)
    assert 160 * MIB <= ran.ledger["peak_rss_bytes"] <= 160 * MIB + 2 * SMALL
    if any_meter.backend != "poll":
        assert 96 * MIB <= ran.ledger["returned_bytes"] <= 96 * MIB + SMALL


def test_a_process_lives_on_without_its_first_thread(any_meter: Meter) -> None:
    ledger = any_meter.behave("leaderless")
    assert (ledger["processes"], ledger["max_threads"]) == (1, 2)
    if any_meter.backend == "poll":
        assert ledger["peak_heap_bytes"] is None, "stacks of threads cannot be told from the heap"
    else:
        assert 64 * MIB <= ledger["peak_heap_bytes"] <= 64 * MIB + 3 * SMALL
    # 64 MiB for 300 ms: a step, not a line that rises from zero.
    assert ledger["mean_rss_bytes"] >= 0.8 * 0.3 * PACE / ledger["wall_s"] * 64 * MIB


def test_a_forked_child_has_the_stacks_of_its_parents_threads(exact_meter: Meter, program: Callable[..., Path]) -> None:
    """They are no heap of the child's."""
    ledger = exact_meter.run(program("forked_with_threads", "-pthread"), "20").ledger
    assert ledger["max_threads"] == 21
    assert ledger["peak_heap_bytes"] < 8 * MIB, "20 stacks take 160 MiB"


def test_a_dead_child_that_nobody_waits_for_is_one_process(any_meter: Meter) -> None:
    assert any_meter.behave("zombie")["processes"] in ((1, 2) if any_meter.backend == "poll" else (2,))


def test_many_short_processes_are_all_seen(exact_meter: Meter) -> None:
    ran = exact_meter.run("/bin/sh", "-c", "i=0; while [ $i -lt 60 ]; do i=$((i+1)); /bin/true || exit 1; done")
    assert (ran.ledger["exit_code"], ran.ledger["processes"]) == (0, 61)
    assert ran.ledger["peak_rss_bytes"] < 4 * SMALL  # one after the other, never together


# The programs themselves check how their children and threads end.
@pytest.mark.parametrize("name", ["exec_thread", "signals"])
def test_metering_changes_nothing(name: str, any_meter: Meter, program: Callable[..., Path]) -> None:
    ran = any_meter.run(program(f"massif_{name}"))
    assert (ran.status, ran.err, ran.ledger["exit_code"], ran.ledger["signal"]) == (0, "", 0, None)


# Memory that the target had


def test_means_are_those_of_known_steps(any_meter: Meter) -> None:
    ledger = any_meter.behave("steps")
    # 64 MiB for 300 ms of at least 600 ms; longer if the machine starts or ends processes slowly.
    share = 0.3 * PACE / ledger["wall_s"]
    for metric in ("mean_heap_bytes", "mean_rss_bytes"):
        assert 0.8 * share * 64 * MIB <= ledger[metric] <= 0.7 * 64 * MIB + SMALL, metric
    assert 64 * MIB <= ledger["peak_heap_bytes"] <= 64 * MIB + SMALL


@pytest.mark.parametrize(("name", "stacks"), [("remap", 0), ("remap-threads", 8 * MIB)])
def test_a_mapping_that_moves_counts_once(name: str, stacks: int, any_meter: Meter) -> None:
    """While mremap runs, the kernel's own figures count the mapping at both places."""
    ledger = any_meter.behave(name)
    assert 96 * MIB + stacks <= ledger["peak_vm_bytes"] <= 96 * MIB + stacks + SMALL
    if ledger["peak_heap_bytes"] is not None:  # polling does not know it if there are threads
        assert 96 * MIB <= ledger["peak_heap_bytes"] <= 96 * MIB + SMALL


def test_memory_given_back_is_counted(exact_meter: Meter) -> None:
    ledger = exact_meter.behave("returns")
    assert 96 * MIB - COUNTED <= ledger["returned_bytes"] <= 96 * MIB + COUNTED
    assert ledger["returned_lazily_bytes"] == 16 * MIB


def test_memory_given_back_in_rarer_ways_is_counted(exact_meter: Meter) -> None:
    ledger = exact_meter.behave("returns-rarely")
    assert 80 * MIB - COUNTED <= ledger["returned_bytes"] <= 80 * MIB + COUNTED


def test_every_mapping_call_is_counted(exact_meter: Meter) -> None:
    """The counts equal those of strace, which sees every call of every process from the exec on."""
    needs.command("strace")
    log = exact_meter.folder / "strace"
    calls = "trace=mmap,munmap,brk,mremap,mprotect,madvise"
    strace: list[str | Path] = [
        "strace",
        "-f",
        "-qq",
        "-e",
        calls,
        "-e",
        "signal=none",
        "-o",
        log,
        exact_meter.program,
        "returns-rarely",
    ]
    if subprocess.run(strace, check=False, capture_output=True).returncode != 0:
        needs.machine_cannot("trace with strace")
    assert exact_meter.behave("returns-rarely")["mapping_calls"] == len(log.read_text().splitlines())


def test_mappings_are_counted(exact_meter: Meter) -> None:
    # The meter samples the count, more rarely the longer a sample takes; it is 2000 at the end.
    assert 100 <= exact_meter.behave("mappings")["max_maps"] <= 2100


def test_polling_takes_the_interval_it_is_told(meter_with: Callable[[str], Meter]) -> None:
    often, rarely = (
        meter_with("poll").behave("zombie", options=["--interval-ms", str(interval)])["samples"]
        for interval in (1, 100 * PACE)
    )
    assert rarely <= 4 < 20 <= often


def test_polling_does_not_pretend_to_know(meter_with: Callable[[str], Meter]) -> None:
    ledger = meter_with("poll").behave("returns")
    for unknown in ("returned_bytes", "returned_lazily_bytes", "mapping_calls"):
        assert ledger[unknown] is None


def test_peaks_are_the_kernels_own(any_meter: Meter) -> None:
    ran = any_meter.run(any_meter.program, "peaks")
    vm_peak, max_rss = (int(word) * 1024 for word in ran.out.split())
    assert ran.ledger["peak_rss_bytes"] == max_rss
    if any_meter.backend == "poll":
        assert ran.ledger["peak_vm_bytes"] <= vm_peak
    else:
        assert ran.ledger["peak_vm_bytes"] == vm_peak


def test_peak_rss_is_what_the_kernel_tells_a_small_parent(any_meter: Meter) -> None:
    """The figure is that of the program, whatever its size, and not of the process that forked it."""
    for command in (["true"], ["perl", "-e", "my @a = (1) x 1e6"], ["sort", "/etc/services"]):
        ran = any_meter.run("/bin/sh", "-c", '"$0" "$@" >/dev/null; exit $?', *command)
        direct = any_meter.run(*command)
        assert direct.ledger["processes"] == 1
        # The shell waits for a child that it forked, so small programs have the same resident
        # memory as the shell.
        largest = max(direct.ledger["peak_rss_bytes"], 4 * MIB)
        assert ran.ledger["peak_rss_bytes"] <= largest + 4 * MIB
    large = subprocess.run(
        ["python3", "-c", "import os, sys; x = bytearray(200 << 20); os.spawnv(os.P_WAIT, sys.argv[1], sys.argv[1:])"]
        + [str(word) for word in any_meter.words(["true"])],
        check=True,
        capture_output=True,
    )
    assert large.stderr == b""
    assert json.loads(any_meter.report.read_text())["peak_rss_bytes"] < SMALL


def test_a_series_has_the_peak(any_meter: Meter) -> None:
    series = any_meter.behave("steps", options=["--series", "40"])["series"]
    assert set(series) == {"t", "rss", "heap", "vm", "huge"}
    assert len({len(column) for column in series.values()}) == 1
    assert 20 <= len(series["t"]) <= 40
    assert series["t"] == sorted(series["t"])
    assert max(series["heap"]) >= 64 * MIB
    assert series["heap"][-1] < 64 * MIB
