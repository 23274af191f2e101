"""Unpacks other versions of glibc from Debian's packages, and builds programs for them."""

from __future__ import annotations

import lzma
import re
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from tests import needs

MIRROR = "http://deb.debian.org/debian"
PROGRAM = Path(__file__).parent.parent / "programs/fragments.c"


@dataclass(frozen=True)
class Glibc:
    """An unpacked libc6 of a Debian suite."""

    root: Path
    libraries: Path
    loader: Path
    start: tuple[str | Path, ...]  # the words before a program that is to run on it


def unpacked(suite: str, folder: Path) -> Glibc:
    """Downloads and unpacks libc6 and libc6-dev of a suite once."""
    root = folder / suite
    if not root.exists():
        draft = folder / f"{suite}.draft"
        draft.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(f"{MIRROR}/dists/{suite}/main/binary-amd64/Packages.xz", timeout=120) as answer:
            packages = lzma.decompress(answer.read()).decode()
        for package in ("libc6", "libc6-dev"):
            entry = next(text for text in packages.split("\n\n") if text.startswith(f"Package: {package}\n"))
            name = re.search(r"^Filename: (.*)$", entry, re.MULTILINE)
            assert name
            file = draft / f"{package}.deb"
            with urllib.request.urlopen(f"{MIRROR}/{name[1]}", timeout=120) as answer:
                file.write_bytes(answer.read())
            subprocess.run(["dpkg", "-x", file, draft], check=True)
        draft.rename(root)
    libc = next(root.glob("**/libc.so.6"))
    loader = next(libc.parent.glob("ld-linux-x86-64.so.2"))
    return Glibc(root, libc.parent, loader, (loader, "--library-path", libc.parent))


def build_for(glibc: Glibc) -> Path:
    """Builds tests/programs/fragments.c for a version of glibc; an older one does not run what this machine links."""
    output = glibc.root / "fragments"
    development = glibc.root / "usr/lib/x86_64-linux-gnu"
    gcc = needs.command("gcc")
    include = subprocess.run([gcc, "-print-file-name=include"], capture_output=True, text=True, check=True)
    headers: list[str | Path] = [
        include.stdout.strip(),
        glibc.root / "usr/include",
        glibc.root / "usr/include/x86_64-linux-gnu",
    ]
    libraries: list[Path] = [glibc.libraries / "libpthread.so.0", glibc.libraries / "libc.so.6", glibc.loader]
    words: list[str | Path] = [gcc, "-O1", "-no-pie", "-nostdinc"]
    for folder in headers:
        words += ["-isystem", folder]
    words += ["-nostdlib", development / "crt1.o", development / "crti.o", PROGRAM]
    words += [library for library in libraries if library.exists()]
    words += [development / "libc_nonshared.a", development / "crtn.o", "-Wl,--allow-shlib-undefined", "-o", output]
    subprocess.run(words, check=True)
    return output
