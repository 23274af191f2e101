"""Tests hostile names of paths, arguments, variables, studies and symbols: the terminal shows them as text."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import needs

from .fuzz.targets import template
from .hostile import NAME, obeyed, on_a_terminal, refused, run

BYTES = os.fsdecode(b"bytes\xff\xfe.so")  # a name that is not valid UTF-8


def hostile_study(folder: Path) -> Path:
    """A study in which all texts are hostile."""
    path = folder / f"{NAME}.study"
    path.write_bytes(template())
    with sqlite3.connect(path) as db:
        said = {"command": ["./" + NAME, NAME], "cwd": NAME}
        db.execute("UPDATE meta SET value = ? WHERE key = 'identity'", (json.dumps(said),))
        db.execute("UPDATE meta SET value = ? WHERE key = 'host'", (json.dumps({"cpu": NAME, "os": NAME}),))
        db.execute("UPDATE config SET allocator = ? WHERE id = 2", (NAME,))
        db.execute("UPDATE config SET settings = ? WHERE id = 2", (json.dumps({NAME: NAME}),))
        db.execute("UPDATE config SET env = ? WHERE id = 2", (json.dumps({"LD_PRELOAD": f"/{NAME}.so"}),))
        db.execute("UPDATE run SET extra = ?", (json.dumps({"meter": NAME, "warnings": [NAME]}),))
    db.close()
    return path


CASES: dict[str, list[str]] = {
    "no such trace": ["info", NAME],
    "no such model": ["synth", NAME],
    "no such study": ["report", NAME],
    "no such program": ["tune", "--", "./" + NAME],
    "a program that fails": ["tune", "--", f"./{NAME}.sh"],
    "a file that is none": ["inspect", f"{NAME}.txt"],
    "a trace that is none": ["replay", f"{NAME}.txt"],
    "an unknown word": [NAME],
    "an unknown option": ["tune", f"--{NAME}"],
    "an unknown metric": ["tune", "--minimize", NAME, "--", "true"],
    "an allocator that is none": ["compare", "--allocators", f"./{NAME}.txt", "-n", "1", "--", "true"],
    "a space file": ["tune", "--space", f"{NAME}.toml", "--", "true"],
    "a workload file": ["tune", "--workload", f"{NAME}.toml"],
    "settings of the environment": ["doctor"],
    "apply": ["apply", f"{NAME}.study"],
    "apply for systemd": ["apply", f"{NAME}.study", "--format", "systemd"],
    "a report": ["report", f"{NAME}.study"],
    "one symbol": ["inspect", "symbols.o"],
    "an imported trace": ["import", f"{NAME}.heaptrack", "-o", f"{NAME}.hwt"],
    "a recording": ["record", "-o", f"{NAME}.rec", "--", f"./{NAME}.sh"],
    "a name of bytes": ["inspect", BYTES],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files with hostile names."""
    folder = tmp_path_factory.mktemp("names")
    (folder / f"{NAME}.txt").write_text(NAME)
    (folder / f"{NAME}.toml").write_text('[allocator]\nname = "x"\n"\\u001b[2J" = 1\n')
    script = folder / f"{NAME}.sh"
    script.write_text(f"#!/bin/sh\nprintf '%s' '{NAME}' >&2\nexit 3\n")
    script.chmod(0o755)
    (folder / BYTES).write_bytes(b"none")
    (folder / f"{NAME}.heaptrack").write_text("v 10600 3\nX \x1b[2J\n+ 10 1 8\n!cut \x1b[2J\x1b]0;owned\x07\n")
    hostile_study(folder)
    needs.command("gcc", "objcopy")
    (folder / "s.c").write_text("extern int pthread_create(); int f(void) { return pthread_create(); }")
    subprocess.run(["gcc", "-c", "s.c", "-o", "symbols.o"], cwd=folder, check=True)
    subprocess.run(["objcopy", f"--redefine-sym=f={NAME}", "symbols.o"], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize("case", CASES)
@pytest.mark.few(2)
def test_control_sequences_in_names_are_not_obeyed(case: str, folder: Path) -> None:
    words = CASES[case]
    env = {"GLIBC_TUNABLES": f"glibc.malloc.mxfast={NAME}", "MALLOC_CONF": NAME} if words == ["doctor"] else {}
    seen = on_a_terminal(*words, cwd=folder, env=env)
    if words[0] == "record":  # the target itself may print anything to the terminal
        seen = seen.replace(NAME.replace("\n", "\r\n"), "")
    assert seen.strip(), "nothing was said"
    assert "Traceback" not in seen
    assert obeyed(seen) == []
    assert not re.search(r"^heapwright: all is well", seen, re.MULTILINE), "a name speaks with our voice"


@pytest.mark.long
def test_live_progress_obeys_nothing(folder: Path, program: Callable[..., Path]) -> None:
    named = folder / f"{NAME}moody"
    shutil.copy(program("moody"), named)
    words = ["tune", "--allocators", "glibc", "--budget", "1", "--pairs", "6:6", "--method", "sobol"]
    words += ["--minimize", "peak_heap"]
    seen = on_a_terminal(*words, "--study", f"{NAME}2.study", "--", f"./{named.name}", NAME, cwd=folder)
    assert "\u241b" in seen, seen[-500:]
    assert obeyed(seen) == []


def test_a_name_that_is_no_text_is_a_name(folder: Path, tmp_path: Path) -> None:
    assert "no such" in refused(run("info", os.fsdecode(b"\xff.hwt"), cwd=tmp_path))
    assert "is not an ELF file" in refused(run("inspect", BYTES, cwd=folder))
    study = folder / os.fsdecode(b"\xff.study")
    study.write_bytes(template())
    done = run("report", study.name, cwd=folder)
    assert done.status == 0, done.err
    assert (folder / os.fsdecode(b"\xff.html")).is_file()


def test_apply_prints_the_exact_bytes_of_a_value(tmp_path: Path) -> None:
    """`apply` into a pipe escapes nothing: a shell that reads it gets exactly the same bytes."""
    study = tmp_path / "s.study"
    study.write_bytes(template())
    value = "/odd \x1b[2J 'q' \u202e.so"
    with sqlite3.connect(study) as db:
        db.execute("UPDATE config SET env = ? WHERE id = 2", (json.dumps({"LD_PRELOAD": value}),))
    db.close()
    done = run("apply", "s.study", "--pick", "memory", cwd=tmp_path)
    assert done.status == 0, done.err
    script = f'{done.out}\nprintf %s "$LD_PRELOAD" >got\n'.replace("export LD_PRELOAD=", "LD_PRELOAD=")
    subprocess.run(["/bin/sh", "-c", script], cwd=tmp_path, check=True)
    assert (tmp_path / "got").read_text() == value
