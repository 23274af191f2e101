"""Tests the count of instructions by callgrind, and the peak that Massif reports."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from heapwright.elf.image import Image
from heapwright.errors import HeapwrightError
from heapwright.measure import valgrind
from heapwright.measure.meter import MeterOptions, run_metered
from heapwright.measure.valgrind import count_instructions, massif_peak
from heapwright.study.options import Options
from tests import needs

needs_valgrind = needs.with_command("valgrind")

LOOP = """
#include <stdlib.h>
#include <unistd.h>
#include <sys/wait.h>
int main(int argc, char **argv) {
  long turns = atol(argv[1]);
  if (argc > 2 && fork() == 0) { turns = atol(argv[2]); argc = 0; }
  for (volatile long i = 0; i < turns; ++i) {}
  if (argc > 2) wait(NULL);
  return 0;
}
"""


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Compile a program whose instruction count is proportional to its number of loops."""
    compiler = needs.command("gcc")
    folder = tmp_path_factory.mktemp("loop")
    (folder / "loop.c").write_text(LOOP)
    assert os.spawnl(os.P_WAIT, compiler, compiler, "-O1", "-o", str(folder / "loop"), str(folder / "loop.c")) == 0
    return str(folder / "loop")


def counted(command: list[str]) -> float:
    """Return the number of instructions, which must be known."""
    found = count_instructions(command)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("machine", "interpreter", "bytes_"),
    [
        ("EM_X86_64", "/lib64/ld-linux-x86-64.so.2", 40_960),
        ("EM_X86_64", "", 4096),
        ("EM_AARCH64", "/lib/ld-linux-aarch64.so.1", 36_864),
        ("EM_AARCH64", "", 0),
        ("EM_386", "", 0),
    ],
)
def test_only_programs_of_amd64_have_a_page_below_their_stack(
    machine: str, interpreter: str, bytes_: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = Image("x", "program", machine, 64, interpreter=interpreter)
    monkeypatch.setattr(valgrind, "read_file", lambda _path: image)
    assert valgrind._massifs_own_bytes("true") == bytes_


@needs_valgrind
def test_instructions_grow_with_the_work_and_repeat(loop: str) -> None:
    few, many = counted([loop, "100000"]), counted([loop, "1100000"])
    per_turn = (many - few) / 1_000_000
    assert per_turn == pytest.approx(round(per_turn), abs=0.01)
    assert 2 <= per_turn <= 8
    assert counted([loop, "100000"]) == pytest.approx(few, rel=0.001)


@needs_valgrind
def test_children_count_too(loop: str) -> None:
    alone = counted([loop, "100000"])
    with_child = counted([loop, "100000", "1000000"])
    assert with_child > alone + 2_000_000


@needs_valgrind
def test_directory_environment_and_stdin(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("x\n")
    script = 'read line; [ "$line$A" = xb ] && touch ran'
    found = count_instructions(
        ["/bin/sh", "-c", script], env={**os.environ, "A": "b"}, cwd=tmp_path, stdin=tmp_path / "in"
    )
    assert found is not None
    assert found > 10_000
    assert (tmp_path / "ran").exists()


@needs_valgrind
def test_a_run_that_ends_otherwise_has_no_count() -> None:
    assert count_instructions(["/bin/sh", "-c", "exit 3"]) is None
    assert count_instructions(["/bin/sh", "-c", "exit 3"], status=3) is not None
    assert count_instructions(["/bin/sh", "-c", "kill -TERM $$"], status=0) is None
    assert count_instructions(["/bin/sh", "-c", "kill -TERM $$"], status=128 + 15) is not None


@needs_valgrind
def test_a_program_that_behaves_otherwise_under_callgrind_is_not_counted(
    meter: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEAPWRIGHT_METER", str(meter))
    once = ["/bin/sh", "-c", f"mkdir {tmp_path / 'made'}"]  # the second run fails
    run = run_metered(once, MeterOptions(callgrind=True))
    assert run.exit_code == 0
    assert run.metrics["instructions"] is None
    assert any("callgrind" in warning for warning in run.warnings)


@needs_valgrind
def test_a_command_that_callgrind_cannot_run_is_an_error() -> None:
    with pytest.raises(HeapwrightError, match="callgrind counted nothing for no-such-program"):
        count_instructions(["no-such-program"])


def test_without_valgrind_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HeapwrightError, match="needs valgrind") as caught:
        count_instructions(["/bin/true"])
    assert "apt-get install" in caught.value.hint


@needs_valgrind
def test_the_meter_asks_callgrind_when_told(
    meter: Path, monkeypatch: pytest.MonkeyPatch, program: Callable[..., Path]
) -> None:
    monkeypatch.setenv("HEAPWRIGHT_METER", str(meter))
    run = run_metered([str(program("moody"))], MeterOptions(callgrind=True))
    assert (run.metrics["instructions"] or 0) > 100_000


def test_massif_tells_no_peak_of_a_program_that_ends_otherwise() -> None:
    needs.command("valgrind")
    assert massif_peak(["/bin/sh", "-c", "exit 3"]) is None
    assert (massif_peak(["/bin/sh", "-c", "exit 3"], status=3) or 0) > 1 << 20


def test_massif_follows_an_exec() -> None:
    needs.command("valgrind")
    assert massif_peak(["/usr/bin/env", "X=1", "/bin/true"]) == pytest.approx(massif_peak(["/bin/true"]), abs=8192)


def test_an_old_study_keeps_its_way_of_taking_the_peak() -> None:
    """A study from before the choice has peaks of the kernel's layout, and must not mix them with others."""
    assert msgspec.json.decode(b'{"massif": true}', type=Options).massif_by == "kernel"


@needs_valgrind
def test_a_run_that_takes_too_long_under_valgrind_has_no_figures() -> None:
    assert count_instructions(["sleep", "60"], timeout=0.04) is None
    assert massif_peak(["sleep", "60"], timeout=0.04) is None
