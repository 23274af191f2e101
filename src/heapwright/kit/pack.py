"""Packs the kit: native files of chosen platforms with the shell front `hw`, in one archive.

The bytes depend on the files alone: names are sorted, times, owners and modes are fixed.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from heapwright import __version__
from heapwright.errors import HeapwrightError, UsageError
from heapwright.files import write_whole
from heapwright.metrics import NUMERIC
from heapwright.platforms import KIT_NAME, need_platform

SUFFIXES = (".tar.zst", ".tar.gz", ".tar")
# Patterns of the kit's files in a platform's folder.
_PARTS = (
    "heapwright-meter",
    "heapwright-replay",
    "heapwright-trace",
    "lib/libexgen*",
    "lib/libreaper*",
    "lib/libheapwright-record.so",
    "lib/libheapwright-sample.so",
    "lib/libheapwright-no-huge-pages.so",
    "include/*.h",
)
_TIME = 0  # seconds since 1970, of every file


def check_output(path: Path) -> None:
    """Refuse the name of an archive that cannot be written.

    Raises:
        UsageError: its suffix is unknown, or it needs a program that is missing.
    """
    if not path.name.endswith(SUFFIXES):
        raise UsageError(f"'{path}' is not the name of a kit", f"it must end in {', '.join(SUFFIXES)}")
    if path.name.endswith(".zst") and shutil.which("zstd") is None:
        raise UsageError("there is no zstd to compress the kit", "install zstd, or name a file that ends in .tar.gz")


def platform_files(folder: Path) -> dict[str, tuple[bytes, bool]]:
    """Return the kit's files of a platform: name in its folder → content, and whether it is executable.

    Raises:
        HeapwrightError: a part is missing.
    """
    found = {}
    for pattern in _PARTS:
        matches = sorted(path for path in folder.glob(pattern) if path.is_file())
        if not matches:
            raise HeapwrightError(f"there is no {pattern} in {folder}", "build it again: 'make platforms'")
        for path in matches:
            found[str(path.relative_to(folder))] = path.read_bytes(), path.name.startswith("heapwright-")
    return found


def kit_files(platforms: Sequence[str]) -> dict[str, tuple[bytes, bool]]:
    """Return the files of the kit: name → content, and whether it is executable.

    Raises:
        HeapwrightError: a platform is not built, or a part of it is missing.
    """
    source = files("heapwright.kit")

    def filled(name: str) -> bytes:
        text = (source / name).read_text(encoding="utf-8")
        values = {"VERSION": __version__, "METRICS": " ".join(NUMERIC), "PLATFORMS": ", ".join(platforms)}
        for key, value in values.items():
            text = text.replace(f"@{key}@", value)
        return text.encode()

    found = {"hw": (filled("hw"), True), "README.md": (filled("README.md"), False)}
    for platform in platforms:
        parts = platform_files(need_platform(platform))
        found |= {f"{platform}/{name}": part for name, part in parts.items()}
    sums = "".join(f"{hashlib.sha256(found[name][0]).hexdigest()}  {name}\n" for name in sorted(found))
    return {**found, "SHA256SUMS": (sums.encode(), False)}


def write_kit(path: Path, platforms: Sequence[str]) -> int:
    """Write the archive; return its size in bytes.

    Args:
        path: its name, which ends in one of `SUFFIXES`.
        platforms: names of platforms; each must be built.

    Raises:
        HeapwrightError: a platform is not built, or the archive cannot be written.
    """
    check_output(path)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, (content, executable) in sorted(kit_files(platforms).items()):
            entry = tarfile.TarInfo(f"{KIT_NAME}/{name}")
            entry.size, entry.mtime, entry.mode = len(content), _TIME, 0o755 if executable else 0o644
            archive.addfile(entry, io.BytesIO(content))
    data = buffer.getvalue()
    if path.name.endswith(".gz"):
        data = gzip.compress(data, mtime=_TIME)
    elif path.name.endswith(".zst"):
        words = ["zstd", "-12", "--single-thread", "--quiet", "--stdout"]
        done = subprocess.run(words, input=data, capture_output=True, check=False)
        if done.returncode:
            raise HeapwrightError(f"zstd failed: {done.stderr.decode(errors='replace').strip()}")
        data = done.stdout
    try:
        write_whole(path, data)
    except OSError as error:
        raise HeapwrightError(f"cannot write {path}: {error.strerror}") from None
    return len(data)
