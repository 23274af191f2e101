"""Runs the meter in a container: finds podman or docker, looks into an image, and builds the command line.

The folder of native files of the image's platform is mounted read-only at /opt/heapwright, so nothing is installed in
the image. The meter is the container's first process; it writes its report into a folder that is mounted too. Settings
travel as environment variables.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform as machine
import re
import shlex
import shutil
import subprocess
import tarfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from heapwright.errors import HeapwrightError, UsageError
from heapwright.files import scratch_folder, user_cache, write_whole
from heapwright.measure.process_group import describe_exit_status
from heapwright.platforms import INSIDE, find_platform, need_platform

REPORTS = "/run/heapwright"  # where the container has the folder for the meter's report
_RUNTIMES = ("podman", "docker")
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
_LOADERS = {
    "musl": re.compile(r"(usr/)?lib/ld-musl-[\w]+\.so\.1"),
    "glibc": re.compile(r"(usr/)?lib\d*/(.*/)?ld-linux-.+"),
}
_LIBC = re.compile(r"(^|/)lib(64)?/(.*/)?libc(\.so\.6|-2\.\d+\.so)$")
_LIBRARY = re.compile(r"(^|/)lib(64)?/(.*/)?(lib[\w+.-]+\.so[\d.]*)$")
_SHARED = ("HEAPWRIGHT_RECORD", "LD_DEBUG_OUTPUT")  # variables that name a folder of this machine to write into
_WAIT_S = 120


@dataclass(frozen=True)
class ContainerImage:
    """An image, as far as measuring in it needs.

    Attributes:
        name: as the user gives it.
        id: of the image that the runtime starts; the name may get another image meanwhile.
        digest: 'sha256:…', of its manifest, or of its configuration if it has none.
        platform: such as 'x86_64-musl'.
        env: its own environment.
        libraries: file name of a shared library → path in the image, without those of the C library.
        libc_version: of glibc, as '2.36'; empty if it is unknown.
        user: its user if that is not root; else empty.
    """

    name: str
    id: str
    digest: str
    platform: str
    env: dict[str, str] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)
    libc_version: str = ""
    user: str = ""


@dataclass(frozen=True)
class Container:
    """Where a command runs: an image, and how its containers are made.

    Attributes:
        runtime: path of podman or docker.
        image: the image.
        args: further arguments of `run`, such as --network host.
        native: the folder that is mounted at /opt/heapwright.
        name: of the container; empty for a new name at each run.
        server: whether it runs a server, which signals from outside end.
    """

    runtime: str
    image: ContainerImage
    args: tuple[str, ...]
    native: Path
    name: str = ""
    server: bool = False

    def run_words(
        self, words: Sequence[str], env: Mapping[str, str], reports: Path, name: str, stdin: bool = False
    ) -> list[str]:
        """Return the command line that runs words in a new container.

        Args:
            words: the program in the container and its arguments.
            env: variables besides those of the image.
            reports: the folder that the container has at `REPORTS`.
            name: of the container.
            stdin: whether standard input is passed on.
        """
        mounts = [f"{os.path.realpath(self.native)}:{INSIDE}:ro", f"{reports}:{REPORTS}"]
        shared = {
            str(Path(env[key]) if key == "HEAPWRIGHT_RECORD" else Path(env[key]).parent)
            for key in _SHARED
            if key in env
        }
        mounts += [f"{folder}:{folder}" for folder in sorted(shared)]
        for folder in shared if self.image.user else ():
            Path(folder).chmod(0o777)
        changed = {key: value for key, value in env.items() if self.image.env.get(key) != value}
        return [
            self.runtime, "run", "--rm", "--name", name, *(["--interactive"] if stdin else []),
            *(word for mount in mounts for word in ("--volume", mount)),
            *(word for key, value in changed.items() for word in ("--env", f"{key}={value}")),
            *self.args, "--entrypoint", words[0], self.image.id, *words[1:],
        ]  # fmt: skip

    def ask(self, words: Sequence[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run words in a new container, not measured, and return the answer.

        Args:
            words: a program of the image by its absolute path, and its arguments.
            env: variables besides those of the image.
        """
        with scratch_folder() as folder:
            return _ask(*self.run_words(words, env, folder, new_name()))

    def signal(self, name: str) -> None:
        """Send a signal to the first process of the container `self.name`, which passes it on; 'KILL' removes it."""
        words = ["rm", "--force"] if name == "KILL" else ["kill", "--signal", name]
        with contextlib.suppress(HeapwrightError):  # the container may have ended
            _ask(self.runtime, *words, self.name)

    def pid(self) -> int:
        """Return the process id of the container's first process on this machine; 0 if it does not run here."""
        done = _ask(self.runtime, "inspect", "--format", "{{.State.Pid}}", self.name)
        text = done.stdout.strip()
        return int(text) if text.isdecimal() else 0

    def facts(self) -> dict[str, str]:
        """Return facts about the container for reports."""
        image = self.image
        libc = f"{image.platform.rpartition('-')[2]} {image.libc_version}".strip()
        return {
            "image": image.name,
            "image_digest": image.digest,
            "image_platform": image.platform,
            "image_libc": libc,
            "container_runtime": Path(self.runtime).name,
        }


