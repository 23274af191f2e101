"""Tests the meter in sandboxes, under seccomp filters and without privileges; what a target can see of the meter; and
commands that it cannot run."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests import needs

from .harness import BACKENDS, EXACT, MIB, SMALL, Meter

# Everything that a program inherits and that could change its behaviour.
INHERITED = """
import ctypes, json, os, sys
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
death = ctypes.c_int()
ctypes.CDLL(None).prctl(1 + 1, ctypes.byref(death))  # PR_GET_PDEATHSIG
json.dump({
    "files": sorted(os.listdir("/proc/self/fd")), "environment": dict(os.environ), "folder": os.getcwd(),
    "signals": {name: status[name] for name in ("SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd")},
    "limits": open("/proc/self/limits").read(), "mask": os.umask(0), "nice": os.nice(0), "death": death.value,
    "group of parent": os.getpgid(0) == os.getpgid(os.getppid()), "session": os.getsid(0), "words": sys.argv,
}, sys.stderr)
"""


# Filters of the target's own


def test_a_program_with_a_filter_of_its_own(any_meter: Meter) -> None:
    ledger = any_meter.behave("filter")
    if any_meter.backend == "poll":  # it may end before it is first looked at
        return
    assert 32 * MIB <= ledger["peak_heap_bytes"] <= 32 * MIB + SMALL


def test_a_program_with_a_listener_of_its_own(any_meter: Meter) -> None:
    if any_meter.backend == "notify":  # the kernel allows one listener a process: this must be said
        ran = any_meter.run(any_meter.program, "listener")
        assert ran.ledger["exit_code"] == 2
        warnings = [
            "the program installs a seccomp listener of its own, which cannot work beside ours: use --meter ptrace"
        ]
        assert ran.ledger["warnings"] == warnings
        return
    warnings = any_meter.behave("listener")["warnings"]
    if any_meter.backend == "ptrace":
        assert warnings == [
            "the program installs a seccomp listener of its own: mapping calls that it watches are not seen"
        ]
    else:
        assert warnings == []


@pytest.mark.parametrize("call", ["strict", "strict-prctl"])
def test_a_program_in_strict_mode(call: str, any_meter: Meter) -> None:
    if any_meter.backend == "poll":
        assert any_meter.behave(call)["warnings"] == []
        return
    ran = any_meter.run(any_meter.program, call)  # the kernel refuses it under any filter
    assert ran.ledger["exit_code"] == 5
    assert ran.ledger["warnings"] == [
        "the program asks for seccomp strict mode, which fails under our filter: use --meter poll"
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


# Traces of the meter that a target can see


@pytest.mark.parametrize("closed", ["", "<&-", "<&- >&-"])
@pytest.mark.few(3)
def test_no_descriptor_or_variable_of_the_meter_reaches_the_target(closed: str, any_meter: Meter) -> None:
    def signals() -> None:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM, signal.SIGWINCH})

    def run(words: list[str | Path]) -> object:
        shell: list[str | Path] = ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *words]
        done = subprocess.run(shell, check=True, stderr=subprocess.PIPE, preexec_fn=signals, timeout=60)
        return json.loads(done.stderr)

    command: list[str | Path] = [sys.executable, "-c", INHERITED, "", "two words", "--output"]
    for options in ([], ["--die-with-parent"]):
        assert run(any_meter.words(command, *options)) == run(command)


# Without privilege


@pytest.fixture
def public(any_meter: Meter) -> Iterator[Meter]:
    """Copy the meter to a folder where every user may run it and write its report."""
    with tempfile.TemporaryDirectory(prefix="heapwright-public-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        for path in (any_meter.path, any_meter.program):
            shutil.copy(path, folder)
        yield Meter(folder / any_meter.path.name, any_meter.backend, folder / any_meter.program.name, folder)


def test_the_meter_needs_no_privilege(public: Meter) -> None:
    needs.root("run as another user")
    ran = public.run(public.program, "fork", user=65534, group=65534, extra_groups=[], cwd="/")
    assert (ran.status, ran.err) == (0, "")
    assert 160 * MIB <= ran.ledger["peak_rss_bytes"] <= 160 * MIB + SMALL
    if public.backend != "poll":
        assert ran.ledger["processes"] == 2


def test_a_meter_that_cannot_start_a_process_says_so(public: Meter) -> None:
    needs.root("run as a user of its own")

    def one_process() -> None:
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))

    # A user without other processes, because the limit counts all processes of a user.
    ran = public.run("true", user=54321, group=54321, extra_groups=[], cwd="/", preexec_fn=one_process)
    assert ran.status == 1
    assert ran.err.startswith("heapwright-meter: ")
    assert ran.err.endswith("Resource temporarily unavailable\n") or "does not work here" in ran.err
    assert ran.err.count("\n") == 1


# Where nothing is permitted: 1 is EPERM, 38 is ENOSYS


@pytest.mark.parametrize("refusal", ["1", "38"])
def test_without_permissions_memory_is_polled(
    refusal: str, meter: Path, program: Callable[..., Path], tmp_path: Path
) -> None:
    report = tmp_path / "report"
    words: list[str | Path] = [
        program("confine"),
        refusal,
        meter,
        "--output",
        report,
        "--",
        program("behaviours"),
        "fork",
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    ledger = json.loads(report.read_text())
    assert (ledger["meter"], ledger["exit_code"], ledger["processes"]) == ("poll", 0, 2)
    assert 160 * MIB <= ledger["peak_rss_bytes"] <= 160 * MIB + SMALL
    (warning,) = ledger["warnings"]
    reason = os.strerror(int(refusal))
    assert warning == (
        "memory is only polled, so short peaks are missed and returned memory is not known: "
        f"a seccomp listener cannot be installed: {reason}; ptrace is not permitted: {reason}"
    )


@pytest.mark.parametrize("refusal", ["1", "38"])
@pytest.mark.parametrize(
    "options", [["--backend", "notify"], ["--backend", "ptrace"], ["--massif-compat"]], ids=" ".join
)
def test_a_back_end_that_is_not_permitted_is_an_error(
    refusal: str, options: list[str], meter: Path, program: Callable[..., Path]
) -> None:
    words: list[str | Path] = [program("confine"), refusal, meter, *options, "--", "true"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    asked = options[-1] if options[-1] in EXACT else "ptrace"
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"heapwright-meter: the {asked} back end does not work here: ")
    assert os.strerror(int(refusal)) in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_best_that_is_permitted_is_taken(meter: Path, works: dict[str, dict[str, object]], tmp_path: Path) -> None:
    report = tmp_path / "report"
    subprocess.run([meter, "--output", report, "--", "true"], check=True, timeout=60)
    ledger = json.loads(report.read_text())
    assert ledger["meter"] == next(backend for backend in BACKENDS if works[backend]["works"])
    assert (ledger["warnings"] == []) == (ledger["meter"] != "poll")


# Programs that the meter cannot run


def one_line(words: Sequence[str | Path], status: int, message: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=20)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(f"heapwright-meter: {message}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--backend", "best", "--", "true"], "bad option: --backend best"),
        (["--series", "--", "true"], "bad option: --series --"),
        (["--outptu", "x", "--", "true"], "bad option: --outptu"),
        (["-n", "3", "--", "true"], "bad option: -n"),
        (["--massif-compat", "--backend", "poll", "--", "true"], "--massif-compat needs the ptrace back end"),
        (["--"], "there is no command to run"),
        ([], "there is no command to run"),
    ],
)
def test_bad_usage_is_one_line(words: list[str], message: str, meter: Path) -> None:
    one_line([meter, *words], 2, message)


@pytest.mark.parametrize(
    ("command", "status", "message"),
    [
        ("no-such-program", 127, "command not found: no-such-program"),
        ("./no-such", 127, "command not found: ./no-such"),
        ("", 127, "command not found: "),
        ("/etc", 126, "cannot execute /etc: Permission denied"),
        ("/etc/passwd", 126, "cannot execute /etc/passwd: Permission denied"),
    ],
)
def test_a_command_that_cannot_be_run_is_one_line(command: str, status: int, message: str, any_meter: Meter) -> None:
    one_line(any_meter.words([command]), status, message)
    assert not any_meter.report.exists()


def test_a_report_that_cannot_be_written_is_one_line(any_meter: Meter) -> None:
    any_meter.report = Path("/no/such/folder/report")
    one_line(any_meter.words(["true"]), 1, "cannot write /no/such/folder/report: No such file or directory")


def test_a_report_does_not_replace_a_pipe(any_meter: Meter, tmp_path: Path) -> None:
    """Nor a device: root would lose /dev/null."""
    any_meter.report = tmp_path / "pipe"
    os.mkfifo(any_meter.report)
    one_line(any_meter.words(["true"]), 1, f"cannot write {any_meter.report}: File exists")
    assert any_meter.report.is_fifo()


def test_a_command_without_permission_is_not_reported_as_missing(meter: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    words: list[str | Path] = [meter, "--", "plain"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=20)
    assert (done.returncode, done.stderr) == (126, "heapwright-meter: cannot execute plain: Permission denied\n")


def test_a_script_without_its_interpreter(meter: Path, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    done = subprocess.run([meter, "--", script], capture_output=True, text=True, check=False, timeout=20)
    missing = (127, f"heapwright-meter: its interpreter is missing: {script}\n")
    assert (done.returncode, done.stderr) == missing
    environment = {"PATH": str(tmp_path)}
    words: list[str | Path] = [meter, "--", "script"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=20)
    assert (done.returncode, done.stderr) == missing


def test_a_script_without_its_first_line(any_meter: Meter, tmp_path: Path) -> None:
    """Shells and execvp run such a file with /bin/sh."""
    script = tmp_path / "script"
    script.write_text('echo "$1"\n')
    script.chmod(0o755)
    ran = any_meter.run(script, "a b")
    assert (ran.status, ran.out, ran.ledger["exit_code"]) == (0, "a b\n", 0)
