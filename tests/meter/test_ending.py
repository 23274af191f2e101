"""Tests how a run ends: by itself, by a signal, at its time limit, with its parent, or when the meter is killed."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import needs

from ..processes import PACE, alive, wait_for
from .harness import MIB, SMALL, Meter

IOCTL = {"x86_64": "16", "aarch64": "29"}[platform.machine()]  # by which the meter takes calls and answers them

# A shell that writes its own process id and that of a child, which outlives it unless somebody ends
# it.
FAMILY = "sleep 1000 >/dev/null 2>&1 & echo $$ $! >{0}.new; mv {0}.new {0}; "


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[Path]:
    """The file into which targets write their process ids; processes left at the end of a test are killed."""
    path = tmp_path / "pids"
    yield path
    for pid in numbers(path) if path.exists() else []:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def numbers(path: Path) -> list[int]:
    wait_for(path.exists)
    return [int(word) for word in path.read_text().split()]


def gone(processes: list[int]) -> bool:
    return not any(alive(pid) for pid in processes)


# By themselves


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_a_death_by_signal_is_reported_with_the_memory_until_then(number: signal.Signals, any_meter: Meter) -> None:
    ran = any_meter.run(any_meter.program, "signal", str(int(number)))
    assert (ran.status, ran.ledger["exit_code"], ran.ledger["signal"]) == (0, None, int(number))
    # The memory until then is known all the same.
    assert 32 * MIB <= ran.ledger["peak_rss_bytes"] <= 32 * MIB + SMALL
    assert 32 * MIB <= ran.ledger["peak_heap_bytes"] <= 32 * MIB + SMALL


def test_streams_and_status_are_the_targets(any_meter: Meter) -> None:
    ran = any_meter.run("/bin/sh", "-c", "cat; echo err >&2; exit 41", input="in")
    assert (ran.out, ran.err, ran.ledger["exit_code"]) == ("in", "err\n", 41)


def test_the_output_ends_with_the_target(any_meter: Meter, pids: Path) -> None:
    """A reader of the pipe waits for end of file, so no process of the meter may keep the pipe open."""
    ran = any_meter.run("/bin/sh", "-c", FAMILY.format(pids) + "echo done", options=["--wait", "root"])
    assert (ran.status, ran.out, ran.ledger["exit_code"]) == (0, "done\n", 0)
    _, child = numbers(pids)
    if any_meter.backend == "ptrace":  # which can leave nobody behind
        wait_for(lambda: gone([child]))
    else:
        assert alive(child)


# At the time limit


def test_a_timeout_ends_the_whole_tree(any_meter: Meter, pids: Path) -> None:
    script = f"trap '' TERM; (sleep 1000 & echo $! >>{pids}; wait) & echo $$ $! >>{pids}; wait; wait"
    ran = any_meter.run("/bin/sh", "-c", script, options=["--timeout", str(0.5 * PACE), "--kill-grace", "0.2"])
    assert (ran.ledger["timed_out"], ran.ledger["signal"]) == (True, signal.SIGKILL)
    assert len(numbers(pids)) == 3
    wait_for(lambda: gone(numbers(pids)))


def test_a_timeout_asks_first(any_meter: Meter) -> None:
    script = "trap 'exit 7' TERM; while :; do sleep 0.05; done"
    ran = any_meter.run("/bin/sh", "-c", script, options=["--timeout", str(0.3 * PACE), "--kill-grace", "50"])
    assert (ran.ledger["timed_out"], ran.ledger["exit_code"]) == (True, 7)


def test_a_timeout_ends_what_is_stopped(any_meter: Meter) -> None:
    ran = any_meter.run("/bin/sh", "-c", "kill -STOP $$", options=["--timeout", str(0.3 * PACE), "--kill-grace", "0.1"])
    assert (ran.ledger["timed_out"], ran.ledger["signal"]) == (True, signal.SIGKILL)


def test_a_run_that_ends_in_time_is_no_timeout(any_meter: Meter) -> None:
    assert any_meter.behave("zombie", options=["--timeout", "50"])["timed_out"] is False


# Signals to the meter


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2])
def test_signals_are_passed_on_to_the_command(number: signal.Signals, any_meter: Meter, pids: Path) -> None:
    name = number.name.removeprefix("SIG")
    script = f"trap 'exit 9' {name}; echo $$ >{pids}.new; mv {pids}.new {pids}; while :; do sleep 0.05; done"
    running = subprocess.Popen(any_meter.words(["/bin/sh", "-c", script]))
    numbers(pids)
    running.send_signal(number)
    assert running.wait(timeout=60) == 0
    assert json.loads(any_meter.report.read_text())["exit_code"] == 9


def test_an_interrupt_is_left_to_the_target_and_a_second_is_not(any_meter: Meter, pids: Path) -> None:
    """A terminal sends the signal to both; the target may handle it, but only for a limited time."""
    running = subprocess.Popen(any_meter.words(["/bin/sh", "-c", FAMILY.format(pids) + "wait"]))
    family = numbers(pids)
    running.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        running.wait(timeout=0.3)
    assert all(alive(pid) for pid in family)
    running.send_signal(signal.SIGINT)
    assert running.wait(timeout=60) == 0
    assert json.loads(any_meter.report.read_text())["signal"] == signal.SIGKILL
    wait_for(lambda: gone(family))


def test_an_interrupt_ends_the_waiting_for_what_was_left(any_meter: Meter, pids: Path) -> None:
    running = subprocess.Popen(
        any_meter.words(["/bin/sh", "-c", FAMILY.format(pids) + "exit 5"]), stderr=subprocess.DEVNULL
    )
    shell, child = numbers(pids)
    wait_for(lambda: not Path(f"/proc/{shell}").exists())
    assert running.poll() is None
    running.send_signal(signal.SIGINT)
    assert running.wait(timeout=60) == 0
    assert json.loads(any_meter.report.read_text())["exit_code"] == 5
    if any_meter.backend == "ptrace":
        wait_for(lambda: gone([child]))
    else:
        assert alive(child)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signals_end_what_the_command_has_left(number: signal.Signals, any_meter: Meter, pids: Path) -> None:
    running = subprocess.Popen(
        any_meter.words(["/bin/sh", "-c", FAMILY.format(pids) + "exit 5"]), stderr=subprocess.DEVNULL
    )
    shell, child = numbers(pids)
    wait_for(lambda: not Path(f"/proc/{shell}").exists())
    running.send_signal(number)
    assert running.wait(timeout=60) == 0
    assert json.loads(any_meter.report.read_text())["exit_code"] == 5
    assert gone([child])


def test_nohup_keeps_the_hangup_from_what_the_command_has_left(any_meter: Meter, pids: Path) -> None:
    words = any_meter.words(["/bin/sh", "-c", FAMILY.format(pids) + "exit 5"], "--kill-grace", "0")
    running = subprocess.Popen(["nohup", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    shell, child = numbers(pids)
    wait_for(lambda: not Path(f"/proc/{shell}").exists())
    running.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        running.wait(timeout=0.3)
    assert alive(child)
    running.send_signal(signal.SIGTERM)
    assert running.wait(timeout=60) == 0
    assert gone([child])


# With the parent


@pytest.mark.parametrize("options", [["--die-with-parent"], ["--die-with-parent", "--attended"]])
def test_the_parents_death_takes_all_along(options: list[str], any_meter: Meter, pids: Path) -> None:
    words = any_meter.words(["/bin/sh", "-c", FAMILY.format(pids) + "wait"], *options)
    parent = subprocess.Popen([sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", *words])
    try:
        family = numbers(pids)
        assert all(alive(pid) for pid in family)
    finally:
        parent.kill()
        parent.wait()
    wait_for(lambda: gone(family))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_target_of_ours_ends_when_we_say(number: signal.Signals, any_meter: Meter, pids: Path) -> None:
    script = f"trap '' TERM INT; {FAMILY.format(pids)} wait"
    running = subprocess.Popen(any_meter.words(["/bin/sh", "-c", script], "--die-with-parent"))
    family = numbers(pids)
    running.send_signal(number)
    assert running.wait(timeout=60) == 0
    assert json.loads(any_meter.report.read_text())["signal"] == signal.SIGKILL
    wait_for(lambda: gone(family))


def test_an_attended_target_receives_signals_itself(any_meter: Meter, pids: Path) -> None:
    script = f"trap 'exit 7' TERM; {FAMILY.format(pids)} wait"
    running = subprocess.Popen(any_meter.words(["/bin/sh", "-c", script], "--die-with-parent", "--attended"))
    family = numbers(pids)
    running.send_signal(signal.SIGINT)  # a terminal would send it to the target itself
    running.send_signal(signal.SIGTERM)
    wait_for(lambda: gone(family[:1]))
    running.send_signal(signal.SIGINT)
    assert running.wait(timeout=60) == 0
    assert json.loads(any_meter.report.read_text())["exit_code"] == 7
    for pid in filter(alive, family):
        os.kill(pid, signal.SIGKILL)


def test_the_wait_for_a_daemon_of_measure_names_the_way_to_figures(meter_with: Callable[[str], Meter]) -> None:
    words = meter_with("poll").words(["/bin/sh", "-c", "sleep 60 & echo $!"], "--die-with-parent", "--attended")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        daemon, said = int(running.stdout.readline()), running.stderr.readline()
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=60) == 0
        os.kill(daemon, signal.SIGKILL)
    assert f"that it left running: {daemon} (Ctrl-C stops waiting and gives no figures; 'measure --for TIME'" in said


# The meter's own death


@pytest.mark.parametrize("count", [200, 201])
def test_a_killed_meter_leaves_no_call_unanswered(
    count: int, meter_with: Callable[[str], Meter], program: Callable[..., Path], tmp_path: Path
) -> None:
    """With notify, the meter is killed before it receives a call, and between receiving and answering one."""
    metered = meter_with("notify")
    mark, go = tmp_path / "mark", tmp_path / "go"
    words = metered.words([metered.program, "busy", str(mark), str(go)])
    try:
        killer = subprocess.run([program("kill_at"), IOCTL, str(count), *words], check=False, timeout=60)
        if killer.returncode == 4:
            needs.machine_cannot("trace the meter")
        assert killer.returncode == 0
        (target,) = numbers(mark)
        assert alive(target)
        go.touch()
        wait_for(lambda: gone([target]), seconds=20)
    finally:
        for target in filter(alive, numbers(mark)):
            os.kill(target, signal.SIGKILL)


def test_a_killed_meter_leaves_the_target_running(meter_with: Callable[[str], Meter], pids: Path) -> None:
    """With notify, whose watchdog also answers the calls of new processes, and with polling."""
    for backend in ("notify", "poll"):
        pids.unlink(missing_ok=True)
        out = pids.with_name(backend)
        script = f"{FAMILY.format(pids)} while [ ! -e {out}.go ]; do sleep 0.02; done; /bin/true && echo well >{out}"
        running = subprocess.Popen(meter_with(backend).words(["/bin/sh", "-c", script]))
        family = numbers(pids)
        running.kill()
        running.wait()
        assert all(alive(pid) for pid in family)
        Path(f"{out}.go").touch()
        wait_for(lambda path=out: path.exists() and path.read_text() == "well\n")  # type: ignore[misc]
        wait_for(lambda shell=family[0]: not alive(shell))  # type: ignore[misc]
        os.kill(family[1], signal.SIGKILL)


def test_a_killed_meter_takes_along_what_is_tied_to_its_parent(any_meter: Meter, pids: Path) -> None:
    running = subprocess.Popen(any_meter.words(["/bin/sh", "-c", FAMILY.format(pids) + "wait"], "--die-with-parent"))
    family = numbers(pids)
    assert all(alive(pid) for pid in family)
    running.kill()
    running.wait()
    wait_for(lambda: gone(family))


# A process that ignores SIGCHLD, and its child with a number of further threads. The child takes 0.5 s of CPU time and
# (`idle`) sleeps. The parent (`stays`) waits for its end.
UNWAITED = """import os, signal, sys, threading, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
parent, child, threads = sys.argv[1:]
if os.fork() == 0:
    for _ in range(int(threads)):
        threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
    while time.process_time() < 0.5:
        pass
    time.sleep(0.3 if child == "idle" else 0)
    os._exit(0)
