"""Builds the programs of tests/programs once, for all test processes and later runs: they stay in build/test-programs.

A program's name there ends with a hash of everything that it depends on: its source, all headers that such programs
include, the options, and the versions of compiler and C library. A program linked with a file of ours is built for the
session alone.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests import needs

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "build/test-programs"
HEADERS = ("tests/programs/*.h", "native/*/include/*.h")


@functools.cache
def _headers() -> bytes:
    """A hash of all headers that a program may include."""
    total = hashlib.sha256()
    for pattern in HEADERS:
        for path in sorted(ROOT.glob(pattern)):
            total.update(path.name.encode() + b"\0" + path.read_bytes())
    return total.digest()


@functools.cache
def _versions(compiler: str) -> bytes:
    """The versions of the compiler and of the C library."""
    told = subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout
    return told + (os.confstr("CS_GNU_LIBC_VERSION") or "").encode()


def command(source: Path, options: Sequence[str]) -> list[str]:
    """The compiler's words for a source with options, without the target."""
    compiler = needs.command("gcc" if source.suffix == ".c" else "g++")
    words = [compiler, *(["-std=c++20"] if source.suffix == ".cpp" else []), "-O1", "-Wall", "-Wextra", "-Werror"]
    return [*words, "-pthread", *options]


def key(source: Path, options: Sequence[str]) -> str:
    """A hash of all that the program depends on."""
    words = command(source, options)
    total = hashlib.sha256()
    for part in ("\0".join(words).encode(), source.read_bytes(), _headers(), _versions(words[0])):
        total.update(hashlib.sha256(part).digest())
    return total.hexdigest()[:16]


def build(sources: Path, name: str, options: Sequence[str], session: Path) -> Path:
    """Builds a program, or finds the one that is built.

    Args:
        sources: the folder of the source.
        name: of the source, without its suffix.
        options: more words for the compiler.
        session: a folder for programs that are not kept.

    Returns:
        The program's path.
    """
    source = next(file for file in (sources / f"{name}.c", sources / f"{name}.cpp") if file.exists())
    words = list(map(str, options))
    ours = any("/" in word or word.startswith(("-l", "-L")) for word in words)
    path = session / "".join([name, *words]) if ours else KEPT / key(source, words) / "".join([name, *words])
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with (path.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # pytest-xdist runs several processes
        if not path.exists():
            subprocess.run([*command(source, words), "-o", draft, source, "-ldl"], check=True)
            draft.replace(path)
    return path
