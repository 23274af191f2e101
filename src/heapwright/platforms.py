"""Names the platforms of the native part, and finds the folder of each.

Every folder has the layout of `_native`: programs at its top, libraries in lib/, headers in include/. The folder of
this machine's platform is `_native` itself. Those of the others come from `make platforms`, or in a wheel from the
archive `PACKED`, which is unpacked when one of them is first used.
"""

from __future__ import annotations

import lzma
import os
import platform
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from heapwright.errors import HeapwrightError
from heapwright.files import NATIVE, file_sha256, user_cache

PLATFORMS = ("x86_64-glibc", "x86_64-musl", "aarch64-glibc", "aarch64-musl")
KIT_NAME = "heapwright-kit"  # of the folder in the kit's archive
PACKED = "platforms.tar.xz"  # in `_native` of a wheel; a hard link there names a file of `_native`
INSIDE = "/opt/heapwright"  # where images and containers have the files of their platform


def host_platform() -> str:
    """Return this machine's platform, such as 'x86_64-glibc'."""
    try:
        glibc = bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (ValueError, OSError):
        glibc = False
    return f"{platform.machine()}-{'glibc' if glibc else 'musl'}"


def find_platform(name: str) -> Path | None:
    """Return the folder of a platform's native files; None if they were not built.

    $HEAPWRIGHT_PLATFORMS names another folder of platforms; it is searched first.
    """
    named = os.environ.get("HEAPWRIGHT_PLATFORMS")
    checkout = Path(__file__).parents[2], Path(sys.prefix).parent  # sources run in place; .venv in the checkout
    places = [Path(named)] if named else []
    places += [folder / "build" / "platforms" for folder in checkout]
    for folder in places:
        if (folder / name / "heapwright-meter").is_file():
            return folder / name
    if name == host_platform():
        return NATIVE
    unpacked = _unpack()
    return unpacked / name if unpacked is not None and (unpacked / name).is_dir() else None


def _unpack() -> Path | None:
    """Return the folder of the wheel's other platforms, unpacked into the user's cache; None if there is no archive.

    Raises:
        HeapwrightError: the archive cannot be unpacked.
    """
    archive = NATIVE / PACKED
    if not archive.is_file():
        return None
    digest = sha256_if_readable(archive)
    if not digest:
        raise HeapwrightError(f"{archive} cannot be read", "make it readable, or install heapwright again")
    cache = user_cache()
    if cache is None:
        raise HeapwrightError("this user has no home directory to unpack files to", "name a folder in XDG_CACHE_HOME")
    cache /= "platforms"
    folder = cache / digest[:16]
    if folder.is_dir():
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=cache, ignore_cleanup_errors=True) as scratch:
            draft = Path(scratch) / "draft"
            _extract(archive, draft)
            try:
                draft.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another process was first
                    raise
    except (OSError, EOFError, tarfile.TarError, lzma.LZMAError) as error:
        said = getattr(error, "strerror", None) or error
        hint = "name a folder with room in XDG_CACHE_HOME"
        raise HeapwrightError(f"cannot unpack {archive} into {cache}: {said}", hint) from None
    return folder


def _extract(archive: Path, folder: Path) -> None:
    """Unpack the files of an archive of ours. A hard link becomes a copy of the file of `_native` that it names."""
    with tarfile.open(archive) as entries:
        for entry in entries:
            path = folder / entry.name
            if not path.resolve().is_relative_to(folder.resolve()):
                raise tarfile.TarError(f"{entry.name} is outside of the folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            if entry.islnk():
                shutil.copyfile(NATIVE / entry.linkname, path)
            elif (content := entries.extractfile(entry)) is not None:
                path.write_bytes(content.read())
            path.chmod(entry.mode)


def need_platform(name: str) -> Path:
    """Return the folder of a platform's native files.

    Raises:
        HeapwrightError: they were not built.
    """
    found = find_platform(name)
    if found is None:
        raise HeapwrightError(f"the platform {name} is not built", "run 'make platforms' in heapwright's sources")
    return found


def kit_path(path: str, name: str | None = None) -> tuple[str, Path] | None:
    """Return where the kit has a library of ours, and the file on this machine; None for other libraries.

    Args:
        path: of the library, here or below `INSIDE`.
        name: the platform that the program runs on; None for the one whose folder has the library, or this machine's.
    """
    library = Path(path)
    if name is None:
        folder_name = library.parent.resolve().parent.name
        name = folder_name if folder_name in PLATFORMS else host_platform()
    folder = find_platform(name)
    if library.parent == Path(INSIDE, "lib") and folder is not None:
        return f"{KIT_NAME}/{name}/lib/{library.name}", folder / "lib" / library.name
    for own in (NATIVE, folder):
        if own is not None and os.path.realpath(library.parent) == os.path.realpath(own / "lib"):
            return f"{KIT_NAME}/{name}/lib/{library.name}", library
    return None


def sha256_if_readable(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal; empty if it cannot be read."""
    try:
        return file_sha256(path)
    except OSError:
        return ""