def new_name() -> str:
    """Return a name for a container that no other has."""
    return f"heapwright-{uuid.uuid4().hex[:12]}"


def open_container(name: str, args: str = "") -> Container:
    """Find the runtime and the image, and look into the image.

    Args:
        name: of the image.
        args: further arguments of `run`, as a shell would divide them.

    Raises:
        HeapwrightError: there is no runtime, no such image, or its platform cannot run here or is not built.
        UsageError: `args` cannot be divided.
    """
    try:
        words = tuple(shlex.split(args))
    except ValueError as error:
        raise UsageError(f"--container-args '{args}': {error}") from None
    runtime = find_runtime()
    image = look_into(runtime, name)
    return Container(runtime, image, words, _native(image.platform))


def _native(platform: str) -> Path:
    """Return the folder to mount. The meter is static, so that of another C library does, without its libraries."""
    other = platform.partition("-")[0] + ("-glibc" if platform.endswith("musl") else "-musl")
    return find_platform(platform) or find_platform(other) or need_platform(platform)


@cache
def find_runtime() -> str:
    """Return the path of podman or docker, whichever works.

    Raises:
        HeapwrightError: neither does.
    """
    found = [path for name in _RUNTIMES if (path := shutil.which(name))]
    why = ""
    for path in found:
        done = _ask(path, "info")
        if done.returncode == 0:
            return path
        why = why or f"{Path(path).name} does not work: {_last_line(done.stderr)}"
    if why:
        raise HeapwrightError(why, "start its daemon, or install podman")
    raise HeapwrightError("there is no container runtime", "install podman or docker")


def image_digest(name: str) -> str:
    """Return the digest of an image as it is now; empty if it is unknown."""
    try:
        return _digest(_inspect(find_runtime(), name))
    except HeapwrightError:
        return ""


def look_into(runtime: str, name: str) -> ContainerImage:
    """Return the description of an image. It makes a container of it, which is not started.

    Raises:
        HeapwrightError: there is no such image, or it is of another machine.
    """
    found = _inspect(runtime, name)
    architecture = str(found.get("Architecture", ""))
    architecture = _ARCHITECTURES.get(architecture, architecture)
    if architecture != machine.machine() or found.get("Os", "linux") != "linux":
        raise HeapwrightError(
            f"the image {name} is for {found.get('Os')}/{architecture}, this machine is linux/{machine.machine()}",
            "name an image of this machine's platform",
        )
    config = found.get("Config") or {}
    env = dict(text.split("=", 1) for text in config.get("Env") or () if "=" in text)
    identifier = str(found["Id"])
    loaders, libraries, version = _cached_files(runtime, identifier)
    libc = "musl" if "musl" in loaders and "glibc" not in loaders else "glibc"
    return ContainerImage(
        name,
        identifier,
        _digest(found),
        f"{architecture}-{libc}",
        env,
        libraries,
        version,
        str(config.get("User") or ""),
    )


