"""Tests links of programs that define operator new themselves, and the message about a link that fails."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from heapwright.allocators.registry import library_folder
from heapwright.link import choose
from heapwright.link.choose import LinkRequest
from heapwright.link.step import _cause

from .conftest import Build, run

ONE = """
#include <cstdio>
#include <cstdlib>
#include <new>
static int calls;
void* operator new(std::size_t n) { ++calls; if (void* p = std::malloc(n)) return p; throw std::bad_alloc(); }
void operator delete(void* p) noexcept { std::free(p); }
int main() {
  int* one = new int(1); int* several = new int[9]; int* nothrow = new (std::nothrow) int(3);
  delete one; delete[] several; ::operator delete(nothrow, sizeof(int));
  std::printf("%d", calls);
}
"""
ARRAY = """
#include <cstdio>
#include <cstdlib>
#include <new>
static int calls;
void* operator new[](std::size_t n) { ++calls; if (void* p = std::malloc(n)) return p; throw std::bad_alloc(); }
void operator delete[](void* p) noexcept { std::free(p); }
int main() {
  int* one = new int(1); int* several = new int[9]; int* nothrow = new (std::nothrow) int[3];
  delete one; delete[] several; ::operator delete[](nothrow, 3 * sizeof(int));
  std::printf("%d", calls);
}
"""


@pytest.mark.parametrize("options", [(), ("-static",), ("-static-libstdc++",)], ids=" ".join)
@pytest.mark.parametrize(("source", "calls"), [(ONE, "3"), (ARRAY, "2")], ids=["new", "new[]"])
@pytest.mark.parametrize("name", ["exgen", "reaper", "exgen-secure"])
def test_a_program_may_define_operators_of_its_own(
    name: str, source: str, calls: str, options: tuple[str, ...], compile_: Build, tmp_path: Path
) -> None:
    """Regression: the archive's operators were strong definitions, so the linker refused two of each."""
    program = tmp_path / "program"
    archive = library_folder() / f"lib{name}.a"
    run("g++", *options, "-Wl,-u,malloc", archive, compile_("program.cpp", source), "-o", program)
    assert run(program) == calls
    stats = subprocess.run(
        [program], env={"EXGEN_OPTIONS": "stats=1", "REAPER_OPTIONS": "stats=1"}, stderr=-1, check=True
    )
    assert stats.stderr.startswith(name.partition("-")[0].encode())


def test_the_cause_of_a_failed_link_is_not_only_its_place() -> None:
    errors = "/usr/bin/ld: a.o: in function `f':\n a.cpp:(.text+0x0): multiple definition of `f'\nmore\n"
    assert _cause(errors) == "a.cpp:(.text+0x0): multiple definition of `f'"
    assert _cause("ld: odd:\n") == "ld: odd:"
    assert _cause("") == ""


def test_settings_of_a_runtime_are_left_for_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a pick of reaper and a setting of OpenMP lost the latter without a word."""
    from heapwright.interleaving.configuration import Config

    env = {
        "LD_PRELOAD": "/lib/libreaper.so",
        "REAPER_OPTIONS": "front=8",
        "OMP_WAIT_POLICY": "passive",
        "J": "-Xss1m -Xint",
    }
    config = Config(2, "reaper", {"front": "8", "openmp.wait_policy": "passive"}, env)
    monkeypatch.setattr("heapwright.study.load.load_view", lambda _path: None)
    monkeypatch.setattr("heapwright.study.choose.chosen_pick", lambda *_: None)
    monkeypatch.setattr("heapwright.study.choose.config_of", lambda *_: config)
    monkeypatch.setattr("heapwright.study.choose.prediction_caution", lambda *_: "")
    found = choose.from_request(LinkRequest(study="s.study"))
    assert found is not None
    assert (found.allocator, found.options, found.left) == (
        "reaper",
        "front=8",
        "OMP_WAIT_POLICY=passive J='-Xss1m -Xint'",
    )
