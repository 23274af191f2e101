"""Tests that every way of ending a recording keeps the recorded events, and that the program never notices."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from heapwright.trace.pack import pack
from heapwright.trace.raw_files import SUFFIX
from heapwright.trace.record import recording_environment
from tests import needs
from tests.conftest import PROGRAMS
from tests.processes import alive, wait_for
from tests.trace.recording import HEAPWRIGHT, count_events, dump, heapwright_record, record_told, recorded

PLAIN = ("-fno-builtin",)
KILLS = needs.repeats(50, 15)


@pytest.fixture
def cases(program: Callable[..., Path]) -> Path:
    return program("record_cases", *PLAIN)


@pytest.mark.longer
def test_killed_at_any_moment_leaves_a_readable_trace(cases: Path, tmp_path: Path) -> None:
    """The program counts its finished calls in a file; all of them are in the trace."""
    chance = random.Random(7)
    counts = []
    for number in range(KILLS):
        folder = tmp_path / str(number)
        folder.mkdir()
        counter = folder / "counter"
        env = recording_environment(folder, None, True, os.environ)
        process = subprocess.Popen([cases, "endless", counter], env=env)
        wait_for(lambda counter=counter: counter.exists() and counter.stat().st_size > 0)  # type: ignore[misc]
        time.sleep(chance.uniform(0, 0.005))
        process.kill()
        process.wait()
        done = struct.unpack_from("<Q", counter.read_bytes())[0]
        (raw,) = folder.glob("*.raw")
        packed, _ = pack(raw, folder / "t.hwt")
        assert packed.lost_events == packed.lost_bytes == 0
        assert done <= packed.allocations <= done + 1
        assert packed.cut_short
        counts.append(packed.allocations)
        shutil.rmtree(folder)
    assert max(counts) > 1000  # they did not all die at once


def test_the_trace_of_a_killed_program_says_that_it_is_cut_short(cases: Path, tmp_path: Path) -> None:
    told = record_told(tmp_path, "sh", "-c", f'exec "{cases}" endless {tmp_path}/counter & sleep 0.2; kill -9 $!')[0]
    assert told["cut_short"]
    assert "killed" in told["warning"]


def test_a_full_disk_ends_the_recording_and_not_the_program(cases: Path, tmp_path: Path) -> None:
    limit = 512 << 10
    done = subprocess.run(
        [HEAPWRIGHT, "record", "-o", "t.hwt", "--", cases, "many"],
        cwd=tmp_path,
        capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 0
    assert done.stdout == b"done\n"
    said = done.stderr.decode()
    assert said.count("recording stops here, and the program goes on") == 1
    assert "File too large" in said
    assert 50_000 < count_events(tmp_path / "t.hwt") < 250_000


def test_recover_finishes_after_heapwright_was_killed(cases: Path, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    process = subprocess.Popen(
        [HEAPWRIGHT, "record", "-o", "t.hwt", "--", cases, "endless", counter], cwd=tmp_path, start_new_session=True
    )
    wait_for(lambda: counter.exists() and counter.stat().st_size > 0 and any(counter.read_bytes()[:8]))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (folder,) = tmp_path.glob(f".t.hwt.*{SUFFIX}")
    assert not (tmp_path / "t.hwt").exists()
    done = heapwright_record("--recover", folder, "-o", "t.hwt", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not folder.exists()
    assert count_events(tmp_path / "t.hwt") > 0


def test_recover_removes_raw_files_and_no_others(cases: Path, tmp_path: Path) -> None:
    """The folder of a service's recording is one of the user's own, perhaps on another file system."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        folder = Path(other)
        (folder / "notes").mkdir()
        (folder / "notes" / "today.hwt").write_text("mine")
        subprocess.run([cases, "many"], env=recording_environment(folder, None, True, os.environ), check=True)
        for target in (tmp_path, folder):
            kept = [(raw, raw.read_bytes()) for raw in folder.glob("*.raw")]
            assert kept
            done = heapwright_record("--recover", folder, "-o", target / "t.hwt", folder=folder)
            assert done.returncode == 0, done.stderr
            assert count_events(target / "t.hwt") > 1_000_000
            assert not list(folder.glob("*.raw"))
            assert (folder / "notes" / "today.hwt").read_text() == "mine"
            assert not list(target.glob(".*"))
            for raw, content in kept:
                raw.write_bytes(content)


