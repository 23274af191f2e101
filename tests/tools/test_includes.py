"""The check of native includes: it passes on our sources and reports what breaks the layers."""

import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

PROGRAM = ROOT / "tools/includes.py"


def check(native: Path) -> tuple[int, list[str]]:
    """The exit status and the lines that the check prints for a folder of sources."""
    done = subprocess.run([sys.executable, PROGRAM, native], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def write(native: Path, name: str, text: str) -> None:
    (native / name).parent.mkdir(parents=True, exist_ok=True)
    (native / name).write_text(text)


def test_our_sources_keep_the_layers() -> None:
    assert check(ROOT / "native") == (0, [])


def test_an_upward_include_is_reported(tmp_path: Path) -> None:
    write(tmp_path, "trace/event.h", '#pragma once\n#include "raw/reader.h"\n')
    write(tmp_path, "trace/raw/reader.h", "#pragma once\n")
    assert check(tmp_path) == (1, ['trace/event.h:2: "raw/reader.h": trace may not include trace/raw'])


def test_a_downward_include_is_allowed(tmp_path: Path) -> None:
    write(tmp_path, "trace/event.h", "#pragma once\n")
    write(tmp_path, "trace/raw/reader.h", '#include "trace/event.h"\n')
    assert check(tmp_path) == (0, [])


def test_headers_that_include_each_other_are_reported(tmp_path: Path) -> None:
    write(tmp_path, "meter/a.h", '#include "b.h"\n')
    write(tmp_path, "meter/b.h", '#include "c.h"\n')
    write(tmp_path, "meter/c.h", '\n#include "a.h"\n')
    assert check(tmp_path) == (
        1,
        ["meter/c.h:2: headers include each other: meter/a.h -> meter/b.h -> meter/c.h -> meter/a.h"],
    )


def test_unknown_folders_and_files_are_reported(tmp_path: Path) -> None:
    write(tmp_path, "novel/a.h", "")
    write(tmp_path, "meter/b.cpp", '#include "missing.h"\n')
    status, lines = check(tmp_path)
    assert status == 1
    assert lines == [
        f'meter/b.cpp:1: "missing.h" is neither beside this file nor below {tmp_path.name}/',
        "novel/a.h: MAY_INCLUDE in tools/includes.py does not list the folder novel",
    ]