if parent == "stays":
    try:
        os.wait()
    except ChildProcessError:
        pass
while time.process_time() < 2 and child == "idle":
    pass
"""
# The child waits for a child of its own that takes 1 s, and ends at once. The first process may ignore SIGCHLD.
GRANDCHILD = """import os, signal, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN if sys.argv[1] == "ignores" else signal.SIG_DFL)
if os.fork() == 0:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    while child == 0 and time.process_time() < 1:
        pass
    if child:
        os.waitpid(child, 0)
    os._exit(0)
try:
    os.wait()
except ChildProcessError:
    pass
while time.process_time() < 0.5:
    pass
"""
# The parent ignores SIGCHLD when it forks, and waits for the child, which takes 1 s, after all.
WAITED_AFTER_ALL = """import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
child = os.fork()
while child == 0 and time.process_time() < 1:
    pass
if child:
    time.sleep(0.1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.waitpid(child, 0)
"""


def test_usage_that_nobody_waits_for_is_not_left_out_unsaid(any_meter: Meter) -> None:
    """The kernel drops the rusage of a child whose parent ignores SIGCHLD; only a tracer learns it."""
    found = any_meter.run(sys.executable, "-c", UNWAITED, "stays", "busy", "64").ledger
    assert "'python" in found["warnings"][0]
    assert "ignores SIGCHLD" in found["warnings"][0]
    if any_meter.backend == "ptrace":
        assert found["user_s"] + found["sys_s"] > 0.5
    else:
        assert {found[key] for key in ("user_s", "sys_s", "minor_faults", "major_faults")} == {None}


def test_usage_of_an_idle_child_that_nobody_waits_for_is_known(any_meter: Meter) -> None:
    """By its last reading, which may leave out one interval: little beside the CPU time of the parent."""
    words = (sys.executable, "-c", UNWAITED, "stays", "idle", "0")
    for _ in range(3):  # on a busy machine the last reading may come late
        found = any_meter.run(*words, options=("--interval-ms", "1")).ledger
        if found["user_s"] is not None:
            break
    assert not any("not known" in text for text in found["warnings"])
    assert 2.45 <= found["user_s"] + found["sys_s"] < 3
    assert found["minor_faults"] > 0


@pytest.mark.parametrize(
    ("words", "cpu_s", "known"),
    [((GRANDCHILD, "ignores"), 1.5, False), ((GRANDCHILD, "waits"), 1.5, True), ((WAITED_AFTER_ALL,), 1, False)],
    ids=["ignored", "plain", "waited after all"],
)
def test_usage_is_neither_lost_nor_counted_twice(
    any_meter: Meter, words: tuple[str, ...], cpu_s: float, known: bool
) -> None:
    """In a plain tree it is always known; otherwise it may be n/a."""
    found = any_meter.run(sys.executable, "-c", *words).ledger
    if known or found["user_s"] is not None:
        assert cpu_s <= found["user_s"] + found["sys_s"] < cpu_s + 0.5


# Each child signals its parent and ends, so a tracer finds the parent stopped. Prints the CPU time of all.
SIGNALLED_PARENT = """import os, signal, time
signal.signal(signal.SIGUSR1, lambda *_: None)
for _ in range(100):
    child = os.fork()
    while child == 0 and time.process_time() < 0.01:
        pass
    if child == 0:
        os.kill(os.getppid(), signal.SIGUSR1)
        os._exit(0)
    os.waitpid(child, 0)
print(sum(os.times()[:4]))
"""


def test_usage_of_a_child_counts_once_if_its_parent_is_stopped(any_meter: Meter) -> None:
    ran = any_meter.run(sys.executable, "-c", SIGNALLED_PARENT)
    assert ran.ledger["user_s"] + ran.ledger["sys_s"] == pytest.approx(float(ran.out), rel=0.15)


def test_usage_of_a_child_that_outlives_its_parent_is_known(any_meter: Meter) -> None:
    found = any_meter.run(sys.executable, "-c", UNWAITED, "goes", "busy", "0").ledger
    assert not any("SIGCHLD" in text for text in found["warnings"])
    assert found["user_s"] + found["sys_s"] > 0.3
