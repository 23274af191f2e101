"""CPython's arenas, read from outside, against the interpreter's own sys._debugmallocstats()."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.allocator.conftest import bundled
from tests.conftest import PROGRAMS

from .live import close, diagnose, line_of, resident_bytes, waiting

SCRIPT = PROGRAMS / "diagnose_arenas.py"


def interpreters() -> list[Path]:
    """This interpreter, and each other CPython from 3.8 to 3.14 on the path or in pyenv's folder, without links."""
    minors = range(8, 15)
    names = [sys.executable, "/usr/bin/python3", *(f"python3.{minor}" for minor in minors)]
    names += [str(one) for minor in minors for one in Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3")]
    code = "import sys, os; print(os.path.realpath(sys.executable)) if sys.implementation.name == 'cpython' else 0"
    found: dict[Path, None] = {}
    for name in filter(None, map(shutil.which, names)):
        done = subprocess.run([name, "-c", code], capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.strip():
            found[Path(done.stdout.strip())] = None
    return list(found)


def version(interpreter: Path) -> str:
    code = "import sys; print('CPython %d.%d' % sys.version_info[:2])"
    return subprocess.run([interpreter, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def environment(**more: str) -> dict[str, str]:
    dropped = ("PYTHON", "LD_PRELOAD", "EXGEN_", "REAPER_")
    return {key: value for key, value in os.environ.items() if not key.startswith(dropped)} | more


def counted(lines: list[str]) -> dict[str, int]:
    """The figures of sys._debugmallocstats(): arenas, live bytes, and free bytes."""
    text = "".join(lines).replace(",", "")

    def figure(pattern: str) -> int:
        found = re.search(pattern, text)
        assert found, text
        return int(found[1])

    unused = re.search(r"(\d+) unused pools \* (\d+) bytes", text)
    assert unused
    return {
        "arenas": figure(r"# arenas allocated current +=\s+(\d+)"),
        "live_bytes": figure(r"# bytes in allocated blocks +=\s+(\d+)"),
        "free_bytes": figure(r"# bytes in available blocks +=\s+(\d+)") + int(unused[1]) * int(unused[2]),
    }


def ask(*words: str | Path, env: dict[str, str]) -> tuple[dict[str, Any] | None, dict[str, int], int]:
    """What heapwright-diagnose finds, what the interpreter counts, and its resident bytes."""
    with waiting(*words, env=env) as process:
        lines = []
        while not (line := line_of(process)).startswith("process "):
            lines.append(line)
        pid = int(line.split()[1])
        found = diagnose(pid)["cpython"]
        return found, counted(lines), resident_bytes(pid)


@pytest.mark.parametrize("case", ["drop", "small", "fork"])
@pytest.mark.parametrize("interpreter", interpreters(), ids=str)
@pytest.mark.few(7)
def test_the_figures_are_those_of_the_interpreter(interpreter: Path, case: str) -> None:
    found, own, resident = ask(interpreter, SCRIPT, case, env=environment())
    assert found is not None
    assert found["name"] == version(interpreter)
    assert found["consistent"]
    assert found["arenas"] == own["arenas"]
    assert close(found["live_bytes"], own["live_bytes"])
    assert close(found["free_bytes"], own["free_bytes"])
    assert found["live_bytes"] + found["free_bytes"] <= found["arena_bytes"]
    assert found["live_bytes"] <= found["resident_bytes"] <= min(found["arena_bytes"], resident)
    assert found["free_pages_bytes"] <= found["free_bytes"]
    assert found["live_bytes"] == sum(row["live_bytes"] for row in found["classes"])


@pytest.mark.parametrize("checks", ["pymalloc", "debug"])
def test_the_arenas_are_found_under_another_malloc_and_with_checks(checks: str) -> None:
    library = bundled("reaper")
    if library is None:
        needs.not_built("libreaper.so")
    env = environment(LD_PRELOAD=str(library), PYTHONMALLOC=checks)
    found, own, _ = ask(sys.executable, SCRIPT, "drop", env=env)
    assert found is not None
    assert found["arenas"] == own["arenas"]
    assert close(found["live_bytes"], own["live_bytes"])


def test_without_pymalloc_there_are_no_arenas() -> None:
    with waiting(sys.executable, SCRIPT, "small", env=environment(PYTHONMALLOC="malloc")) as process:
        while not line_of(process).startswith("process "):
            pass
        found = diagnose(process.pid)["cpython"]
    assert found["name"] == version(Path(sys.executable))
    assert (found["arenas"], found["arena_bytes"], found["live_bytes"], found["resident_bytes"]) == (0, 0, 0, 0)


def test_a_variable_that_the_interpreter_ignores_changes_nothing() -> None:
    found, own, _ = ask(sys.executable, "-E", SCRIPT, "small", env=environment(PYTHONMALLOC="malloc"))
    assert found is not None
    assert found["arenas"] == own["arenas"] > 0


@pytest.mark.parametrize("how", ["renamed", "deleted"])
@pytest.mark.few(1)
def test_a_copy_of_the_interpreter(tmp_path: Path, how: str) -> None:
    """Under another name, the name of an extension module tells the version. An update deletes a running program."""
    interpreter = interpreters()[0]
    copy = tmp_path / ("service" if how == "renamed" else interpreter.name)
    shutil.copy(interpreter, copy)
    code = "import _ctypes, _json, os; os.write(1, b'process 0\\n'); os.read(0, 1)"
    home = subprocess.run(
        [interpreter, "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True, check=True
    )
    with waiting(copy, "-c", code, env=environment(PYTHONHOME=home.stdout.strip())) as process:
        line_of(process)
        if how == "deleted":
            copy.unlink()
        found = diagnose(process.pid)["cpython"]
    assert found is not None
    assert found["name"] == version(interpreter)
    assert found["arenas"] > 0


def test_a_busy_interpreter_is_read_all_the_same() -> None:
    with waiting(sys.executable, SCRIPT, "busy", env=environment()) as process:
        line_of(process)
        for _ in range(50):
            found = diagnose(process.pid)["cpython"]
            assert found["arenas"] > 0
            assert found["live_bytes"] <= found["arena_bytes"]
            if not found["consistent"]:
                break
        assert process.poll() is None
    assert not found["consistent"]


def test_another_program_has_no_interpreter() -> None:
    with waiting("cat", env=environment()) as process:
        found = diagnose(process.pid)
    assert found["cpython"] is None
    assert json.dumps(found)
