"""Tests the command in its surroundings: signals, encodings, links, scripts without an interpreter line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.processes import alive, wait_for

from .conftest import Heapwright


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_ends_the_target_too(heapwright: Heapwright, number: signal.Signals) -> None:
    """As from `docker stop`, `timeout`, a batch system or a closed terminal. SIGKILL leaves scratch
    folders, which later processes remove.
    """
    temporary = heapwright.folder / "tmp"
    temporary.mkdir()
    running = heapwright.start(
        "measure", "--", "sh", "-c", "echo $$ >pid; sleep 600; true", env={"TMPDIR": str(temporary)}
    )
    pid_file = heapwright.folder / "pid"
    wait_for(lambda: pid_file.exists() and bool(pid_file.read_text()))
    target = int(pid_file.read_text())
    running.send_signal(number)
    running.communicate(timeout=60)
    wait_for(lambda: not alive(target))
    left = [entry.name for entry in temporary.iterdir() if not entry.name.startswith("heapwright-tmp-")]
    if number != signal.SIGKILL:
        assert running.returncode == 128 + number
        left = [entry.name for entry in temporary.iterdir()]
    assert not left


def test_a_reader_that_ends_early_ends_the_target(heapwright: Heapwright) -> None:
    """`heapwright measure -- prog | head -1`"""
    script = "echo $$ >pid; echo a; sleep 0.5; echo b; sleep 0.5; echo c; exec sleep 600"
    running = heapwright.start("measure", "--", "sh", "-c", script)
    assert running.stdout is not None
    assert running.stdout.readline() == "a\n"
    running.stdout.close()
    assert running.wait(timeout=60) == 128 + signal.SIGPIPE
    wait_for(lambda: not alive(int((heapwright.folder / "pid").read_text())))


def test_a_table_for_a_reader_that_ends_early(heapwright: Heapwright) -> None:
    """`heapwright allocators | true`; rich would end with the status of a failure."""
    for verb in ("allocators", "doctor"):
        running = heapwright.start(verb)
        assert running.stdout is not None
        running.stdout.close()
        assert running.wait(timeout=60) == 128 + signal.SIGPIPE


def test_a_directory_that_is_gone(heapwright: Heapwright) -> None:
    line = f"mkdir gone; cd gone; rmdir ../gone; exec {heapwright.path} measure -- /bin/true"
    done = subprocess.run(["sh", "-c", line], cwd=heapwright.folder, capture_output=True, text=True, check=False)
    said = "heapwright: the current directory does not exist any more (change to another one)\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_characters_that_the_encoding_lacks_become_question_marks(heapwright: Heapwright) -> None:
    for encoding in ("ascii", "latin-1"):
        done = subprocess.run(
            [heapwright.path, "plan", "--help"],
            env={**os.environ, "PYTHONIOENCODING": encoding},
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert b"?" in done.stdout


def test_a_link_to_an_open_file_is_written_through(heapwright: Heapwright) -> None:
    """As /dev/stdout is, which root could replace by a file."""
    link, out = heapwright.folder / "stdout.link", heapwright.folder / "out"
    link.symlink_to("/proc/self/fd/1")
    with out.open("w") as file:
        file.write("before\n")
        file.flush()
        words = heapwright.words(("measure", "-q", "--json", "stdout.link", "--", "true"))
        subprocess.run(words, cwd=heapwright.folder, stdout=file, check=True)
    assert link.is_symlink()
    first, _, rest = out.read_text().partition("\n")
    assert (first, json.loads(rest)["command"]) == ("before", ["true"])


def test_a_file_that_cannot_be_written_is_said_before_anything_runs(heapwright: Heapwright) -> None:
    for verb, option in (("measure", "--json"), ("compare", "--csv"), ("tune", "--report")):
        done = heapwright(verb, option, "no/file", "--", "sh", "-c", "touch ran")
        assert (done.status, done.out) == (2, "")
        assert "no/file: there is no directory no (create it first)" in done.err
    assert "is a directory" in heapwright("measure", "--json", ".", "--", "touch", "ran").err
    assert not (heapwright.folder / "ran").exists()


def test_a_device_is_not_replaced_by_a_file(heapwright: Heapwright) -> None:
    """As root, `-o /dev/null` would destroy it."""
    os.mkfifo(heapwright.folder / "pipe")
    assert heapwright("record", "-q", "-o", "t.hwt", "--", "perl", "-e1").status == 0
    record = ("record", "--force", "-o", "pipe", "--", "touch", "ran")
    for words in (("export", "t.hwt", "-o", "pipe"), ("import", "t.wl", "-o", "pipe"), record):
        done = heapwright(*words)
        assert (done.status, done.out) == (2, "")
        assert "pipe is a device or a pipe (name a regular file" in done.err
    assert (heapwright.folder / "pipe").is_fifo()
    assert not (heapwright.folder / "ran").exists()
    assert "a trace is read from a regular file" in heapwright("info", "pipe").err


def test_a_script_without_an_interpreter_line_is_recorded(heapwright: Heapwright) -> None:
    script = heapwright.folder / "script"
    script.write_text("""awk 'BEGIN { for (i = 0; i < 1000; i++) a[i] = i; print "done" }'\n""")
    script.chmod(0o755)
    done = heapwright("record", "-o", "s.hwt", "--", "./script")
    assert done.status == 0, done.err
    assert done.out.startswith("done\n")


def test_a_command_without_its_verb_is_no_success(heapwright: Heapwright) -> None:
    assert heapwright("--", "./prog").status == 2
    assert heapwright().status == 0


def test_the_path_of_a_workload_file_counts(heapwright: Heapwright) -> None:
    folder = heapwright.folder / "bin"
    folder.mkdir()
    (folder / "mine").write_text("#!/bin/sh\nexit 0\n")
    (folder / "mine").chmod(0o755)
    (heapwright.folder / "w.toml").write_text(f'command = ["mine"]\n[env]\nPATH = "{folder}:{os.environ["PATH"]}"\n')
    done = heapwright("measure", "-q", "--workload", "w.toml")
    assert done.status == 0, done.err


@pytest.mark.parametrize(("status", "said"), [(255, "exit status 255"), (139, "killed by SIGSEGV")])
def test_a_status_is_a_signal_only_if_there_is_one(heapwright: Heapwright, status: int, said: str) -> None:
    done = heapwright("compare", "-n", "1", "--allocators", "glibc", "--", "sh", "-c", f"exit {status}")
    assert said in done.err


def test_a_recording_with_any_name_is_compared(heapwright: Heapwright) -> None:
    trace = os.fsdecode(b"caf\xe9.hwt")
    assert heapwright("record", "-o", trace, "--", "awk", "BEGIN { for (i = 0; i < 999; i++) a[i] = i }").status == 0
    done = heapwright("compare", "-n", "1", "--allocators", "glibc", "--trace", trace)
    assert done.status == 0, done.err
    assert "Traceback" not in done.err
    assert Path(heapwright.folder / trace).exists()
