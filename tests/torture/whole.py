"""Runs whole programs under a malloc, and keeps a table of the outcomes.

Each program is a shell script in programs/. It reads $SIZE (short or long), and its output must be the same, byte for
byte, under every malloc. It runs in a folder of its own. The folder's name is short, because the path of a socket has
at most 107 bytes. Everybody may enter the folder, because PostgreSQL does not run as root.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from heapwright.allocators.takeover import bindings, takeover_failure, watch_environment
from tests.allocator.conftest import NAMES, Malloc
from tests.conftest import ROOT

SCRIPTS = Path(__file__).with_name("programs")
OUTCOMES = ROOT / "build/torture/programs"
TABLE = OUTCOMES.with_suffix(".md")
SOURCES = ROOT / "build/torture/sources"


@dataclass(frozen=True)
class Program:
    """A script's requirements, the commands in it that matter, and its time limit.

    Attributes:
        needs: commands that must be installed.
        engines: command lines that end at once and whose malloc must be ours.
        own: the loader's reason why the engines keep a malloc of their own; empty: they must use ours.
        source: the source package (a shell word) whose tests the script runs, only in the long form; or empty.
        large: its package is too large, or needs too many services, for the short form.
        elsewhere: tests/allocator runs the same program in the short form, with less work.
        alone: no two runs at a time, for example because they would use the same ports.
    """

    title: str
    needs: tuple[str, ...]
    engines: tuple[str, ...]
    own: str = ""
    source: str = ""
    large: bool = False
    elsewhere: bool = False
    alone: bool = False

    @property
    def long(self) -> bool:
        """Whether only the long form runs it."""
        return self.large or self.elsewhere or bool(self.source)


PROGRAMS = {
    "cpython": Program(
        "CPython's regression tests", ("/usr/bin/python3",), ("/usr/bin/python3 -S -c 1",), elsewhere=True
    ),
    "gcc": Program(
        "gcc: objects of large sources, LTO",
        ("gcc", "g++"),
        ("$(gcc -print-prog-name=cc1) --version", "$(gcc -print-prog-name=cc1plus) --version"),
        elsewhere=True,
    ),
    "clang": Program("clang: objects of large sources", ("clang", "clang++"), ("clang --version",)),
    "perl": Program("Perl over its own library", ("perl",), ("perl -e 1",), elsewhere=True),
    "ruby": Program("Ruby: tests of its gems, its library parsed", ("ruby",), ("ruby -e 1",), elsewhere=True),
    "perl_core": Program("Perl's own core tests", ("perl",), ("perl -e 1",), source="perl"),
    "ruby_core": Program(
        "Ruby's own core tests", ("ruby",), ("ruby -e 1",), source="ruby$(ruby -e 'print RUBY_VERSION[/\\d+.\\d+/]')"
    ),
    "sqlite": Program("SQLite: a workload over all of it", ("sqlite3",), ("sqlite3 -version",), elsewhere=True),
    "sqlite_tests": Program("SQLite's own tests", ("gcc", "make", "tclsh", "setpriv"), ("tclsh",), source="sqlite3"),
    "redis": Program(
        "Redis under redis-benchmark", ("redis-server", "redis-benchmark"), ("redis-server --version",), elsewhere=True
    ),
    "redis_tests": Program(
        "Redis's own tests",
        ("redis-server", "redis-benchmark", "tclsh"),
        ("redis-server --version",),
        source="redis",
        alone=True,
    ),
    "postgres": Program("PostgreSQL under pgbench", ("pgbench", "setpriv"), ("psql --version",), large=True),
    "java": Program("OpenJDK: javac, a job of threads", ("java",), ("java -version",), elsewhere=True),
    "node": Program("Node.js: worker threads", ("node",), ("node --version",), elsewhere=True),
    "git": Program("git gc of a repository, fsck", ("git",), ("git --version",), elsewhere=True),
    "chromium": Program(
        "Chromium opening our report",
        ("chromium",),
        ("/usr/lib/chromium/chromium --version",),
        "not loaded: the program defines its own malloc",
    ),
}


def source(program: Program) -> Path | None:
    """Unpacks a program's source package; returns None if it is not available."""
    name = subprocess.run(["sh", "-c", f"echo {program.source}"], capture_output=True, text=True).stdout.strip()
    subprocess.run([ROOT / "tools/sources", SOURCES, name], check=True)
    return SOURCES / name if (SOURCES / name).is_dir() else None


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """An empty folder for one run, removed afterwards."""
    path = Path(tempfile.mkdtemp(prefix="hw-", dir="/tmp"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def in_place(malloc: Malloc, where: Path) -> Malloc:
    """Copies the library of a malloc to a folder where every user can read it."""
    if malloc.library is None:
        return malloc
    copy = where / malloc.library.name
    shutil.copy(malloc.library, copy)
    copy.chmod(0o755)
    return Malloc(malloc.name, copy)


def run(name: str, malloc: Malloc, env: Mapping[str, str], timeout: float) -> tuple[str, float]:
    """Runs a program under a malloc.

    Args:
        name: the script's name in programs/, without suffix.
        malloc: the malloc to run under.
        env: variables added to the environment.
        timeout: time limit in seconds.

    Returns:
        The output, with the exit status last, and the run time in seconds.
    """
    with folder() as libraries, folder() as work:
        began = time.monotonic()
        done = in_place(malloc, libraries).run("sh", SCRIPTS / f"{name}.sh", env=env, folder=work, timeout=timeout)
        seconds = time.monotonic() - began
    tail = done.stderr.decode(errors="replace")[-2000:] if done.returncode else ""
    return done.stdout.decode(errors="replace") + f"script: {done.returncode}\n{tail}", seconds


def whose_malloc(program: Program, malloc: Malloc) -> list[str]:
    """For each engine: an empty text if this malloc took over, otherwise the loader's reason."""
    assert malloc.library is not None
    found = []
    for engine in program.engines:
        with folder() as libraries, folder() as work:
            ours = in_place(malloc, libraries)
            # The shell runs unwatched: the loader's log of a shell would name our malloc for every
            # engine.
            words = subprocess.run(["sh", "-c", f"echo {engine}"], capture_output=True, text=True).stdout.split()
            ours.run(*words, env=watch_environment(work), folder=work)
            found.append(takeover_failure(str(ours.library), words[0], bindings(work)))
    return found


def note(name: str, outcome: Mapping[str, str]) -> None:
    """Stores a program's outcome under each malloc, and rewrites the table of all stored outcomes."""
    OUTCOMES.mkdir(parents=True, exist_ok=True)
    with (OUTCOMES / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # pytest-xdist runs several processes
        (OUTCOMES / f"{name}.json").write_text(json.dumps(dict(outcome)))
        kept = {
            one: json.loads((OUTCOMES / f"{one}.json").read_text())
            for one in PROGRAMS
            if (OUTCOMES / f"{one}.json").exists()
        }
        columns = ("plain", *NAMES)
        rows = ["| program | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
        rows += [
            f"| {PROGRAMS[one].title} | " + " | ".join(row.get(c, "not run") for c in columns) + " |"
            for one, row in kept.items()
        ]
        part = TABLE.with_name(f".{TABLE.name}.{os.getpid()}")
        part.write_text("\n".join(rows) + "\n")
        part.replace(TABLE)