def test_recover_leaves_out_files_that_were_never_begun(cases: Path, tmp_path: Path) -> None:
    """A process was killed between the creation of its file and its header."""
    folder = tmp_path / f".t.hwt.x{SUFFIX}"
    folder.mkdir()
    subprocess.run([cases, "many"], env=recording_environment(folder, None, True, os.environ), check=True)
    (folder / "77-0.raw").touch()
    (folder / "78-0.raw").write_bytes(bytes(64 << 10))
    done = heapwright_record("--recover", folder, "-o", "t.hwt", "-q", folder=tmp_path)
    assert (done.returncode, done.stderr.decode()) == (
        0,
        "heapwright: warning: 2 processes were killed before anything was recorded: there is no trace\n",
    )
    assert count_events(tmp_path / "t.hwt") > 0
    assert not folder.exists()
    folder.mkdir()
    (folder / "77-0.raw").touch()
    done = heapwright_record("--recover", folder, "-o", "u.hwt", folder=tmp_path)
    assert done.returncode == 1
    assert "the recordings could not be packed" in done.stderr.decode()


def test_a_process_stops_recording_when_its_file_is_removed(cases: Path, tmp_path: Path) -> None:
    """As after the end of the wait for a daemon. The file would fill the disk, and nobody would see it."""
    counter, folder = tmp_path / "counter", tmp_path / f".t.hwt.x{SUFFIX}"
    folder.mkdir()
    env = recording_environment(folder, None, True, os.environ)

    def calls() -> int:
        return int(struct.unpack_from("<Q", counter.read_bytes())[0])

    with subprocess.Popen([cases, "endless", counter], env=env, stderr=subprocess.PIPE) as process:
        try:
            wait_for(lambda: counter.exists() and counter.stat().st_size > 0 and calls() > 0)
            shutil.rmtree(folder)
            removed = calls()
            files = [path for path in Path(f"/proc/{process.pid}/fd").iterdir() if ".raw" in str(path.readlink())]
            wait_for(lambda: calls() > removed + 100_000)
            sizes = [path.stat().st_blocks for path in files]
            wait_for(lambda: calls() > removed + 1_000_000)
            assert len(files) == 1
            assert [path.stat().st_blocks for path in files] == sizes
        finally:
            process.kill()
        assert process.communicate()[1] == b""
    started = subprocess.run([cases, "many"], env=env, capture_output=True, check=True)
    assert started.stderr == b"", "a process that it starts is no longer recorded"


def test_recover_keeps_the_files_of_processes_that_run(cases: Path, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    folder = tmp_path / "raw"
    folder.mkdir()
    env = recording_environment(folder, None, True, os.environ)
    with subprocess.Popen([cases, "endless", counter], env=env) as process:
        try:
            wait_for(lambda: counter.exists() and counter.stat().st_size > 0 and any(counter.read_bytes()[:8]))
            done = heapwright_record("--recover", folder, "-o", "t.hwt", folder=tmp_path)
        finally:
            process.kill()
    assert done.returncode == 0, done.stderr
    said = done.stderr.decode()
    assert f"process {process.pid} still runs; its trace ends here" in said
    assert "are kept, because running processes record into them" in said
    assert len(list(folder.glob("*.raw"))) == 1
    assert count_events(tmp_path / "t.hwt") > 0


def test_status_input_and_output_are_the_commands_own(tmp_path: Path) -> None:
    done = heapwright_record("-q", "-o", "t.hwt", "--", "sh", "-c", "cat; exit 7", folder=tmp_path, stdin=b"hello")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"hello", b"")
    done = heapwright_record("-q", "-o", "u.hwt", "--", "sh", "-c", "kill -TERM $$", folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGTERM, b"", b"")
    assert not list(tmp_path.glob(".*"))


