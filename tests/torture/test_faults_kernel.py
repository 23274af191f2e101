"""Our allocators under limits of the whole machine, or of a group: vm.overcommit_memory=2, and a memory cgroup.

Neither is set on the machine that the tests run on. User-mode Linux is a kernel that is an ordinary process: it has
this machine's files to read, and memory and settings of its own.
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

# That kernel's first process, and its last. Its files cannot be written to; what it says comes out of the console.
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
    """The kernel."""
    return needs.command("linux.uml")


def run(linux: str, folder: Path, command: str, settings: str, before: str = ":", libraries: str = "") -> str:
    """Runs a command with each of our libraries, or of these, alone in a kernel; what was said."""
    libraries = libraries or " ".join(str(bundled(name)) for name in NAMES)
    init = folder / "init.sh"
    init.write_text(INIT.format(libraries=libraries, command=command, settings=settings, before=before))
    init.chmod(0o755)
    words = [linux, "mem=256M", "rootfstype=hostfs", "ro", "quiet", "con=null", "con0=null,fd:1", f"init={init}"]
    env = {"PATH": os.environ["PATH"], "HOME": str(folder)}  # where it keeps a folder with its number
    pipe = subprocess.PIPE
    kernel = subprocess.Popen(
        words, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True
    )
    try:
        said = kernel.communicate(timeout=120)[0].decode(errors="replace")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(kernel.pid, signal.SIGKILL)  # its helpers too, where it hangs
    if "status" not in said:
        needs.machine_cannot(f"run user-mode Linux: {said[-300:]}")
    return said


@pytest.fixture(scope="module")
def threads(program: Callable[..., Path]) -> Path:
    """A program that takes and frees memory in blocks of many sizes."""
    return program("allocator_threads", *FLAGS)


def test_no_more_than_there_is(linux: str, threads: Path, tmp_path: Path) -> None:
    """What may be written to is counted when it is mapped, and is refused: malloc says so, and works on."""
    settings = f"""
taken=$(sed -n 's/Committed_AS: *//p' /proc/meminfo)
echo $((${{taken% kB}} + {SMALL} * 1024)) >/proc/sys/vm/overcommit_kbytes
echo 2 >/proc/sys/vm/overcommit_memory
"""
    said = run(linux, tmp_path, f"{threads} limit starve", settings)
    assert re.findall(r"status (\d+)", said) == ["0"] * len(NAMES), said


def test_a_group_s_memory(linux: str, threads: Path, tmp_path: Path) -> None:
    """Who goes beyond is killed, so what is free must be had for other sizes: half of it, of each size in turn."""
    settings = f"echo {SMALL}M >/sys/fs/cgroup/small/memory.max"
    before = "echo $$ >/sys/fs/cgroup/small/cgroup.procs"
    said = run(linux, tmp_path, f"{threads} limit take 32", settings, before)
    assert re.findall(r"status (\d+)", said) == ["0"] * len(NAMES), said
    # Such a limit is kept: more than all of it ends by the kernel's hand. By glibc's malloc, once: that kernel can also
    # repeat a page fault for ever where it finds nothing to give, and does with one library or another of ours.
    said = run(linux, tmp_path, f"{threads} limit take 80", settings, before, libraries="''")
    assert re.findall(r"status (\d+)", said) == ["137"], said
