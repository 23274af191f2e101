"""Tests our allocators under vm.overcommit_memory=2 and in a memory cgroup.

The tests change neither setting on the machine itself. They run user-mode Linux, a kernel that is an ordinary process.
It reads this machine's files, and has memory and settings of its own.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import needs
from tests.allocator.conftest import FLAGS, NAMES, bundled

# The only program of that kernel. Its root file system is read-only; its output goes to the
# console.
INIT = """#!/bin/sh
mount -t proc proc /proc && mount -t sysfs sysfs /sys && mount -t cgroup2 cgroup /sys/fs/cgroup || exit
echo +memory >/sys/fs/cgroup/cgroup.subtree_control && mkdir /sys/fs/cgroup/small || exit
{settings}
for library in {libraries}; do
  sh -c '{before}; exec env LD_PRELOAD="$0" "$@"' "$library" {command}
  echo "status $?"
done
echo o >/proc/sysrq-trigger
sleep 60
"""
SMALL = 64  # MiB

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def linux() -> str:
    """The user-mode Linux command."""
    return needs.command("linux.uml")


def run(linux: str, folder: Path, command: str, settings: str, before: str = ":", libraries: str = "") -> str:
    """Runs a command in its own kernel once with each library preloaded.

    Args:
        linux: the user-mode Linux command.
        folder: a folder for the script and the kernel's own files.
        command: the shell words of the command.
        settings: shell lines that set up the kernel first.
        before: a shell command that runs in the process before the command.
        libraries: paths of the libraries; by default, all of our allocators.

    Returns:
        The console output.
    """
    libraries = libraries or " ".join(str(bundled(name)) for name in NAMES)
    init = folder / "init.sh"
    init.write_text(INIT.format(libraries=libraries, command=command, settings=settings, before=before))
    init.chmod(0o755)
    words = [linux, "mem=256M", "rootfstype=hostfs", "ro", "quiet", "con=null", "con0=null,fd:1", f"init={init}"]
    env = {"PATH": os.environ["PATH"], "HOME": str(folder)}  # the kernel keeps a folder with its process id there
    pipe = subprocess.PIPE
    kernel = subprocess.Popen(
        words, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True
    )
    try:
        said = kernel.communicate(timeout=120)[0].decode(errors="replace")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(kernel.pid, signal.SIGKILL)  # ends its helpers too if it hangs
    if "status" not in said:
        needs.machine_cannot(f"run user-mode Linux: {said[-300:]}")
    return said


@pytest.fixture(scope="module")
def threads(program: Callable[..., Path]) -> Path:
    """A program that allocates and frees blocks of many sizes."""
    return program("allocator_threads", *FLAGS)


def test_malloc_fails_and_recovers_without_overcommit(linux: str, threads: Path, tmp_path: Path) -> None:
    """The kernel counts writable memory when it is mapped, and refuses it: malloc fails, and works afterwards."""
    settings = f"""
taken=$(sed -n 's/Committed_AS: *//p' /proc/meminfo)
echo $((${{taken% kB}} + {SMALL} * 1024)) >/proc/sys/vm/overcommit_kbytes
echo 2 >/proc/sys/vm/overcommit_memory
"""
    said = run(linux, tmp_path, f"{threads} limit starve", settings)
    assert re.findall(r"status (\d+)", said) == ["0"] * len(NAMES), said


def test_freed_memory_is_reused_within_the_limit_of_a_cgroup(linux: str, threads: Path, tmp_path: Path) -> None:
    """The kernel kills a process above the limit, so free memory must be reused: each size in turn takes half of it."""
    settings = f"echo {SMALL}M >/sys/fs/cgroup/small/memory.max"
    before = "echo $$ >/sys/fs/cgroup/small/cgroup.procs"
    said = run(linux, tmp_path, f"{threads} limit take 32", settings, before)
    assert re.findall(r"status (\d+)", said) == ["0"] * len(NAMES), said
    # The limit is in force: the kernel kills a program that takes more. Only glibc's malloc is
    # tested, because that kernel can also repeat a page fault forever when it has no memory, and
    # does so with some of our libraries.
    said = run(linux, tmp_path, f"{threads} limit take 80", settings, before, libraries="''")
    assert re.findall(r"status (\d+)", said) == ["137"], said
