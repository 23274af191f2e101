"""Finds libraries as the linker does (by -lNAME) and as the loader does (by a NEEDED name)."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

_DEFAULT = ("/lib", "/usr/lib", "/lib64", "/usr/lib64")
_MACHINES = {
    3: "EM_386",
    40: "EM_ARM",
    62: "EM_X86_64",
    183: "EM_AARCH64",
    243: "EM_RISCV",
    21: "EM_PPC64",
    22: "EM_S390",
}


def is_file(path: Path) -> bool:
    """Whether there is such a file. Any word may be asked; pathlib raises where one is too long for a name."""
    return os.path.isfile(path)  # noqa: PTH113


def find_linked(name: str, folders: Iterable[str], static: bool) -> Path | None:
    """Return the file that -lNAME stands for; None if there is none.

    Args:
        name: 'm', or ':libm.a' for a file of exactly this name.
        folders: the search path, in order.
        static: only archives (-static, -Bstatic).
    """
    wanted = [name[1:]] if name.startswith(":") else [f"lib{name}.a"] if static else [f"lib{name}.so", f"lib{name}.a"]
    for folder in folders:
        for file in wanted:
            path = Path(folder) / file
            if is_file(path):
                return path
    return None


@cache
def _loader_cache() -> dict[str, list[str]]:
    """The loader's cache: name → paths."""
    found: dict[str, list[str]] = {}
    for command in ("ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"):
        try:
            done = subprocess.run([command, "-p"], capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.SubprocessError):
            continue
        for name, path in re.findall(r"^\s+(\S+) \(.*\) => (.+)$", done.stdout, re.MULTILINE):
            found.setdefault(name, []).append(path)
        break
    return found


@cache
def _configured_folders() -> list[str]:
    """Return the folders that /etc/ld.so.conf names, for a system without a cache."""
    found: list[str] = []
    for path in (Path("/etc/ld.so.conf"), *sorted(Path("/etc/ld.so.conf.d").glob("*.conf"))):
        try:
            lines = path.read_text(errors="replace").splitlines()
        except OSError:
            continue
        found += [line.strip() for line in lines if line.strip().startswith("/")]
    return found


def find_loaded(
    name: str, machine: str, bits: int, rpath: Sequence[str], runpath: Sequence[str], more: Sequence[str] = ()
) -> Path | None:
    """The file the loader would take for a NEEDED name, or None.

    Args:
        machine, bits: of the program; libraries of another kind are passed over, as the loader does.
        rpath, runpath: as they are, with $ORIGIN replaced already.
        more: further folders, looked at last.
    """
    if "/" in name:
        return Path(name) if is_for_machine(Path(name), machine, bits) else None
    environment = [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    first = [Path(folder) / name for folder in (*rpath, *environment, *runpath)]
    known = [Path(path) for path in _loader_cache().get(name, ())]
    last = [Path(folder) / name for folder in (*_configured_folders(), *_DEFAULT, *more)]
    if name == "libc.so" or name.startswith("libc.musl-"):  # musl's, which is its loader
        last += sorted(Path("/lib").glob("ld-musl-*.so.1"))
    return next((path for path in (*first, *known, *last) if is_for_machine(path, machine, bits)), None)


def replace_origin(folders: Iterable[str], path: Path, bits: int) -> list[str]:
    """Replace $ORIGIN and $LIB in the search paths of a file; paths with other variables are left out.

    Args:
        folders: the search paths.
        path: the file that has them.
        bits: 32 or 64.
    """
    origin = str(path.resolve().parent)
    found = []
    for folder in folders:
        text = re.sub(r"\$(\{ORIGIN\}|ORIGIN\b)", origin.replace("\\", r"\\"), folder)
        text = re.sub(r"\$(\{LIB\}|LIB\b)", "lib64" if bits == 64 else "lib", text)
        if "$" not in text:
            found.append(text)
    return found


def is_for_machine(path: Path, machine: str, bits: int) -> bool:
    """Whether a file is an ELF file for this machine.

    Args:
        path: the file.
        machine: name of the machine, such as EM_X86_64.
        bits: 32 or 64.
    """
    try:
        with path.open("rb") as file:
            head = file.read(20)
    except OSError:
        return False
    if len(head) < 20 or head[:4] != b"\x7fELF" or head[4] != (2 if bits == 64 else 1):
        return False
    number = int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")
    return _MACHINES.get(number, machine) == machine
