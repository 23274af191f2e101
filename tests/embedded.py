"""Builds programs that have an allocator of their own linked in."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests import needs
from tests.conftest import PROGRAMS

# Names that both libjemalloc.a and the C library export.
_EXPORTED = ("malloc", "calloc", "realloc", "free", "posix_memalign", "aligned_alloc", "memalign", "valloc", "pvalloc",
             "malloc_usable_size", "malloc_message", "malloc_conf")  # fmt: skip


def build_prefixed_jemalloc(folder: Path, *options: str) -> Path:
    """Builds embedded_jemalloc.c, whose jemalloc has prefixed names and a prefixed variable."""
    archive, cc = needs.archive("libjemalloc.a"), needs.command("gcc")
    names = folder / "names"
    lines = [f"{name} _rjem_{name}" for name in _EXPORTED] + ["secure_getenv rjem_getenv"]
    names.write_text("\n".join(lines) + "\n")
    prefixed = folder / "libprefixed.a"
    subprocess.run([needs.command("objcopy"), f"--redefine-syms={names}", archive, prefixed], check=True)
    path = folder / "embedded_jemalloc"
    words: list[str | Path] = [cc, "-O1", "-Wall", *options, "-o", path, PROGRAMS / "embedded_jemalloc.c", prefixed]
    subprocess.run([*words, "-lstdc++", "-lm", "-lpthread"], check=True)
    return path


def build_with(folder: Path, archive: str, *options: str) -> Path:
    """Builds a C++ program with a whole malloc archive linked in.

    Args:
        folder: the folder to build in.
        archive: the archive, a key of `needs.ARCHIVES`.
        options: more compiler options.
    """
    path = folder / "with_archive"
    words: list[str | Path] = [
        needs.command("g++"),
        "-O1",
        *options,
        "-o",
        path,
        PROGRAMS / "record_new.cpp",
        "-Wl,--whole-archive",
    ]
    subprocess.run([*words, needs.archive(archive), "-Wl,--no-whole-archive", "-lpthread", "-ldl"], check=True)
    return path
