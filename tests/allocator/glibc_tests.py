"""glibc's own tests of malloc, built from its source package outside its tree, against the installed glibc.

Each is a program that ends with 0, or with 77 where it does not apply. The library of helpers that they share
(support/) is built from what of it compiles here; a test that needs glibc's own headers or symbols does not link and is
left out.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.allocator.conftest import Malloc
from tests.conftest import ROOT

PACKAGE = "glibc"
SOURCES = ROOT / "build/torture/sources"
# Headers without a place of their own in an installed glibc. The whole folder they come from would
# hide the system's.
_HEADERS = ("include/libc-diag.h", "include/array_length.h", "sysdeps/generic/malloc-size.h")
_FLAGS = ("-std=gnu11", "-w", "-O1", "-fno-builtin", "-D_GNU_SOURCE", "-DMODULE_NAME=testsuite", "-DTIMEOUTFACTOR=4")
_INCLUDE = ("-include", "limits.h")
_PLACES = [
    "SRCDIR",
    "OBJDIR",
    "OBJDIR_ELF_LDSO",
    "INSTDIR",
    "LIBDIR",
    "BINDIR",
    "SBINDIR",
    "ROOTSBINDIR",
    "COMPLOCALEDIR",
    "SLIBDIR",
    "SYSCONFDIR",
]
# They define malloc themselves, or are not of malloc.
_OTHERS = ("interpose", "alloc_buffer", "dynarray", "scratch_buffer", "compathooks", "mtrace")
_SKIPPED = 77  # the exit status of a test that does not apply


def sources() -> Path | None:
    """The source package, unpacked; None where it cannot be had."""
    subprocess.run([ROOT / "tools/sources", SOURCES, PACKAGE], check=True)
    return SOURCES / PACKAGE if (SOURCES / PACKAGE / "malloc").is_dir() else None


def build(source: Path, folder: Path) -> dict[str, Path]:
    """The tests that link here, by name.

    Args:
        source: the unpacked package.
        folder: where they go; empty.
    """
    headers = folder / "include"
    headers.mkdir()
    for name in ("support", "malloc"):
        (headers / name).symlink_to(source / name)
    for name in _HEADERS:
        (headers / Path(name).name).symlink_to(source / name)
    places = (f'-D{name}_PATH="{folder}"' for name in _PLACES)
    flags = (*_FLAGS, *_INCLUDE, *places, f"-I{headers}", f"-I{headers}/support")
    compiled = _each(
        ["gcc", *flags, "-c", str(path), "-o", str(folder / f"{path.stem}.o")]
        for path in sorted((source / "support").glob("*.c"))
    )
    library = folder / "libsupport.a"
    subprocess.run(["ar", "rcs", library, *compiled], check=True)
    wanted = [
        path for path in sorted((source / "malloc").glob("tst-*.c")) if not any(word in path.stem for word in _OTHERS)
    ]
    linked = _each(
        ["gcc", *flags, str(path), str(library), "-lpthread", "-o", str(folder / path.stem)] for path in wanted
    )
    return {Path(path).name: Path(path) for path in linked}


def _each(commands: Iterable[list[str]]) -> list[str]:
    """Runs compilers side by side; the files of those that succeed. The last word names the file."""

    def run(command: list[str]) -> str:
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return command[-1] if done.returncode == 0 else ""

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [name for name in pool.map(run, commands) if name]


def outcome(test: Path, malloc: Malloc, seconds: float = 120) -> str:
    """How a test ends under a malloc: 'passed', 'does not apply', 'hangs', or its last words.

    Args:
        seconds: after which it hangs; the tests' own limits are shorter.
    """
    try:
        done = malloc.run(test, folder=test.parent, timeout=seconds)
    except subprocess.TimeoutExpired:
        return "hangs"
    if done.returncode == 0:
        return "passed"
    if done.returncode == _SKIPPED:
        return "does not apply"
    said = [line for line in (done.stdout + done.stderr).decode(errors="replace").splitlines() if line]
    if any("Timed out" in line for line in said):
        return "hangs"
    return f"status {done.returncode}: {said[-1] if said else ''}"
