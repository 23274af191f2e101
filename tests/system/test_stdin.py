"""Tests standard input and success statuses of a bare command: every run gets the same input, and a line says so."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import needs
from tests.processes import wait_for

from .conftest import Done, Heapwright, environment

LINES = "".join(f"{number}\n" for number in range(2000))
GLIBC = ["--allocators", "glibc", "--params", "top_pad", "--proxy", "none"]
SHORT = ["tune", *GLIBC, "--budget", "1", "--pairs", "6:6", "--no-minify"]
GAIN = ["tune", *GLIBC, "--method", "grid", "--pairs", "6:6", "--minimize", "mapping_calls", "--study", "s.study"]
# Succeeds only with input, and its output depends on all of the input.
NEEDS_INPUT = 'read first && echo "$first $(wc -c)"'


def names(heapwright: Heapwright, pattern: str) -> list[str]:
    return sorted(path.name for path in heapwright.folder.glob(pattern))


def pasted(heapwright: Heapwright, line: str, folder: Path) -> Done:
    """Runs a line as a user who pastes it into a shell, with empty standard input.

    Args:
        heapwright: the installed command, which the line finds in PATH.
        line: the shell line.
        folder: the working directory.
    """
    env = {**environment(), "PATH": f"{heapwright.path.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        line, shell=True, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240
    )
    return Done(done.returncode, done.stdout, done.stderr)


# measure, compare, record


def test_every_run_is_given_the_pipe(heapwright: Heapwright) -> None:
    done = heapwright.piped(LINES, "measure", "-n", "3", "--json", "m.json", "--", "wc", "-l")
    assert (done.status, done.out.splitlines()[0]) == (0, "2000")
    assert done.err == "heapwright: standard input (8.7 KiB) is given to every run\n"
    runs = json.loads((heapwright.folder / "m.json").read_text())["runs"]
    assert len({run["output_sha256"] for run in runs}) == 1
    assert names(heapwright, "*") == ["m.json"], "the copy is gone"


def test_stdin_is_the_file_the_pipe_or_nothing_as_the_option_says(heapwright: Heapwright) -> None:
    (heapwright.folder / "in.txt").write_text("a\nb\n")
    count = ["--", "wc", "-l"]
    assert heapwright("measure", "-q", "--stdin", "in.txt", *count).out == "2\n"
    assert heapwright.piped("x\n", "measure", "-q", "--stdin", "in.txt", *count).out == "2\n"
    assert heapwright.piped("x\n", "measure", "-q", "--stdin", "-", *count).out == "1\n"
    assert heapwright.piped("x\n", "measure", "-q", "--stdin", "none", *count).out == "0\n"
    assert heapwright.piped("", "measure", "-q", *count) == (0, "0\n", "")
    with (heapwright.folder / "in.txt").open() as file:
        words = [str(heapwright.path), "measure", *count]
        done = subprocess.run(words, stdin=file, cwd=heapwright.folder, env=environment(), capture_output=True)
        assert done.stdout.startswith(b"2\n")
        assert f"standard input (4 B, {heapwright.folder}/in.txt) is given to every run" in done.stderr.decode()
        assert file.readline() == "a\n", "a loop in a shell goes on reading it"


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(heapwright: Heapwright) -> None:
    """A CI service, cron or a parent process may hold the pipe open forever."""
    source, sink = os.pipe()
    try:
        words = [str(heapwright.path), "measure", "-q", "--", "wc", "-l"]
        done = subprocess.run(words, stdin=source, capture_output=True, text=True, env=environment(), timeout=120)
    finally:
        os.close(source)
        os.close(sink)
    assert (done.returncode, done.stdout) == (0, "0\n")
    assert done.stderr.count("\n") == 1
    assert "warning: standard input is an open pipe without data for 3 s" in done.stderr


def test_compare_gives_it_to_every_allocator(heapwright: Heapwright) -> None:
    words = ["compare", "--allocators", "glibc,exgen", "-n", "2", "--markdown", "t.md", "--json", "c.json"]
    done = heapwright.piped(LINES, *words, "--", "sh", "-c", NEEDS_INPUT)
    assert done.status == 0, done.err
    found = json.loads((heapwright.folder / "c.json").read_text())["allocators"]
    digests = {run["output_sha256"] for row in found.values() for run in row["runs"]}
    assert len(digests) == 1
    assert (
        "heapwright compare -n 2 --allocators glibc,exgen --stdin - -- sh" in (heapwright.folder / "t.md").read_text()
    )


# tune


def test_a_study_keeps_its_input_and_goes_on_with_it(heapwright: Heapwright) -> None:
    done = heapwright.piped(LINES, *SHORT, "--", "sh", "-c", NEEDS_INPUT)
    assert done.status == 0, done.err
    (study,), (copy,) = names(heapwright, "*.study"), names(heapwright, "*.stdin")
    assert f"heapwright: standard input (8.7 KiB) is given to every run, kept as {copy}\n" in done.err
    assert (heapwright.folder / copy).read_text() == LINES

    again = heapwright.piped(LINES, *SHORT, "--", "sh", "-c", NEEDS_INPUT)
    assert again.status == 0, again.err
    assert (names(heapwright, "*.study"), names(heapwright, "*.stdin")) == ([study], [copy])

    other = heapwright.piped(f"{LINES}more\n", *SHORT, "--", "sh", "-c", NEEDS_INPUT)
    assert other.status == 0, other.err
    assert len(names(heapwright, "*.study")) == len(names(heapwright, "*.stdin")) == 2, "another input, another study"

    for mixed in (
        heapwright(*SHORT, "--study", study, "--", "sh", "-c", NEEDS_INPUT),
        heapwright.piped("y\n", *SHORT, "--study", study, "--", "sh", "-c", NEEDS_INPUT),
    ):
        assert mixed.status == 1
        assert f"{study} was made with another standard input" in mixed.err
        assert f"(give --stdin {heapwright.folder / copy}, or name another file" in mixed.err
    assert len(names(heapwright, "*.stdin")) == 2, "refused input must leave no file"
    assert heapwright(*SHORT, "--study", study, "--stdin", copy, "--", "sh", "-c", NEEDS_INPUT).status == 0


@pytest.mark.parametrize("words", [["--params", "nope"], []])
def test_a_command_that_fails_at_once_leaves_nothing(words: list[str], heapwright: Heapwright) -> None:
    done = heapwright.piped("abc\n", *SHORT, *words, "--", "grep", "zzz")
    assert done.status != 0
    assert names(heapwright, "*") == []


def test_a_study_that_fails_later_keeps_its_input(heapwright: Heapwright) -> None:
    """The study holds runs, so it can be resumed and needs its input."""
    done = heapwright.piped("abc\n", *SHORT, "--", "sh", "-c", "cat; echo x >> runs; [ $(wc -l < runs) -lt 4 ]")
    assert done.status == 1, done.err
    assert (len(names(heapwright, "*.study")), len(names(heapwright, "*.stdin"))) == (1, 1)


def test_an_interrupted_study_keeps_its_input(heapwright: Heapwright) -> None:
    """A killed study resumes with the same command and the same pipe."""
    command = ["--study", "s.study", "--", "sh", "-c", NEEDS_INPUT]
    with subprocess.Popen(
        [str(heapwright.path), *SHORT, *command],
        cwd=heapwright.folder,
        env=environment(),
        stdin=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(LINES)
        process.stdin.close()
        wait_for(lambda: bool(names(heapwright, "s.study")))
        process.kill()
    (copy,) = names(heapwright, "*.stdin")
    done = heapwright.piped(LINES, *SHORT, *command)
    assert done.status == 0, done.err
    assert names(heapwright, "*.stdin") == [copy]


@pytest.fixture(scope="module")
def gained(tmp_path_factory: pytest.TempPathFactory, program: Callable[..., Path]) -> Heapwright:
    """A study of a command with piped input that is certain to find a gain."""
    heapwright = Heapwright(tmp_path_factory.mktemp("gained"), forked=True)
    script = f'{NEEDS_INPUT} && exec "$0"'
    done = heapwright.piped(LINES, *GAIN, "--exit-code", "--", "sh", "-c", script, str(program("mapping_calls")))
    assert done.status == 0, done.err
    return heapwright


@pytest.mark.long
def test_the_lines_of_a_report_work(gained: Heapwright, tmp_path: Path) -> None:
    """The lines name the input, so they work without a pipe and from any directory."""
    page = (gained.folder / "s.html").read_text()
    found = re.findall(r"<(?:pre|code)[^>]*>([^<]*heapwright (?:measure|tune)[^<]*)</(?:pre|code)>", page)
    lines = sorted({html.unescape(line) for line in found})
    (copy,) = names(gained, "*.stdin")
    assert all(f"--stdin {gained.folder / copy} -- sh" in line for line in lines)
    (tune,) = [line for line in lines if " tune " in line]
    measure = [line for line in lines if line != tune]
    for line in [tune, *measure[: needs.repeats(len(measure), 2)]]:
        done = pasted(gained, line, gained.folder if " tune " in line else tmp_path)
        assert done.status == 0, done.err
        if " tune " not in line:
            assert done.out.startswith(f"0 {len(LINES) - 2}\n")


@pytest.mark.long
def test_verify_runs_with_the_studys_input(gained: Heapwright, program: Callable[..., Path]) -> None:
    done = gained("verify", "s.study")
    assert (done.status, done.out[:15]) == (0, "The gain holds:"), done.err
    command = ["--", "sh", "-c", f'{NEEDS_INPUT} >/dev/null && exec "$0"', str(program("mapping_calls"))]
    assert gained("verify", "s.study", *command).status == 0, "for another command, too"
    assert gained("verify", "s.study", "--stdin", "none", *command).status == 1
    done = gained("verify", "s.study", "--stdin", "none")
    assert done.status == 1
    assert "exit status 1" in done.err


@pytest.mark.long
def test_verify_says_that_the_input_is_gone(gained: Heapwright) -> None:
    (copy,) = names(gained, "*.stdin")
    path = gained.folder / copy
    path.rename(gained.folder / "elsewhere")
    try:
        done = gained("verify", "s.study")
        assert (done.status, done.err) == (
            2,
            f"heapwright: the standard input file {path} does not exist (give another with --stdin FILE)\n",
        )
        assert gained("verify", "s.study", "--stdin", "elsewhere").status == 0
    finally:
        (gained.folder / "elsewhere").rename(path)


@pytest.mark.long
def test_a_plan_names_its_input(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    """`collect` runs the verb again without the pipe, so the plan must name the input."""
    words = ["landscape", "--param", "mmap_threshold", "--step", "8", "--metric", "peak_heap"]
    command = ["--", "sh", "-c", f'{NEEDS_INPUT} && exec "$0"', str(program("mapping_calls"))]
    left = int(heapwright.piped(LINES, "plan", "jobs", *words, *command).out)
    while left:
        for number in range(left):
            assert heapwright.piped("not this", "run-one", "jobs", str(number)).status == 0
        done = heapwright.piped("nor this", "collect", "jobs")
        assert done.status == 0, done.err
        left = int(done.out)
    assert len(names(heapwright, "*.landscape")) == 1
    assert len(names(heapwright, "*.stdin")) == 1


# success


@pytest.mark.long
def test_success_declares_an_exit_status(heapwright: Heapwright) -> None:
    """`grep` without a match exits with status 1, which the user declares a success."""
    (heapwright.folder / "in.txt").write_text("abc\n")
    grep = ["--", "grep", "zzz"]
    done = heapwright(*SHORT, "-q", *grep)
    assert (done.status, done.err.count("\n")) == (1, 1)
    for part in ("exit status 1", "--success 0,1", "success = [0, 1] in a workload file", "--stdin FILE"):
        assert part in done.err
    heapwright.report = True
    done = heapwright(*SHORT, "--success", "0,1", "--stdin", "in.txt", *grep)
    assert done.status == 0, done.err
    page = (heapwright.folder / names(heapwright, "*.html")[0]).read_text()
    line = re.findall(r"heapwright measure [^<]*", page)[0]
    assert "--success 0,1" in line
    assert pasted(heapwright, html.unescape(line), heapwright.folder).status == 0

    assert heapwright("measure", "-q", "--stdin", "in.txt", *grep).status == 1
    assert heapwright("measure", "-q", "--stdin", "in.txt", "--success", "0,1", *grep).status == 0
    compare = ["compare", "-q", "--allocators", "glibc,exgen", "-n", "2", "--stdin", "in.txt"]
    assert heapwright(*compare, *grep).status == 1
    assert heapwright(*compare, "--success", "0,1", *grep).status == 0


# apply without a gain


def test_apply_says_that_nothing_is_proven(heapwright: Heapwright) -> None:
    # One evaluation of /bin/true with a margin of 40 per cent: nothing can be proven.
    done = heapwright(*SHORT, "--margin", "40", "--minimize", "peak_heap", "--study", "n.study", "--", "/bin/true")
    assert done.status == 0, done.err
    said = "heapwright: no gain is proven for n.study: the output keeps the default\n"
    for fmt in ("env", "shell", "systemd", "docker", "slurm", "json"):
        done = heapwright("apply", "n.study", "--format", fmt)
        assert (done.status, done.err) == (3, said), fmt
    assert json.loads(heapwright("apply", "n.study", "--format", "json").out)["settings"] == {}
    done = pasted(heapwright, 'eval "$(heapwright apply n.study)" && env', heapwright.folder)
    assert (done.status, done.err) == (0, said)
    assert "GLIBC_TUNABLES" not in done.out
    done = pasted(heapwright, 'settings=$(heapwright apply n.study 2>/dev/null) && eval "$settings"', heapwright.folder)
    assert done.status == 3, "as the help shows it to scripts"
