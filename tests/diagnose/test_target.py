"""Which processes a name stands for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from heapwright.diagnose.target import find_target
from heapwright.errors import HeapwrightError, UsageError
from tests import needs
from tests.processes import wait_for

# Of each worker of pytest another one: they share the machine's cgroups.
ID = f"3f{os.getpid():010x}" + 52 * "4"


@contextmanager
def cgroup(name: str) -> Iterator[Path]:
    """Makes a cgroup below the root of the machine's first hierarchy that allows it, and removes it."""
    needs.root("making a cgroup")
    root = Path("/sys/fs/cgroup")
    folders = [root, *(root / kind for kind in ("pids", "freezer", "systemd"))]
    for folder in folders:
        if not (folder / "cgroup.procs").exists():
            continue
        try:
            (folder / name).mkdir()
        except OSError:
            continue
        try:
            yield folder / name
        finally:
            (folder / name).rmdir()
        return
    needs.machine_cannot("make a cgroup")


@contextmanager
def members(group: Path) -> Iterator[list[int]]:
    """Runs two processes in a cgroup."""
    running = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
    try:
        for process in running:
            (group / "cgroup.procs").write_text(str(process.pid))
        yield sorted(process.pid for process in running)
    finally:
        for process in running:
            process.kill()
            process.wait()


def test_heapwright_itself_has_no_name(tmp_path: Path) -> None:
    """It runs Python, and `diagnose python3` means the other process that does."""
    (tmp_path / "heapwright-python").symlink_to(sys.executable)
    script = "from heapwright.diagnose.target import find_target; find_target('heapwright-python')"
    words: list[str | Path] = [tmp_path / "heapwright-python", "-c", script]
    env = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
    assert "no process, container or unit is called 'heapwright-python'" in done.stderr


def test_a_process_id_names_its_process() -> None:
    assert find_target(str(os.getpid())).pids == [os.getpid()]


def test_the_name_of_a_unit_names_its_processes() -> None:
    with cgroup("hw-test-web.service") as group, members(group) as pids:
        for name in ("hw-test-web", "hw-test-web.service"):
            found = find_target(name)
            assert found.pids == pids
            assert found.label == f"unit {name}"


@pytest.mark.parametrize("scope", ["docker-ID.scope", "libpod-ID.scope", "cri-containerd-ID.scope", "ID"])
def test_the_id_of_a_container_names_its_processes(scope: str) -> None:
    with cgroup(scope.replace("ID", ID)) as group, members(group) as pids:
        for name in (ID, ID[:12]):
            found = find_target(name)
            assert found.pids == pids
            assert found.label == f"container {ID[:12]}"


def test_the_name_of_a_container_names_its_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine tells the main process; the others are those of its cgroup."""
    with cgroup(f"docker-{ID}.scope") as group, members(group) as pids:
        engine = tmp_path / "docker"
        engine.write_text(f'#!/bin/sh\nfor last; do :; done\n[ "$last" = hw-test-shop ] && echo {pids[1]}\n')
        engine.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        assert find_target("hw-test-shop").pids == pids


def test_the_path_of_a_program_names_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "hw-test-service"
    shutil.copy("/bin/sleep", program)
    monkeypatch.chdir(tmp_path)
    with subprocess.Popen([program, "600"]) as running:
        try:
            wait_for(lambda: Path(f"/proc/{running.pid}/exe").readlink() == program)
            for name in (str(program), "./hw-test-service"):
                assert find_target(name).pids == [running.pid]
            program.unlink()  # as an update of the program does
            assert find_target(str(program)).pids == [running.pid]
        finally:
            running.kill()


@pytest.mark.parametrize("name", ["", " ", "0::", "1:name=systemd:"])
def test_text_of_cgroup_files_is_not_a_name(name: str) -> None:
    """Every process has such a text in /proc/PID/cgroup: it must not stand for the whole machine."""
    with pytest.raises(UsageError, match="is not the name of a process, container or unit"):
        find_target(name)


@pytest.mark.parametrize("name", ["/", "..", "memory:"])
def test_no_such_cgroup(name: str) -> None:
    with pytest.raises(HeapwrightError, match="no process, container or unit"):
        find_target(name)


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(HeapwrightError, match="no process, container or unit is called 'hw-test-nothing'"):
        find_target("hw-test-nothing")
