"""Whose malloc a program would get, as the dynamic loader tells it: real programs, none of which runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from heapwright.allocators.loader_trace import trace_bindings
from heapwright.allocators.registry import get_allocator
from heapwright.allocators.takeover import providers, takeover_failure
from tests import needs
from tests.conftest import PROGRAMS


@pytest.fixture
def trace(tmp_path: Path) -> Callable[..., list[set[tuple[str, str]]]]:
    """The bindings of a program under an allocator of the registry, or as it is."""
    made: list[Path] = []

    def ask(program: str | Path, allocator: str = "") -> list[set[tuple[str, str]]]:
        made.append(tmp_path / f"bindings-{len(made)}")
        made[-1].mkdir()
        env = get_allocator(allocator).environment(os.environ) if allocator else {}
        return trace_bindings(str(program), {**os.environ, **env}, made[-1])

    return ask


def test_the_program_does_not_run(trace: Callable[..., list[set[tuple[str, str]]]], tmp_path: Path) -> None:
    source, path = tmp_path / "leaves.c", tmp_path / "leaves"
    source.write_text(f"""
        #include <stdio.h>
        #include <stdlib.h>
        __attribute__((constructor)) static void early(void) {{ fclose(fopen("{tmp_path}/ran", "w")); }}
        int main(void) {{ return malloc(1) == 0; }}
        """)
    subprocess.run([needs.command("gcc"), "-o", path, source], check=True)
    assert trace(path)
    assert not (tmp_path / "ran").exists()


def test_a_preloaded_allocator_is_seen_to_take_over(trace: Callable[..., list[set[tuple[str, str]]]]) -> None:
    library = get_allocator("exgen").preload
    assert takeover_failure(library, sys.executable, trace(sys.executable, "exgen")) == ""
    assert takeover_failure(library, sys.executable, trace(sys.executable)) != ""


def test_of_a_script_the_interpreter_is_asked(trace: Callable[..., list[set[tuple[str, str]]]], tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(f"#!{sys.executable}\nraise SystemExit(1)\n")
    script.chmod(0o755)
    assert takeover_failure(get_allocator("reaper").preload, str(script), trace(script, "reaper")) == ""


def test_a_library_that_brings_malloc(
    trace: Callable[..., list[set[tuple[str, str]]]], program: Callable[..., Path], tmp_path: Path
) -> None:
    bump, path = program("bump_malloc", "-shared", "-fPIC"), tmp_path / "linked"
    subprocess.run(
        [needs.command("gcc"), "-o", path, PROGRAMS / "mapping_calls.c", bump, f"-Wl,-rpath,{bump.parent}"], check=True
    )
    (found,) = trace(path)
    assert providers("", found) == {str(bump.resolve())}


def test_the_loader_cannot_tell(
    trace: Callable[..., list[set[tuple[str, str]]]], program: Callable[..., Path], tmp_path: Path
) -> None:
    static = program("mapping_calls", "-static")
    privileged = tmp_path / "privileged"
    privileged.write_bytes(program("mapping_calls").read_bytes())
    privileged.chmod(0o4755)
    no_program = tmp_path / "text"
    no_program.write_text("text\n")
    for path in (static, privileged, no_program, tmp_path / "missing"):
        assert trace(path) == []