def _inspect(runtime: str, name: str) -> dict[str, Any]:
    done = _ask(runtime, "image", "inspect", name)
    if done.returncode:
        pull = f"{Path(runtime).name} pull {name}"
        raise HeapwrightError(f"there is no image {name} on this machine", f"'{pull}' gets it, if it exists")
    found: dict[str, Any] = json.loads(done.stdout)[0]
    return found


def _digest(found: Mapping[str, Any]) -> str:
    """Return the digest of a manifest; the id of an image that was never in a registry has the same role in docker."""
    digests = [str(text).rpartition("@")[2] for text in found.get("RepoDigests") or ()]
    return str(found.get("Digest") or next(iter(digests), "") or found["Id"])


def _cached_files(runtime: str, identifier: str) -> tuple[list[str], dict[str, str], str]:
    """Return the answer of `_files`, which reads the whole image, from a file of an earlier call if there is one."""
    cache = user_cache()
    if cache is None:
        return _files(runtime, identifier)
    cache_file = cache / "images" / f"{re.sub(r'[^0-9a-z]', '-', identifier)}.json"
    with contextlib.suppress(OSError, ValueError, TypeError):
        loaders, libraries, version = json.loads(cache_file.read_text(encoding="utf-8"))
        return list(loaders), dict(libraries), str(version)
    found = _files(runtime, identifier)
    with contextlib.suppress(OSError):
        cache_file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(cache_file, json.dumps(found))
    return found


def _files(runtime: str, identifier: str) -> tuple[list[str], dict[str, str], str]:
    """Return the C libraries whose loaders an image has, its shared libraries by name, and the version of glibc."""
    made = _ask(runtime, "create", identifier, "/none")
    if made.returncode:
        raise HeapwrightError(f"no container can be made: {_last_line(made.stderr)}")
    number = made.stdout.split()[-1]
    loaders: set[str] = set()
    libraries: dict[str, str] = {}
    version, unreadable = "", f"the files of the image {identifier} cannot be read"
    try:
        with subprocess.Popen([runtime, "export", number], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as export:
            assert export.stdout is not None
            with tarfile.open(fileobj=export.stdout, mode="r|") as archive:
                for entry in archive:
                    path = entry.name.lstrip("./")
                    loaders |= {libc for libc, pattern in _LOADERS.items() if pattern.fullmatch(path)}
                    if _LIBC.search(path):
                        libraries.setdefault("libc.so.6", f"/{path}")
                    if _LIBC.search(path) and entry.isreg() and (content := archive.extractfile(entry)) is not None:
                        said = re.search(rb"release version (\d+\.\d+)", content.read())
                        version = said[1].decode() if said else version
                    elif (library := _LIBRARY.search(path)) and (entry.isreg() or entry.issym()):
                        libraries.setdefault(library[4], f"/{path}")
            while export.stdout.read(1 << 20):  # padding after the archive's end
                pass
        if code := export.returncode:
            raise HeapwrightError(f"{unreadable}: {describe_exit_status(code if code > 0 else 128 - code)}")
    except tarfile.TarError as error:
        raise HeapwrightError(f"{unreadable}: {error}") from None
    finally:
        _ask(runtime, "rm", "--force", number)
    return sorted(loaders), libraries, version


def _ask(runtime: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the runtime and return its answer.

    Raises:
        HeapwrightError: it does not start or does not answer.
    """
    try:
        return subprocess.run(
            [runtime, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            check=False, timeout=_WAIT_S,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise HeapwrightError(f"{Path(runtime).name} does not work: {error}") from None


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].removeprefix("Error: ") if lines else "it printed no error message"
