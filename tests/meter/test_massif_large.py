"""Compares --massif-compat with Massif itself on programs with more heap than the 8 MiB of brk under Valgrind.

There glibc goes on in mappings, and the peak depends on where these are (native/meter/valgrind_layout.h).
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from heapwright.measure.meter import MeterOptions, run_metered
from heapwright.measure.valgrind import massif_peak
from tests import needs

MIB = 1 << 20
long = pytest.mark.long

SQL = (
    "create table t(a integer, b text);"
    "with recursive c(x) as (select 1 union all select x+1 from c where x<200000)"
    " insert into t select x, hex(x*7) from c;"
    "create index i on t(b); select count(*) from t a join t b on a.b=b.b where a.a<50000;"
)


class Case(NamedTuple):
    words: str  # of a shell; HEAP is tests/programs/massif_heap.c
    above: int  # MiB that the peak exceeds
    settings: str = ""

    def __str__(self) -> str:
        return " ".join(self.words.split()[:3]) + (f" {self.settings}" if self.settings else "")


SHORT = [
    Case("HEAP blocks 40000 0", 16),
    Case("HEAP blocks 40000 200", 24, "MALLOC_MMAP_THRESHOLD_=16384"),
    Case("HEAP realloc 64", 64),
    Case("HEAP arenas 3", 64),
]
LONG = [
    Case("HEAP blocks 40000 3000", 256),
    Case("HEAP blocks 40000 3000", 256, "MALLOC_MMAP_THRESHOLD_=4096"),
    Case("HEAP blocks 40000 3000", 256, "MALLOC_MMAP_THRESHOLD_=33554432"),
    Case("HEAP blocks 40000 3000", 256, "MALLOC_TOP_PAD_=4194304"),
    Case("HEAP blocks 200000 0", 64),
    Case("HEAP blocks 2000 8000", 800, "MALLOC_TOP_PAD_=16777216"),
    Case("HEAP realloc 300", 300),
    Case("HEAP realloc 300", 300, "MALLOC_MMAP_THRESHOLD_=33554432"),
    Case("HEAP realloc 300", 1024, "MALLOC_MMAP_MAX_=0"),
    Case("HEAP realloc 300", 300, "MALLOC_TOP_PAD_=4194304"),
    Case("HEAP waves 40", 40),
    Case("HEAP waves 200", 150, "MALLOC_TRIM_THRESHOLD_=1000000000"),
    Case("HEAP arenas 6", 128),
    Case("HEAP arenas 6", 100, "MALLOC_ARENA_MAX=2"),
    Case("/usr/bin/python3 -I -c 'x = {i: str(i) * 3 for i in range(300000)}'", 48),
    Case(f"sqlite3 :memory: {shlex.quote(SQL)}", 20),
    Case(f"sqlite3 :memory: {shlex.quote(SQL)}", 20, "MALLOC_MMAP_THRESHOLD_=33554432"),
    Case("z3 -version", 16),
    Case("sort --buffer-size=100M --parallel=1 /usr/bin/git -o /dev/null", 8),
    Case("jq -n '[range(100000)] | length'", 8),
    Case("xz -k -c -3 /usr/bin/env", 24),
    Case("ruby --disable-gems -e 'p((1..300000).map { |i| (i * 7).to_s * 3 }.size)'", 64),
]


def command_of(case: Case, heap: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command of a case and its whole environment; heap is the built massif_heap.c."""
    env = {"PATH": os.environ["PATH"], "HASH_SEED": "0", "PYTHONHASHSEED": "0"}
    settings = [case.settings.split("=")] if case.settings else []
    return shlex.split(case.words.replace("HEAP", str(heap))), env | dict(settings)


def both_peaks(command: list[str], env: Mapping[str, str], tmp_path: Path) -> tuple[int, int]:
    """Return the peak that Massif reports and the one that the meter computes."""
    run = run_metered(command, MeterOptions(massif=True), env=env, cwd=tmp_path)
    ours, true = run.metrics["massif_peak_bytes"], massif_peak(command, env=env, cwd=tmp_path)
    assert run.exit_code == 0
    assert ours is not None
    assert true is not None
    assert not [text for text in run.warnings if "Valgrind" in text]
    return int(true), int(ours)


@pytest.mark.parametrize("case", [*SHORT, *(pytest.param(case, marks=long) for case in LONG)], ids=str)
def test_massif_peak_equals_that_of_massif_on_large_programs(
    case: Case, program: Callable[..., Path], tmp_path: Path
) -> None:
    needs.command("valgrind")
    words, env = command_of(case, program("massif_heap"))
    if shutil.which(words[0]) is None:
        needs.command(words[0])
    true, ours = both_peaks(words, env, tmp_path)
    assert true > case.above * MIB
    assert true == ours


def test_the_kernels_own_layout_differs(program: Callable[..., Path], tmp_path: Path) -> None:
    command = [str(program("massif_heap")), "blocks", "40000", "200"]
    env = {"PATH": os.environ["PATH"], "MALLOC_MMAP_THRESHOLD_": "16384"}
    peaks: dict[str, Any] = {}
    for by in ("emulation", "kernel", "valgrind"):
        if by == "valgrind":
            needs.command("valgrind")
        run = run_metered(command, MeterOptions(massif=True, massif_by=by), env=env, cwd=tmp_path)
        peaks[by] = run.metrics["massif_peak_bytes"]
    assert peaks["emulation"] == peaks["valgrind"] != peaks["kernel"]


def test_a_program_keeps_the_registers_of_a_changed_call(tmp_path: Path) -> None:
    source = tmp_path / "registers.c"
    source.write_text(
        "#include <sys/syscall.h>\n#include <unistd.h>\n"
        "int main(void) {\n"
        "  long number = SYS_mmap, first = 0, length = 1 << 20, result;\n"
        '  register long flags __asm__("r10") = 0x22, file __asm__("r8") = -1, at __asm__("r9") = 0;\n'
        '  __asm__ volatile("syscall" : "=a"(result), "+D"(first) : "a"(number), "S"(length), "d"(3L),\n'
        '                   "r"(flags), "r"(file), "r"(at) : "rcx", "r11", "memory");\n'
        "  return result > 0 && first == 0 ? 0 : 1;\n}\n"
    )
    if os.uname().machine != "x86_64":
        needs.machine_cannot("run x86-64 code")
    binary = tmp_path / "registers"
    compiler = needs.command("gcc")
    assert os.spawnl(os.P_WAIT, compiler, compiler, "-O1", "-o", str(binary), str(source)) == 0
    assert run_metered([str(binary)], MeterOptions(massif=True)).exit_code == 0
