"""Links C++ programs whose C++ runtime is static: operator new must throw when there is no memory."""

from __future__ import annotations

import pytest

from tests import needs

from .conftest import Heapwright
from .test_link import run, works_with

# It uses nothing else of the C++ library, so a static one gives nothing that throws by itself.
FULL = """#include <cstdio>
#include <new>
int main() {
  try { char* p = new char[1ul << 62]; std::printf("%p\\n", (void*)p); }
  catch (const std::bad_alloc&) { std::puts("caught"); }
}
"""


@pytest.mark.parametrize("options", [(), ("-static-pie",), ("-static",), ("-static-libstdc++",)], ids=" ".join)
@pytest.mark.few(2)
def test_new_without_memory_throws(heapwright: Heapwright, options: tuple[str, ...]) -> None:
    (heapwright.folder / "full.cpp").write_text(FULL)
    done = heapwright("link", "--allocator", "exgen", "--", "g++", *options, "full.cpp", "-o", "full")
    assert done.status == 0, done.err
    works_with(heapwright, "full", "exgen")
    assert run(heapwright.folder, "./full").stdout == "caught\n"


@pytest.mark.parametrize("option", ["-static-libstdc++", "-static"])
@pytest.mark.few(1)
def test_cmake_with_a_static_runtime(heapwright: Heapwright, option: str) -> None:
    needs.command("cmake")
    (heapwright.folder / "full.cpp").write_text(FULL)
    (heapwright.folder / "small.c").write_text("#include <stdlib.h>\nint main(void) { free(malloc(9)); return 0; }\n")
    lines = ["cmake_minimum_required(VERSION 3.18)", "project(p C CXX)", "find_package(heapwright REQUIRED)"]
    for name in ("full.cpp", "small.c"):
        target = name.partition(".")[0]
        lines.append(f"add_executable({target} {name})\ntarget_link_options({target} PRIVATE {option})")
        lines.append(f"heapwright_link_malloc({target} ALLOCATOR exgen)")
    (heapwright.folder / "CMakeLists.txt").write_text("\n".join(lines))
    place = heapwright("link", "--print", "cmake-dir").out.strip()
    for words in (["-S", ".", "-B", "b", f"-Dheapwright_ROOT={place}"], ["--build", "b"]):
        made = run(heapwright.folder, "cmake", *words)
        assert made.returncode == 0, made.stdout + made.stderr
    for program in ("b/full", "b/small"):
        works_with(heapwright, program, "exgen")
    assert run(heapwright.folder, "b/full").stdout == "caught\n"