def test_term_reaches_the_command(cases: Path, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    process = subprocess.Popen(
        [HEAPWRIGHT, "record", "-q", "-o", "t.hwt", "--", cases, "endless", counter], cwd=tmp_path
    )
    wait_for(lambda: counter.exists() and counter.stat().st_size > 0 and any(counter.read_bytes()[:8]))
    process.terminate()
    assert process.wait() == 128 + signal.SIGTERM
    assert count_events(tmp_path / "t.hwt") > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("workload", [False, True])
def test_a_signal_to_record_ends_the_command_and_packs_the_trace(
    workload: bool, number: signal.Signals, tmp_path: Path
) -> None:
    """It has no terminal, from which Ctrl-C would reach the command too."""
    ready = tmp_path / "ready"
    command = ["perl", "-e", f"open my $f, '>', '{ready}'; close $f; sleep 600"]
    (tmp_path / "w.toml").write_text(f"command = {json.dumps(command)}\n")
    what = ["--workload", "w.toml"] if workload else ["--", *command]
    process = subprocess.Popen([HEAPWRIGHT, "record", "-o", "t.hwt", *what], cwd=tmp_path, start_new_session=True)
    wait_for(ready.exists)
    process.send_signal(number)
    try:
        assert process.wait(60) == 128 + number
    finally:
        process.kill()
    assert count_events(tmp_path / "t.hwt") > 0
    assert not list(tmp_path.glob(f".*{SUFFIX}"))


def test_a_phase_can_be_marked_from_outside(tmp_path: Path) -> None:
    env = {"HEAPWRIGHT_RECORD_SIGNAL": str(int(signal.SIGUSR2))}
    (trace, *_) = recorded(tmp_path, "perl", "-e", "kill USR2 => $$ for 1..3", env=env)
    assert trace.count("phase") == 3


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("-o", "there.hwt", "--", "true"), "there.hwt exists already (--force overwrites it)"),
        (("-o", "no/t.hwt", "--", "true"), "no such directory: no"),
        (("-o", ".", "--", "true"), ". is a directory (name a file: -o prog.hwt)"),
        (("-o", "t.hwt"), "there is no command to run"),
        (("-o", "t.hwt", "--", "no-such-program"), "command not found: no-such-program"),
        (("-o", "t.hwt", "--recover", "nowhere"), "there are no recordings in nowhere"),
        (("--recover", "nowhere"), "--recover needs the name of a trace to write"),
        (("-o", "t.hwt", "--recover", "nowhere", "--", "true"), "a command and --recover cannot both be given"),
        (("-o", "t.hwt", "--allocator", "glibk", "--", "true"), "unknown allocator 'glibk'"),
    ],
)
def test_bad_usage_is_one_line(words: tuple[str, ...], says: str, tmp_path: Path) -> None:
    (tmp_path / "there.hwt").write_text("precious")
    done = heapwright_record(*words, folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.decode().count("\n") == 1
    assert says in done.stderr.decode()
    assert [path.name for path in tmp_path.iterdir()] == ["there.hwt"]
    assert (tmp_path / "there.hwt").read_text() == "precious"


def nothing_left(folder: Path, *command: str | Path, options: tuple[str, ...] = ()) -> tuple[int, str]:
    """Records what cannot be recorded; the exit status and the one line."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = heapwright_record("-o", "t.hwt", *options, "--", *command, folder=folder)
    said = done.stderr.decode()
    assert said.count("\n") == 1, said
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    return done.returncode, said


def test_a_static_program_cannot_be_recorded(program: Callable[..., Path], tmp_path: Path) -> None:
    status, said = nothing_left(tmp_path, program("large_blocks", "-static"))
    assert (status, said) == (
        1,
        "heapwright: nothing was recorded of large_blocks-static: it is linked statically (link it dynamically)\n",
    )


def test_a_static_program_that_starts_others_can(program: Callable[..., Path], cases: Path, tmp_path: Path) -> None:
    """As a busybox shell, or a program in Go."""
    (trace,) = recorded(tmp_path, program("starts_another", "-static"), cases, "calls")
    assert "malloc 40001" in trace.calls()


def test_a_program_with_its_own_malloc_is_not_run(tmp_path: Path) -> None:
    sources = [PROGRAMS / "mapping_calls.c", PROGRAMS / "bump_malloc.c"]
    subprocess.run([needs.command("gcc"), "-O1", "-o", tmp_path / "own", *sources], check=True)
    status, said = nothing_left(tmp_path, "./own")
    assert (status, said) == (
        1,
        "heapwright: own cannot be recorded: it has a malloc of its own"
        " (link it with the C library's malloc to record it)\n",
    )


OWN_MALLOC = """
#include <stddef.h>
#include <string.h>
#include <unistd.h>
static char room[1 << 20]; static size_t used; static int ready;
void* malloc(size_t n) { used += (n + 15) & ~(size_t)15; return room + used - ((n + 15) & ~(size_t)15); }
void* calloc(size_t a, size_t b) { return malloc(a * b); }
void* realloc(void* p, size_t n) { void* q = malloc(n); if (p) memcpy(q, p, n); return q; }
void free(void* p) { if (p && !ready) _exit(99); }
int main(void) { ready = 1; free(malloc(9)); return 0; }
"""


def test_a_program_with_its_own_malloc_in_a_script_is_named_and_works(tmp_path: Path) -> None:
    """Its malloc may not be ready before main, as that of GNU Common Lisp, so the recorder makes it no calls."""
    (tmp_path / "own.c").write_text(OWN_MALLOC)
    subprocess.run([needs.command("gcc"), "-O1", "-fno-builtin", "-o", "own", "own.c"], cwd=tmp_path, check=True)
    done = heapwright_record("-o", "t.hwt", "--", "sh", "-c", "./own; sort /dev/null; ./own", folder=tmp_path)
    said = done.stderr.decode()
    assert done.returncode == 0, said
    assert said.count("warning: own: nothing is recorded: it has a malloc of its own") == 1, said


def test_a_program_that_allocates_nothing(program: Callable[..., Path], tmp_path: Path) -> None:
    """It fails with the program's own status, or 1 where that is 0; a trace that --force was to replace stays."""
    (tmp_path / "t.hwt").write_text("precious")
    (tmp_path / "quiet.c").write_text("int main(int n, char** a) { (void)a; return n - 1; }\n")
    subprocess.run([needs.command("gcc"), "-o", tmp_path / "quiet", tmp_path / "quiet.c"], check=True)
    line = (
        "heapwright: nothing was recorded of quiet: no call of malloc was seen"
        " (it may have an allocator of its own, or need none)\n"
    )
    assert nothing_left(tmp_path, "./quiet", options=("--force",)) == (1, line)
    assert nothing_left(tmp_path, "./quiet", "a", "b", options=("--force",)) == (2, line)
    bare = program("exit_only", "-nostdlib", "-static")
    assert nothing_left(tmp_path, bare, options=("--force",))[0] == 3


def test_a_musl_program_is_not_run(tmp_path: Path) -> None:
    """Its loader would end it, because it cannot load the recorder."""
    subprocess.run([needs.command("musl-gcc"), "-o", tmp_path / "m", PROGRAMS / "mapping_calls.c"], check=True)
    status, said = nothing_left(tmp_path, "./m")
    assert (status, said) == (
        1,
        "heapwright: m cannot be recorded: its C library is musl"
        " (record a build of it for glibc; 'record --export' has a recorder for musl)\n",
    )


def test_a_malloc_that_passes_its_calls_on_is_recorded(program: Callable[..., Path], tmp_path: Path) -> None:
    """A wrapper in the program finds the recorder's malloc by dlsym(RTLD_NEXT)."""
    words = ("-o", "t.hwt", "--", program("malloc_wrapper", *PLAIN))
    done = heapwright_record(*words, folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, b"1\n")
    assert sum(e.kind == "malloc" and e.values[1] > 40000 for e in dump(tmp_path / "t.hwt")) == 2000
    warning = "malloc_wrapper-fno-builtin defines malloc; the recording holds the calls that this malloc passes on"
    assert f"heapwright: warning: {warning}\n" in done.stderr.decode()


def test_a_malloc_that_looks_like_a_wrapper_and_is_none(tmp_path: Path) -> None:
    (tmp_path / "start.c").write_text(
        '#include <dlfcn.h>\n__attribute__((constructor)) static void f(void) {\n dlsym(RTLD_DEFAULT, "malloc"); }\n'
    )
    sources = [PROGRAMS / "mapping_calls.c", PROGRAMS / "bump_malloc.c", tmp_path / "start.c"]
    subprocess.run([needs.command("gcc"), "-O1", "-D_GNU_SOURCE", "-o", tmp_path / "own", *sources], check=True)
    status, said = nothing_left(tmp_path, "./own")
    assert (status, said) == (
        1,
        "heapwright: nothing was recorded of own: it has a malloc of its own"
        " (link it with the C library's malloc to record it)\n",
    )


def test_a_shell_with_its_own_malloc_that_starts_nothing(tmp_path: Path) -> None:
    """What its start-up leaves in the recording is no recording of it."""
    (tmp_path / "start.c").write_text(
        "#include <dlfcn.h>\n#include <string.h>\n"  # another malloc than its own, once, as libraries may ask for
        "__attribute__((constructor)) static void f(void) {\n"
        ' char name[8]; strcpy(name, "mall"); strcat(name, "oc");\n'
        " void* (*m)(size_t); *(void**)&m = dlsym(RTLD_NEXT, name); m(40001); }\n"
    )
    sources = [PROGRAMS / "mapping_calls.c", PROGRAMS / "bump_malloc.c", tmp_path / "start.c"]
    subprocess.run([needs.command("gcc"), "-O1", "-D_GNU_SOURCE", "-o", tmp_path / "bash", *sources], check=True)
    status, said = nothing_left(tmp_path, "./bash")
    assert (status, said) == (
        1,
        "heapwright: nothing was recorded of bash: it has a malloc of its own"
        " (link it with the C library's malloc to record it)\n",
    )


def test_a_window_that_did_not_begin_is_an_error(tmp_path: Path) -> None:
    words = ("-o", "t.hwt", "--for", "1s", "--window-signal", "USR2")
    done = heapwright_record(*words, "--", "perl", "-e", "1", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.decode() == (
        "heapwright: nothing was recorded: the window did not begin before the process ended"
        " (give a shorter --after, or send the signal of --window-signal earlier; if the program handles that signal"
        " itself, choose another one, such as RTMAX)\n"
    )


def test_an_empty_recording_cannot_be_recovered(tmp_path: Path) -> None:
    (tmp_path / "quiet.c").write_text("int main(void) { return 0; }\n")
    subprocess.run([needs.command("gcc"), "-o", tmp_path / "quiet", tmp_path / "quiet.c"], check=True)
    folder = tmp_path / f".t.hwt.x{SUFFIX}"
    folder.mkdir()
    subprocess.run([tmp_path / "quiet"], env=recording_environment(folder, None, True, os.environ), check=True)
    assert list(folder.glob("*.raw")), "the recorder begins a file when the program starts"
    done = heapwright_record("--recover", folder, "-o", "t.hwt", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.decode().startswith("heapwright: nothing was recorded: no call of malloc was seen")
    assert not (tmp_path / "t.hwt").exists()


DAEMON = """
import os, sys, time
if os.fork():
    os._exit(3)
os.setsid()
open("pid", "w").write(str(os.getpid()))
time.sleep(float(sys.argv[1]))
blocks = [bytearray(41000 + i) for i in range(500)]
"""


def test_a_daemon_is_recorded_to_its_end(tmp_path: Path) -> None:
    words = ("-o", "t.hwt", "--json", "told.json", "--", sys.executable, "-c", DAEMON, "0.5")
    done = heapwright_record(*words, folder=tmp_path)
    assert done.returncode == 3, "the exit status is the command's"
    pid = int((tmp_path / "pid").read_text())
    daemon = next(p for p in json.loads((tmp_path / "told.json").read_text())["processes"] if p["pid"] == pid)
    assert not daemon["cut_short"]
    assert sum(e.values[1] > 41000 for e in dump(tmp_path / daemon["trace"]) if e.kind == "malloc") >= 500


def test_the_wait_for_a_daemon_can_be_ended(tmp_path: Path) -> None:
    words = ["record", "-o", "t.hwt", "--json", "told.json", "--", sys.executable, "-c", DAEMON, "600"]
    said = tmp_path / "said"
    with said.open("wb") as stderr:
        process = subprocess.Popen([HEAPWRIGHT, *words], cwd=tmp_path, stderr=stderr)
    wait_for(lambda: "\n" in said.read_text() or process.poll() is not None)
    pid = int((tmp_path / "pid").read_text())
    process.send_signal(signal.SIGINT)
    status = process.wait(60)
    was_alive = alive(pid)
    os.kill(pid, signal.SIGKILL)
    assert was_alive
    assert status == 3
    lines = said.read_text().splitlines()
    waits = f"waiting for processes that it left running: {pid} (Ctrl-C stops waiting)"
    assert lines[0] == f"heapwright: the command has ended; {waits}"
    assert lines[-1] == f"heapwright: warning: process {pid} still runs; its trace ends here"
    daemon = next(p for p in json.loads((tmp_path / "told.json").read_text())["processes"] if p["pid"] == pid)
    assert (daemon["cut_short"], daemon["warning"]) == (True, f"process {pid} still runs; its trace ends here")
