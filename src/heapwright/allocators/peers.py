"""Finds the allocators that can be preloaded on this machine, with version and build id.

peers.toml lists the known allocators. A library that is found need not take over in a given program; `takeover` checks
that.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

import msgspec

from heapwright.errors import UsageError
from heapwright.tomlfile import load_toml

VARIABLE = "HEAPWRIGHT_ALLOCATORS"


class Variant(msgspec.Struct, forbid_unknown_fields=True):
    """The same library under another environment."""

    suffix: str
    env: dict[str, str]


class PeerSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A `[[peer]]` table; peers.toml explains the keys."""

    name: str
    sonames: list[str]
    package: str = ""
    made: bool = False
    space: str = ""
    hardened: bool = False
    env: dict[str, str] = {}
    variant: list[Variant] = []

    @property
    def how_to_get(self) -> str:
        """How to install it, or make it known where there is no package of it."""
        if self.package:
            return f"sudo apt-get install -y {self.package}"
        step = "run 'make peers' in a clone of heapwright, or" if self.made else "get its library, and"
        return f"{step} set {VARIABLE}={self.name}=PATH"


class PeersFile(msgspec.Struct, forbid_unknown_fields=True):
    """The whole of peers.toml."""

    peer: list[PeerSpec]


@dataclass(frozen=True)
class Peer:
    """A library found.

    Attributes:
        name: as in `--allocators`.
        path: what LD_PRELOAD gets.
        version: the package's version, or the file name's, or None.
        env: variables that it needs.
        space: the name of its parameter-space file.
        ordinary: whether it is worth searching unasked: not hardened, and not a variant of another.
    """

    name: str
    path: str
    version: str | None
    env: dict[str, str] = field(default_factory=dict)
    space: str = ""
    ordinary: bool = True


def family_of(path: str) -> str:
    """The parameter-space file for a library by its file name ('libjemalloc.so.2' → 'jemalloc'), if there is one."""
    stem = Path(path).name.partition(".so")[0]
    fits = (s.space or s.name for s in known_peers() if stem in {name.partition(".so")[0] for name in s.sonames})
    return next(fits, stem.removeprefix("lib"))


@cache
def known_peers() -> tuple[PeerSpec, ...]:
    """Every allocator we know how to find."""
    with as_file(files("heapwright.allocators") / "peers.toml") as path:
        return tuple(load_toml(path, PeersFile).peer)


def own_folder() -> Path:
    """Return the folder into which `make peers` installs allocators."""
    return Path(sys.prefix) / "lib/heapwright/allocators"


def named_paths() -> dict[str, str]:
    """$HEAPWRIGHT_ALLOCATORS as name → path.

    Raises:
        UsageError: an entry is not NAME=PATH, or there is no such file.
    """
    found = {}
    for entry in os.environ.get(VARIABLE, "").split(":"):
        if not entry:
            continue
        name, _, path = entry.partition("=")
        if not name or not path:
            raise UsageError(f"${VARIABLE}: '{entry}' is not NAME=PATH", "for example mimalloc3=/opt/libmimalloc.so.3")
        if not Path(path).is_file():
            raise UsageError(f"${VARIABLE}: {name}: no such file: {path}")
        found[name] = str(Path(path).resolve())
    return found


def find_peers() -> dict[str, Peer]:
    """Every allocator found, by name; variants beside their allocator."""
    named, installed, own = named_paths(), _installed(), own_folder()
    places: list[tuple[PeerSpec, str]] = []
    for spec in known_peers():
        candidates = [own / soname for soname in spec.sonames]
        built = next((str(path) for path in candidates if path.is_file()), None)
        path = named.pop(spec.name, None) or built or next((installed[s] for s in spec.sonames if s in installed), None)
        if path is not None:
            places.append((spec, path))
    versions = library_versions([*(path for _, path in places), *named.values()])
    found: dict[str, Peer] = {}
    for spec, path in places:
        version = versions[path]
        space = spec.space or spec.name
        found[spec.name] = Peer(spec.name, path, version, spec.env, space, not spec.hardened)
        for variant in spec.variant:
            name = f"{spec.name}-{variant.suffix}"
            found[name] = Peer(name, path, version, {**spec.env, **variant.env}, space, ordinary=False)
    for name, path in named.items():
        found[name] = Peer(name, path, versions[path], space=family_of(path))
    return found


def _installed() -> dict[str, str]:
    """The loader's cache: soname → path, the machine's own word size first."""
    for program in ("ldconfig", "/sbin/ldconfig"):
        try:
            done = subprocess.run([program, "-p"], capture_output=True, text=True, check=False, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            continue
        wide = "x86-64" if os.uname().machine == "x86_64" else ""
        lines = [line for line in done.stdout.splitlines() if wide in line]
        pairs = re.findall(r"^\s*(\S+) \([^)]*\) => (.+)$", "\n".join(lines), re.MULTILINE)
        return dict(reversed(pairs))
    return {}


@cache
def library_version(path: str) -> str | None:
    """The version of the Debian package a library belongs to, else the version beside it or in its file name."""
    return library_versions([path])[path]


def library_versions(paths: Iterable[str]) -> dict[str, str | None]:
    """The versions of libraries, by path, as `library_version` finds them.

    All packages are asked for at once: dpkg-query reads its whole list of files each time.
    """
    found: dict[str, str | None] = {}
    others: list[str] = []
    for path in dict.fromkeys(paths):
        version_file = Path(f"{path}.version")
        if version_file.is_file():
            found[path] = version_file.read_text().strip()
        else:
            others.append(path)
    packaged = _package_versions(others)
    for path in others:
        number = re.search(r"\.so\.(\d+(?:\.\d+)+)$", str(Path(path).resolve()))
        found[path] = packaged.get(path) or (number[1] if number else None)
    return found


def _package_versions(paths: Sequence[str]) -> dict[str, str]:
    """The versions of the Debian packages that files belong to, by path; files of no package are missing."""
    # A package may list the path before or after links are followed, and with or without /usr.
    reals = {path: str(Path(path).resolve()) for path in paths}
    names = {path: (path, real, real.removeprefix("/usr")) for path, real in reals.items()}
    owners = _dpkg_query("-S", *dict.fromkeys(name for each in names.values() for name in each))
    owner_of = {name: owner.partition(", ")[0] for owner, _, name in (o.rpartition(": ") for o in owners)}
    packages = {path: owner for path, each in names.items() for name in reversed(each) if (owner := owner_of.get(name))}
    listed = _dpkg_query("-Wf${binary:Package} ${Version}\\n", *dict.fromkeys(packages.values()))
    versions = dict(line.split(" ", 1) for line in listed if " " in line)
    return {path: versions[package] for path, package in packages.items() if versions.get(package)}


@cache
def _dpkg_query(option: str, *patterns: str) -> tuple[str, ...]:
    """The lines that dpkg-query prints about patterns; none where there are none, or no dpkg. It is asked once.

    `tune` looks for allocators three times, and dpkg-query takes a tenth of a second.
    """
    if not patterns:
        return ()
    command = ["dpkg-query", option, *patterns]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(done.stdout.splitlines())


def build_id(path: str) -> str | None:
    """The GNU build id of a program or library, as hex."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import NoteSection

    try:
        with Path(path).open("rb") as file:
            for section in ELFFile(file).iter_sections():
                if isinstance(section, NoteSection):
                    for note in section.iter_notes():
                        if note["n_type"] == "NT_GNU_BUILD_ID":
                            return str(note["n_desc"])
    except (OSError, ELFError):
        return None
    return None
