"""Builds the wheels of x86_64 and aarch64 from build/platforms into dist/, with the kit beside them: `make wheels`.

    .venv/bin/python tools/wheels.py [--output FOLDER] [ARCH…]

A wheel holds the native files for glibc 2.17 (manylinux2014) as `_native`, and in them an archive with what the kit
needs of the other three platforms (`heapwright.platforms`). auditwheel must find the wheel clean. The allocator
benchmarks are not in a wheel: they need the C++ library and OpenMP of the machine. The kit of all four platforms
for machines without Python lies beside the wheels.

The same commit and the same native files give the same bytes: times are those of the commit ($SOURCE_DATE_EPOCH).
auditwheel and wheel come from PyPI into an environment of their own.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import sys
import tarfile
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

from heapwright.errors import HeapwrightError
from heapwright.kit.pack import platform_files, write_kit
from heapwright.platforms import PACKED, PLATFORMS

sys.path.insert(0, str(Path(__file__).resolve().parent))
from calling import ROOT, ToolError, call

BUILT = ROOT / "build/platforms"
WORK = ROOT / "build/wheels"
TOOLS = ROOT / "build/wheel-tools"
PINNED = ("auditwheel==6.8.2", "wheel==0.48.0")
ARCHES = ("x86_64", "aarch64")
POLICY = "manylinux_2_17"
LIMIT = 8_000_000  # bytes of a wheel
_SOURCES = ("pyproject.toml", "CMakeLists.txt", "README.md", "LICENSE", "native/link", "src")


def tool(name: str) -> Path:
    """Returns the path of auditwheel or wheel, which are installed at first use."""
    mark = TOOLS / f".{'-'.join(PINNED)}"
    if not mark.exists():
        venv.create(TOOLS, with_pip=True, clear=True)
        call(TOOLS / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PINNED)
        mark.touch()
    return TOOLS / "bin" / name


def copy_sources(target: Path) -> None:
    """Copies what the wheel is made of, without native files and with modes that no umask changes."""
    for name in _SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("_native", "__pycache__"))
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target / name)
    set_modes(target)


def set_modes(folder: Path) -> None:
    """Gives each file mode 755 or 644, and each folder 755."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def pack(platforms: Sequence[str], native: Path, epoch: int) -> bytes:
    """Returns the archive of other platforms, compressed by xz.

    Args:
        platforms: their names.
        native: the folder of the wheel's own platform; a file that is the same there becomes a hard link.
        epoch: the time of every file, in seconds since 1970.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", preset=9, format=tarfile.USTAR_FORMAT) as archive:
        for platform in platforms:
            for name, (content, executable) in platform_files(BUILT / platform).items():
                entry = tarfile.TarInfo(f"{platform}/{name}")
                entry.mtime, entry.mode = epoch, 0o755 if executable else 0o644
                twin = native / name
                if executable and twin.is_file() and twin.read_bytes() == content:
                    entry.type, entry.linkname = tarfile.LNKTYPE, name
                    archive.addfile(entry)
                else:
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def make_native(arch: str, folder: Path, epoch: int) -> None:
    """Makes the folder `_native` of a wheel: the platform for glibc, and the archive of the others."""
    own = f"{arch}-glibc"
    missing = next((p for p in PLATFORMS if not (BUILT / p / "heapwright-meter").is_file()), None)
    if missing:
        raise ToolError(f"the platform {missing} is not built: run 'make platforms'")
    shutil.copytree(BUILT / own, folder)
    others = [platform for platform in PLATFORMS if platform != own]
    (folder / PACKED).write_bytes(pack(others, folder, epoch))
    set_modes(folder)


def check(wheel: Path, arch: str) -> None:
    """Checks a wheel's size, and by auditwheel that it keeps the promise of its name.

    Raises:
        ToolError: it does not.
    """
    said = re.sub(r"\s+", " ", call(tool("auditwheel"), "show", wheel))
    if f'consistent with the following platform tag: "{POLICY}_{arch}"' not in said:
        raise ToolError(f"{wheel.name} is not clean: {said}")
    size = wheel.stat().st_size
    if size >= LIMIT:
        raise ToolError(f"{wheel.name} has {size:,} bytes; at most {LIMIT:,} are allowed")


def make_wheel(arch: str, output: Path, epoch: int) -> Path:
    """Makes the wheel of an architecture; returns its path.

    Args:
        arch: the architecture.
        output: the folder that gets it.
        epoch: the time of its files, in seconds since 1970.
    """
    work = WORK / arch
    shutil.rmtree(work, ignore_errors=True)
    copy_sources(work / "source")
    make_native(arch, work / "native", epoch)
    tag = f"linux-{arch}"
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "_PYTHON_HOST_PLATFORM": tag}
    settings = {"cmake.define.HEAPWRIGHT_BUILT": work / "native", "wheel.py-api": "py3", "build-dir": work / "build"}
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    options += [f"--config-settings={key}={value}" for key, value in settings.items()]
    call(sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", work / "out", work / "source", env=env)
    (made,) = (work / "out").glob("*.whl")
    tags = f"{POLICY}_{arch}.manylinux2014_{arch}"
    call(tool("wheel"), "tags", "--remove", "--platform-tag", tags, made, env=env)
    (made,) = (work / "out").glob("*.whl")
    check(made, arch)
    output.mkdir(parents=True, exist_ok=True)
    return Path(shutil.move(made, output / made.name))


def main() -> int:
    """Makes the wheels and the kit, and lists them; returns the exit status."""
    parser = argparse.ArgumentParser(description="Builds wheels from build/platforms.")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="the folder that gets them (default: dist)")
    parser.add_argument("arches", nargs="*", metavar="ARCH", help="x86_64 or aarch64 (default: both)")
    args = parser.parse_args()
    unknown = next((arch for arch in args.arches if arch not in ARCHES), None)
    if unknown:
        parser.error(f"unknown architecture '{unknown}'; known: {', '.join(ARCHES)}")
    try:
        epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or call("git", "log", "-1", "--format=%ct"))
        made = [make_wheel(arch, args.output, epoch) for arch in args.arches or ARCHES]
        version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
        made.append(args.output / f"heapwright-kit-{version}.tar.gz")
        os.environ["HEAPWRIGHT_PLATFORMS"] = str(BUILT)
        write_kit(made[-1], PLATFORMS)
    except (ToolError, HeapwrightError, OSError) as error:
        print(f"heapwright: {error}", file=sys.stderr)
        return 1
    for path in made:
        print(f"{path}  {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
