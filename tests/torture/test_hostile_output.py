"""Tests targets that print gigabytes, bytes that are not text, or endless lines.

heapwright needs little memory for them and sends no control characters to the terminal.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from heapwright.cli.main import main

from .hostile import HEAPWRIGHT, NAME, environment, obeyed, on_a_terminal, refused, run

MIB = 1 << 20


def most_memory(words: list[str | Path], folder: Path) -> int:
    """Runs heapwright under a small process; returns the peak resident set of heapwright and its children in bytes."""
    script = (
        "import resource, subprocess, sys;"
        "s = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode;"
        "print(s, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, HEAPWRIGHT, *words],
        cwd=folder, env=environment(), capture_output=True, text=True, check=True, timeout=600,
    )  # fmt: skip
    status, kibibytes = map(int, done.stdout.split())
    assert status == 0, done.stderr
    return kibibytes * 1024


@pytest.mark.long
def test_gigabytes_of_output_take_no_memory(long: bool, tmp_path: Path) -> None:
    gigabytes = 8 if long else 1
    flood = f"head -c {gigabytes}G /dev/zero"
    quiet = most_memory(["measure", "--json", "m.json", "-q", "--", "sh", "-c", "true"], tmp_path)
    loud = most_memory(["measure", "--json", "m.json", "-q", "--", "sh", "-c", flood], tmp_path)
    assert loud < quiet + 32 * MIB
    both = f"{flood} >&2; {flood} | tr '\\0' x"
    loud = most_memory(["measure", "--json", "m.json", "-q", "--", "sh", "-c", both], tmp_path)
    assert loud < quiet + 32 * MIB


@pytest.mark.long
def test_a_compared_output_takes_no_memory(tmp_path: Path) -> None:
    """Compared output is kept in a file and copied in pieces; setup and cleanup may print without limit."""
    (tmp_path / "w.toml").write_text(
        'command = ["head", "-c", "300M", "/dev/zero"]\nsetup = ["sh", "-c", "head -c 300M /dev/zero >&2"]\n'
        '[output]\ncompare = "command"\ncommand = ["cmp", "{reference}", "{output}"]\n'
    )
    code = (
        "import sys; from pathlib import Path; from heapwright.workload.model import load_workload;"
        "from heapwright.workload.execute import Executor; from heapwright.measure.meter import MeterOptions;"
        "w = load_workload(Path('w.toml')); e = Executor(w, MeterOptions(), Path('refs'));"
        "print([e.run(w.inputs[0], {}).digest for _ in range(2)]);"
        "print(*(x.split()[1] for x in open('/proc/self/status') if x.startswith('VmHWM')))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    digests, kibibytes = done.stdout.splitlines()
    assert digests == "['same', 'same']"
    assert int(kibibytes) < 150 * 1024


@pytest.mark.parametrize("how", ["binary", "a line without end", "sequences"])
@pytest.mark.few(1)
def test_the_last_line_of_a_failing_program_is_shown_as_text(how: str, tmp_path: Path) -> None:
    """The last line of a failing target is shown as text, cut to a length."""
    writes = {
        "binary": "head -c 100000 /dev/urandom",
        "a line without end": "head -c 50000000 /dev/zero | tr '\\0' x",
        "sequences": f"printf '%s' '{NAME}'",
    }[how]
    (tmp_path / "t.sh").write_text(f"#!/bin/sh\n{writes} >&2\nexit 3\n")
    (tmp_path / "t.sh").chmod(0o755)
    line = refused(run("tune", "--", "./t.sh", cwd=tmp_path), (1,))
    assert "exit status 3" in line
    assert obeyed(line) == []
    assert obeyed(on_a_terminal("tune", "--", "./t.sh", cwd=tmp_path)) == []


def test_output_of_any_bytes_is_only_hashed(tmp_path: Path) -> None:
    (tmp_path / "t.sh").write_text("#!/bin/sh\nprintf '\\033[2J\\377\\000\\n'\n")
    (tmp_path / "t.sh").chmod(0o755)
    done = run("measure", "--json", "m.json", "-n", "2", "--", "./t.sh", cwd=tmp_path)
    assert done.status == 0, done.err
    runs = json.loads((tmp_path / "m.json").read_text())["runs"]
    assert len({r["output_sha256"] for r in runs}) == 1


VARIABLES = {
    "a number of 5000 digits": {"GLIBC_TUNABLES": "glibc.malloc.mxfast=" + "9" * 5000},
    "a hexadecimal one": {"GLIBC_TUNABLES": "glibc.malloc.mxfast=0x" + "f" * 5000},
    "no settings at all": {"GLIBC_TUNABLES": ":::=:==:::" * 1000},
    "digits that are none": {"GLIBC_TUNABLES": "glibc.malloc.mxfast=\u0663\u00b2k"},
    "bytes": {"GLIBC_TUNABLES": os.fsdecode(b"glibc.malloc.mxfast=\xff")},
    "sequences": {"MALLOC_CONF": NAME, "MALLOC_ARENA_MAX": NAME, "MIMALLOC_X": NAME},
    "many commas": {"MALLOC_CONF": ",:" * 20_000, "EXGEN_OPTIONS": "," * 50_000},
    "options without end": {"EXGEN_OPTIONS": "limit=" + "9" * 50_000, "REAPER_OPTIONS": "x=" + "y" * 50_000},
    "units that overflow": {"MALLOC_MMAP_THRESHOLD_": "9" * 400 + "g", "TCMALLOC_RELEASE_RATE": "1e999"},
    "our own": {"HEAPWRIGHT_CACHE": "\x1b[2J", "HEAPWRIGHT_METER": "/bin/true\x1b[2J"},
}


@pytest.mark.parametrize("case", VARIABLES)
@pytest.mark.few(2)
def test_hostile_variables_cause_no_traceback(case: str, tmp_path: Path) -> None:
    done = run("measure", "--", "/bin/true", cwd=tmp_path, env=VARIABLES[case])
    assert "Traceback" not in done.err
    assert done.status in (0, 1)
    assert obeyed("\n".join(x for x in done.err.splitlines() if "OPTIONS" not in x)) == []
    assert len(done.err) < 200_000


def test_variables_that_cannot_be_sent(tmp_path: Path) -> None:
    """A variable that cannot be sent to workers stops the study before it contacts the cluster's address."""
    env = {"OURS\x1b[2J": os.fsdecode(b"\xff")}
    words = ["landscape", "--param", "mmap_threshold", "--cluster", "tcp://127.0.0.1:1", "--", "/bin/true"]
    line = refused(run(*words, cwd=tmp_path, env=env), (1,))
    assert "the environment variable OURS\u241b[2J is not valid UTF-8" in line
    assert "env -u" in line
    assert not list(tmp_path.glob("*.study"))


def test_arguments_that_are_not_utf_8_are_not_sent_to_workers() -> None:
    from heapwright.cluster.transport import encode
    from heapwright.errors import HeapwrightError

    with pytest.raises(HeapwrightError, match="is not valid UTF-8"):
        encode({"command": ["true", os.fsdecode(b"\xff")]})


@pytest.mark.parametrize(
    "words",
    [
        ["tune", "--budget", "9" * 5000, "--", "true"],
        ["tune", "--budget", "9" * 5000 + "s", "--", "true"],
        ["tune", "--pairs", "9" * 5000, "--", "true"],
        ["tune", "--seed", "9" * 5000, "--", "true"],
        ["tune", "--margin", "nan", "--", "true"],
        ["tune", "--timeout", "nan", "--", "true"],
        ["measure", "-n", "9" * 5000, "--", "true"],
        ["landscape", "--param", "mxfast", "--range", "mxfast=1:" + "9" * 5000, "--", "true"],
        ["watch", "x", "--port", "9" * 5000],
    ],
)
def test_hostile_arguments_are_refused_in_one_line(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    status = main(words)
    err = capfd.readouterr().err
    assert status == 2, err
    assert err.startswith("heapwright: ")
    assert err.count("\n") == 1
