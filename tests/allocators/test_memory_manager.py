"""Who manages a program's memory where malloc does not, or where no allocator can be put in its place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from heapwright.allocators.memory_manager import find_memory_manager
from tests import needs
from tests.embedded import build_prefixed_jemalloc

BARE = ("-nostdlib", "-static")


def test_ordinary_programs_are_not_managed(program: Callable[..., Path]) -> None:
    for name in (str(program("mapping_calls")), "sh", "perl", "no-such-program", ""):
        assert find_memory_manager(name) is None, name


def test_a_go_program_is_managed_by_its_runtime(program: Callable[..., Path]) -> None:
    found = find_memory_manager(str(program("exit_only", *BARE, "-DGO")))
    assert found is not None
    assert (found.runtime, found.reach) == ("go", "none")
    assert "GOGC" in found.sentence
    assert "GOMEMLIMIT" in found.sentence


@pytest.mark.parametrize(
    ("command", "runtime", "setting"), [("java", "openjdk", "-Xmx"), ("node", "node", "NODE_OPTIONS")]
)
def test_runtimes_whose_native_part_has_malloc(command: str, runtime: str, setting: str) -> None:
    found = find_memory_manager(needs.command(command))
    assert found is not None
    assert (found.runtime, found.reach) == (runtime, "all")
    assert setting in found.sentence


def test_static_programs_are_managed(program: Callable[..., Path]) -> None:
    found = find_memory_manager(str(program("mapping_calls", "-static")))
    assert found is not None
    assert (found.runtime, found.reach) == ("", "glibc")
    found = find_memory_manager(str(program("exit_only", *BARE)))
    assert found is not None
    assert (found.runtime, found.reach) == ("", "none")


def test_no_setting_reaches_a_program_with_the_rights_of_another_user(
    program: Callable[..., Path], tmp_path: Path
) -> None:
    needs.root("a program of another user")
    privileged = tmp_path / "prog"
    shutil.copy(program("mapping_calls"), privileged)
    os.chown(privileged, 65534, -1)
    privileged.chmod(0o4755)
    found = find_memory_manager(str(privileged))
    assert found is not None
    assert (found.runtime, found.reach) == ("", "none")
    assert found.sentence.startswith("prog runs set-user-ID, so its loader and its malloc ignore the environment")


def test_an_allocator_linked_in(tmp_path: Path) -> None:
    found = find_memory_manager(str(build_prefixed_jemalloc(tmp_path)))
    assert found is not None
    assert (found.runtime, found.reach) == ("", "embedded")
    assert found.sentence.startswith("jemalloc 5.")
