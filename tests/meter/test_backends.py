"""Every back end on processes that are hard to meter: tests/programs/behaviours.c checks itself that nothing is
different for it, here is checked that the ledger tells what happened.

Figures are what the program does, in MiB, plus a few for the C library and the program itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ..processes import alive, wait_for

MIB = 1 << 20
SMALL = 6 * MIB  # what a small C program has besides what it asks for
BACKENDS = ("notify", "ptrace", "poll")
EXACT = ("notify", "ptrace")


class Ran(NamedTuple):
    status: int
    out: str
    err: str
    ledger: dict[str, Any]


class Meter:
    """The native meter with one back end, and behaviours.c."""

    def __init__(self, path: Path, backend: str, program: Path, folder: Path) -> None:
        self.path, self.backend, self.program, self.folder = path, backend, program, folder
        self.report = folder / "ledger.json"

    def words(self, command: Sequence[str | Path], *options: str) -> list[str | Path]:
        return [self.path, "--backend", self.backend, "--output", self.report, *options, "--", *command]

    def run(self, *command: str | Path, options: Sequence[str] = (), **more: Any) -> Ran:
        done = subprocess.run(
            self.words(command, *options), capture_output=True, text=True, check=False, timeout=60, **more
        )
        ledger = json.loads(self.report.read_text()) if self.report.exists() else {}
        return Ran(done.returncode, done.stdout, done.stderr, ledger)

    def behave(self, *arguments: str, options: Sequence[str] = ()) -> dict[str, Any]:
        """Runs behaviours.c and sees that it found nothing changed."""
        ran = self.run(self.program, *arguments, options=options)
        assert (ran.status, ran.err) == (0, "")
        assert (ran.ledger["meter"], ran.ledger["exit_code"], ran.ledger["signal"]) == (self.backend, 0, None)
        return ran.ledger


@pytest.fixture(scope="session")
def works(meter: Path) -> dict[str, Any]:
    probed: dict[str, Any] = json.loads(subprocess.run([meter, "--probe"], capture_output=True, check=True).stdout)
    return probed


def make(meter: Path, backend: str, program: Callable[..., Path], folder: Path, works: dict[str, Any]) -> Meter:
    if not works[backend]["works"]:
        pytest.skip(f"{backend}: {works[backend]['why']}")
    return Meter(meter, backend, program("behaviours"), folder)


@pytest.fixture(params=BACKENDS)
def any_meter(
    request: pytest.FixtureRequest, meter: Path, program: Callable[..., Path], tmp_path: Path, works: dict[str, Any]
) -> Meter:
    return make(meter, request.param, program, tmp_path, works)


@pytest.fixture(params=EXACT)
def exact_meter(
    request: pytest.FixtureRequest, meter: Path, program: Callable[..., Path], tmp_path: Path, works: dict[str, Any]
) -> Meter:
    return make(meter, request.param, program, tmp_path, works)


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


def test_exec_stays_one_process(any_meter: Meter) -> None:
    ledger = any_meter.behave("exec")
    assert ledger["processes"] == 1
    assert 64 * MIB <= ledger["peak_rss_bytes"] <= 64 * MIB + SMALL


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
    # Polling may miss the one in between, which ends at once.
    assert ledger["processes"] in ((2, 3) if any_meter.backend == "poll" else (3,))
    assert 48 * MIB <= ledger["peak_rss_bytes"] <= 48 * MIB + 3 * SMALL


def test_a_daemon_can_be_left_alone(any_meter: Meter) -> None:
    mark = any_meter.folder / "mark"
    ran = any_meter.run(any_meter.program, "daemon", str(mark), options=["--wait", "root"])
    assert (ran.status, ran.ledger["exit_code"]) == (0, 0)
    assert ran.ledger["peak_rss_bytes"] < 48 * MIB
    if any_meter.backend == "ptrace":
        assert ran.err == "heapwright-meter: under ptrace nothing can be left running: killing what the command left\n"
    else:
        wait_for(mark.exists)  # it lives on; with notify the keeper answers its calls


def test_a_32_bit_child(any_meter: Meter, program: Callable[..., Path]) -> None:
    try:
        small = program("behaviours", "-m32")
    except subprocess.CalledProcessError:
        pytest.skip("no 32-bit compiler")
    ran = any_meter.run("/bin/sh", "-c", f"{small} fork; {small} returns; exit 4")
    assert (ran.status, ran.ledger["exit_code"]) == (0, 4)
    assert 160 * MIB <= ran.ledger["peak_rss_bytes"] <= 160 * MIB + 2 * SMALL
    if any_meter.backend != "poll":
        assert 96 * MIB <= ran.ledger["returned_bytes"] <= 96 * MIB + SMALL


# How it ends


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_death_by_signal(number: signal.Signals, any_meter: Meter) -> None:
    ran = any_meter.run(any_meter.program, "signal", str(int(number)))
    assert (ran.status, ran.ledger["exit_code"], ran.ledger["signal"]) == (0, None, int(number))


def test_streams_and_status_are_the_targets(any_meter: Meter) -> None:
    ran = any_meter.run("/bin/sh", "-c", "cat; echo err >&2; exit 41", input="in")
    assert (ran.out, ran.err, ran.ledger["exit_code"]) == ("in", "err\n", 41)


def test_a_timeout_ends_the_whole_tree(any_meter: Meter) -> None:
    pids = any_meter.folder / "pids"
    script = f"trap '' TERM; (sleep 1000 & echo $! >>{pids}; wait) & echo $$ $! >>{pids}; wait; wait"
    ran = any_meter.run("/bin/sh", "-c", script, options=["--timeout", "0.5", "--kill-grace", "0.2"])
    assert ran.ledger["timed_out"] is True
    assert ran.ledger["signal"] == signal.SIGKILL
    left = [int(word) for word in pids.read_text().split()]
    assert len(left) == 3
    wait_for(lambda: not any(alive(pid) for pid in left))


def test_the_parents_death_takes_all_along(any_meter: Meter) -> None:
    pids = any_meter.folder / "pids"
    script = f"sleep 1000 & echo $$ $! >{pids}.new; mv {pids}.new {pids}; wait"
    words = any_meter.words(["/bin/sh", "-c", script], "--die-with-parent")
    parent = subprocess.Popen(["python3", "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", *words])
    try:
        wait_for(pids.exists)
        left = [int(word) for word in pids.read_text().split()]
        assert all(alive(pid) for pid in left)
    finally:
        parent.kill()
        parent.wait()
    wait_for(lambda: not any(alive(pid) for pid in left))


def test_a_killed_meter_leaves_the_target_running(meter: Path, tmp_path: Path, works: dict[str, Any]) -> None:
    """With notify: the keeper answers the calls that nobody else would answer any more."""
    if not works["notify"]["works"]:
        pytest.skip(works["notify"]["why"])
    go, pid_file, out = tmp_path / "go", tmp_path / "pid", tmp_path / "out"
    code = (
        "import os, pathlib, sys, time\n"
        "go, pid, out = map(pathlib.Path, sys.argv[1:])\n"
        "pid.with_suffix('.new').write_text(str(os.getpid())); pid.with_suffix('.new').rename(pid)\n"
        "while not go.exists(): time.sleep(0.01)\n"
        "blocks = [bytearray(1 << 20) for _ in range(50)]\n"
        "out.with_suffix('.new').write_text(str(sum(map(len, blocks)))); out.with_suffix('.new').rename(out)\n"
    )
    running = subprocess.Popen([meter, "--backend", "notify", "--", "python3", "-c", code, go, pid_file, out])
    try:
        wait_for(pid_file.exists)
    finally:
        running.kill()
        running.wait()
    target = int(pid_file.read_text())
    assert alive(target)
    go.touch()
    wait_for(out.exists)
    assert int(out.read_text()) == 50 * MIB
    wait_for(lambda: not alive(target))


# What it had


def test_means_of_a_known_course(any_meter: Meter) -> None:
    ledger = any_meter.behave("steps")
    # 64 MiB for 300 ms of at least 600: more when the machine is slow to begin or to end.
    share = 0.3 / ledger["wall_s"]
    for metric in ("mean_heap_bytes", "mean_rss_bytes"):
        assert 0.8 * share * 64 * MIB <= ledger[metric] <= 0.7 * 64 * MIB + SMALL, metric
    assert 64 * MIB <= ledger["peak_heap_bytes"] <= 64 * MIB + SMALL


def test_what_was_given_back(exact_meter: Meter) -> None:
    ledger = exact_meter.behave("returns")
    assert 96 * MIB <= ledger["returned_bytes"] <= 96 * MIB + MIB
    assert ledger["returned_lazily_bytes"] == 16 * MIB


def test_polling_does_not_pretend_to_know(meter: Path, program: Callable[..., Path], tmp_path: Path) -> None:
    ledger = Meter(meter, "poll", program("behaviours"), tmp_path).behave("returns")
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
    """For a program of any size; not the size of whoever started it, as after a fork from a large one."""
    for command in (["true"], ["perl", "-e", "my @a = (1) x 1e6"], ["sort", "/etc/services"]):
        ran = any_meter.run("/bin/sh", "-c", '"$0" "$@" >/dev/null; exit $?', *command)
        direct = any_meter.run(*command)
        assert direct.ledger["processes"] == 1
        # The shell waits for a child that it forked, and so small programs weigh what the shell weighed.
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
    assert set(series) == {"t", "rss", "heap", "vm"}
    assert len({len(column) for column in series.values()}) == 1
    assert 20 <= len(series["t"]) <= 40
    assert series["t"] == sorted(series["t"])
    assert max(series["heap"]) >= 64 * MIB
    assert series["heap"][-1] < 64 * MIB


# Beside others


def test_a_program_with_a_filter_of_its_own(any_meter: Meter) -> None:
    ledger = any_meter.behave("filter")
    if any_meter.backend == "poll":  # it may end before it is first looked at
        return
    assert 32 * MIB <= ledger["peak_heap_bytes"] <= 32 * MIB + SMALL


def test_a_program_with_a_listener_of_its_own(any_meter: Meter) -> None:
    if any_meter.backend != "notify":
        any_meter.behave("listener")
        return
    ran = any_meter.run(any_meter.program, "listener")  # the kernel allows one listener a process: this must be said
    assert ran.ledger["exit_code"] == 2
    assert ran.ledger["warnings"] == [
        "the program installs a seccomp listener of its own, which cannot work beside ours: use --meter ptrace"
    ]


def test_a_meter_under_a_meter(meter: Path, any_meter: Meter, tmp_path: Path) -> None:
    inner = tmp_path / "inner.json"
    words: list[str | Path] = [meter, "--output", inner, "--", any_meter.program, "fork"]
    ran = any_meter.run(*words)
    assert (ran.status, ran.ledger["exit_code"]) == (0, 0)
    assert 160 * MIB <= ran.ledger["peak_rss_bytes"] <= 160 * MIB + 2 * SMALL
    found = json.loads(inner.read_text())
    assert found["meter"] in BACKENDS
    assert 160 * MIB <= found["peak_rss_bytes"] <= 160 * MIB + SMALL


def test_it_needs_no_privilege(any_meter: Meter) -> None:
    if os.geteuid() != 0:
        pytest.skip("these tests run without privilege already")
    any_meter.folder.chmod(0o777)
    open_to_others(any_meter.folder)
    open_to_others(any_meter.program.parent)
    ran = any_meter.run(any_meter.program, "fork", user=65534, group=65534, extra_groups=[])
    assert (ran.status, ran.err) == (0, "")
    assert 160 * MIB <= ran.ledger["peak_rss_bytes"] <= 160 * MIB + SMALL


# What it cannot run


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--", "no-such-program"], 127, "command not found: no-such-program"),
        (["--", "./no-such"], 127, "command not found: ./no-such"),
        (["--", "/etc"], 126, "cannot execute /etc: Permission denied"),
        (["--", "/etc/passwd"], 126, "cannot execute /etc/passwd: Permission denied"),
        (["--output", "/no/such/folder/report", "--", "true"], 1, "cannot write /no/such/folder/report"),
        (["--backend", "best", "--", "true"], 2, "bad option: --backend best"),
        ([], 2, "there is no command to run"),
    ],
)
def test_one_clear_line(words: list[str], status: int, message: str, meter: Path) -> None:
    done = subprocess.run([meter, *words], capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == status
    assert done.stderr.startswith(f"heapwright-meter: {message}")
    assert done.stderr.count("\n") == 1


def test_a_script_without_its_interpreter(meter: Path, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    done = subprocess.run([meter, "--", script], capture_output=True, text=True, check=False, timeout=20)
    assert (done.returncode, done.stderr) == (127, f"heapwright-meter: its interpreter is missing: {script}\n")


def open_to_others(path: Path) -> None:
    for folder in [path, *path.parents]:
        with contextlib.suppress(PermissionError):
            if folder != Path("/"):
                folder.chmod(folder.stat().st_mode | 0o055)
