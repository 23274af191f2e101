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
    path = folder / "embedded_jemalloc"
    _build_jemalloc(folder, "libjemalloc.a", path, *options)
    return path


def build_library_with_jemalloc(folder: Path) -> tuple[Path, Path]:
    """Builds a program, and a library for it that contains the jemalloc of `build_prefixed_jemalloc`, and its loop."""
    library, program, main = folder / "libpool.so.1", folder / "pooled", folder / "main.c"
    _build_jemalloc(folder, "libjemalloc_pic.a", library, "-shared", "-fPIC", "-Dmain=run_pool")
    main.write_text(
        "int run_pool(int argc, char** argv);\nint main(int argc, char** argv) { return run_pool(argc, argv); }\n"
    )
    subprocess.run([needs.command("gcc"), "-o", program, main, library, f"-Wl,-rpath,{folder}"], check=True)
    return program, library


def _build_jemalloc(folder: Path, archive: str, path: Path, *options: str) -> None:
    archive, cc = needs.archive(archive), needs.command("gcc")
    names = folder / "names"
    lines = [f"{name} _rjem_{name}" for name in _EXPORTED] + ["secure_getenv rjem_getenv"]
    names.write_text("\n".join(lines) + "\n")
    prefixed = folder / "libprefixed.a"
    subprocess.run([needs.command("objcopy"), f"--redefine-syms={names}", archive, prefixed], check=True)
    words: list[str | Path] = [cc, "-O1", "-Wall", *options, "-o", path, PROGRAMS / "embedded_jemalloc.c", prefixed]
    subprocess.run([*words, "-lstdc++", "-lm", "-lpthread"], check=True)


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
