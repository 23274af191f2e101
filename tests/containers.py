"""Makes small images for tests that run containers: one with glibc and one with musl, both without Python."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from tests import needs

# Where the usual limits of a container exceed those of this user, or control groups are not as
# podman wants them.
_CONF = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
netns = "host"
[engine]
runtime = "runc"
"""
STUBS = ("libpthread.so.0", "libdl.so.2")  # of glibc; empty since 2.34
SOURCE = """\
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int n, char** words) {
  long sum = 0;
  for (int round = n > 1 ? atoi(words[1]) : 10; round > 0; round--) {
    char* block[1000];
    for (int i = 0; i < 1000; i++) memset(block[i] = malloc(64 + i * 7 % 3000), i, 64);
    for (int i = 0; i < 1000; i++) sum += block[i][3], free(block[i]);
  }
  const char* toy = getenv("TOY");
  printf("%ld %s\\n", sum, toy ? toy : "");
  for (int c; n > 2 && (c = getchar()) != EOF;) putchar(c);
  return n > 3 ? atoi(words[3]) : 0;
}
"""


def use_podman(folder: Path) -> None:
    """Sets the environment so that podman can run containers here; skips if it cannot."""
    needs.command("podman")
    needs.command("busybox")
    for conf in ("", _CONF):
        os.environ.pop("CONTAINERS_CONF", None)
        if conf:
            (folder / "containers.conf").write_text(conf)
            os.environ["CONTAINERS_CONF"] = str(folder / "containers.conf")
        if (
            make_image("heapwright-test-shell", {})
            and not subprocess.run(
                ["podman", "run", "--rm", "heapwright-test-shell", "/bin/busybox", "true"],
                capture_output=True,
                timeout=60,
            ).returncode
        ):
            return
    os.environ.pop("CONTAINERS_CONF", None)
    needs.machine_cannot("run containers")


def make_image(name: str, files: dict[str, Path]) -> bool:
    """Makes an image of busybox and these files, by path in the image; returns whether podman could."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        busybox = shutil.which("busybox")
        assert busybox is not None
        for path, file in {"bin/busybox": Path(busybox), **files}.items():
            archive.add(file.resolve(), path)
        for folder in ("tmp", "run", "opt"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777
            archive.addfile(entry)
        link = tarfile.TarInfo("bin/sh")
        link.type, link.linkname = tarfile.SYMTYPE, "busybox"
        archive.addfile(link)
    done = subprocess.run(["podman", "import", "-", name], input=data.getvalue(), capture_output=True, timeout=60)
    return done.returncode == 0


def make_glibc_image(name: str, folder: Path, source: str = SOURCE) -> None:
    """Makes an image with the program /bin/work, and this machine's glibc, its empty parts included."""
    (folder / "work.c").write_text(source)
    subprocess.run([needs.command("gcc"), "-O2", folder / "work.c", "-o", folder / "work"], check=True)
    said = subprocess.run(["ldd", folder / "work"], capture_output=True, text=True, check=True).stdout
    libraries = {path.lstrip("/"): Path(path) for path in re.findall(r"(/\S+) \(0x", said)}
    libc = next(path for path in libraries.values() if path.name == "libc.so.6")
    libraries |= {str(libc.with_name(part)).lstrip("/"): libc.with_name(part) for part in STUBS}
    assert make_image(name, {"bin/work": folder / "work", **libraries})


def make_musl_image(name: str, folder: Path) -> None:
    """Makes an image with the program /bin/work, and this machine's musl."""
    (folder / "work.c").write_text(SOURCE)
    subprocess.run([needs.command("musl-gcc"), "-O2", folder / "work.c", "-o", folder / "musl-work"], check=True)
    loader = next(Path("/lib").glob("ld-musl-*.so.1"))
    assert make_image(name, {"bin/work": folder / "musl-work", str(loader).lstrip("/"): loader})
