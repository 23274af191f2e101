"""Objects, archives and libraries to look at, made by the compilers that are here."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import needs

Build = Callable[..., Path]


@pytest.fixture(autouse=True)
def need_compiler() -> None:
    needs.command("g++")


def run(*words: str | Path, folder: Path | None = None) -> str:
    """Run a command that must succeed; return its stdout."""
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def compile_(tmp_path: Path) -> Build:
    """compile_(name, source, *options): an object of C (name.c) or C++ (name.cpp); returns its path."""

    def build(name: str, source: str, *options: str) -> Path:
        file = tmp_path / name
        file.write_text(source)
        compiler = "g++" if file.suffix == ".cpp" else "gcc"
        target = file.with_suffix(".o")
        run(compiler, "-c", *options, file, "-o", target)
        return target

    return build


@pytest.fixture
def archive(tmp_path: Path) -> Build:
    """archive(name, *objects, flags='rcs'): an archive."""

    def build(name: str, *objects: Path, flags: str = "rcs") -> Path:
        target = tmp_path / name
        run("ar", flags, target, *objects)
        return target

    return build


@pytest.fixture
def library(tmp_path: Path) -> Build:
    """library(name, *words): a shared library linked by g++."""

    def build(name: str, *words: str | Path) -> Path:
        target = tmp_path / name
        run("g++", "-shared", f"-Wl,-soname,{name}", *words, "-o", target)
        return target

    return build
