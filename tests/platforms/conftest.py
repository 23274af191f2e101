"""The platforms that `make platforms` has built, and how a program of each runs on this machine."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import needs
from tests.conftest import PROGRAMS, ROOT

BUILT = ROOT / "build/platforms"
NAMES = ("x86_64-glibc", "x86_64-musl", "aarch64-glibc", "aarch64-musl")
LIBRARIES = ("exgen", "exgen-secure", "reaper", "reaper-secure")


@dataclass(frozen=True)
class Platform:
    """A platform, built in `folder`."""

    name: str

    @property
    def folder(self) -> Path:
        return BUILT / self.name

    @property
    def foreign(self) -> bool:
        """Whether an emulator runs its programs."""
        return not self.name.startswith(platform.machine())

    @property
    def cases(self) -> tuple[str, ...]:
        """The arguments of tests/programs/platform_cases.c."""
        return ("emulated",) if self.foreign else ()

    @property
    def root(self) -> str:
        """Where the loader and the C library of a foreign platform are, for the emulator."""
        return "/usr/aarch64-linux-gnu" if self.name == "aarch64-glibc" else str(BUILT / "sources/musl-arm64")

    def library(self, name: str) -> Path:
        return self.folder / f"lib/lib{name}.so"

    def compiler(self) -> list[str]:
        """The command that compiles C for it."""
        if self.foreign and self.name.endswith("musl"):
            return [str(BUILT / "tools/aarch64-musl-gcc")]  # by tools/musl_programs
        if self.name.endswith("musl"):
            # libgcc's choice of atomic operations calls a function that only glibc has
            return [needs.command("musl-gcc"), *(["-mno-outline-atomics"] if self.name.startswith("aarch64") else [])]
        return [needs.command("aarch64-linux-gnu-gcc" if self.foreign else "gcc")]

    def words(
        self, *words: str | Path, preload: Path | None = None, env: dict[str, str] | None = None
    ) -> tuple[list[str], dict[str, str]]:
        """The command that runs one of its programs, by an emulator if it is foreign, and its environment.

        Args:
            words: the program and its arguments.
            preload: a library.
            env: more variables of the program.
        """
        drop = ("GLIBC_TUNABLES", "MALLOC_", "LD_PRELOAD", "EXGEN_", "REAPER_", "HEAPWRIGHT_")
        base = {key: value for key, value in os.environ.items() if not key.startswith(drop)}
        own = {**({"LD_PRELOAD": str(preload)} if preload else {}), **(env or {})}
        command = [str(word) for word in words]
        if self.foreign:
            options = [word for key, value in own.items() for word in ("-E", f"{key}={value}")]
            command = [needs.command("qemu-aarch64"), "-L", self.root, *options, *command]
            own.pop("LD_PRELOAD", None)  # the others also in /proc/self/environ, which is the emulator's
        return command, {**base, **own}

    def run(
        self, *words: str | Path, preload: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs one of its programs; the arguments are those of `words`."""
        command, variables = self.words(*words, preload=preload, env=env)
        return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=280, check=False)


def made_for(name: str, made: Path, tool: str) -> Platform:
    """The platform of this name, whose programs run here; skips the test if they are not built.

    Args:
        name: of the platform.
        made: the last file that the tool makes for it.
        tool: the program of tools/ that builds them.
    """
    found = Platform(name)
    if not made.exists():
        needs.not_built(f"programs for {name} (tools/{tool})")
    if found.foreign:
        needs.command("qemu-aarch64")
    return found


@pytest.fixture(scope="session", params=NAMES)
def built(request: pytest.FixtureRequest) -> Platform:
    found = Platform(request.param)
    if not found.folder.is_dir():
        needs.not_built(f"{found.name} (make platforms)")
    return found


@pytest.fixture(scope="session")
def runnable(built: Platform) -> Platform:
    if built.name == "aarch64-musl" and built.foreign and not Path(built.compiler()[0]).exists():
        needs.not_built("a compiler of musl for aarch64 (tools/musl_programs)")
    if built.foreign and built.name == "aarch64-glibc" and not Path(built.root, "lib/libc.so.6").exists():
        needs.missing("libc6-dev-arm64-cross")
    if built.name.endswith("musl"):
        needs.command("musl-gcc")
    return built


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Builds tests/programs/NAME.c for a platform, once, with more options if given."""
    folder = tmp_path_factory.mktemp("platforms")

    def build(where: Platform, name: str, *options: str) -> Path:
        path = folder / "-".join([where.name, name, *(Path(option).name for option in options)])
        if not path.exists():
            words = [*where.compiler(), "-O1", "-fno-builtin", "-pthread", "-o", str(path)]
            words += [str(PROGRAMS / f"{name}.c"), *options]
            subprocess.run(words, check=True, capture_output=True)
        return path

    return build
