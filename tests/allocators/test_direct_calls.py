"""Tests programs that allocate without malloc: `record` warns of the missing allocations, `tune` does not replay."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from heapwright.allocators.direct_calls import allocates, direct_calls, unrecorded_calls
from tests import needs
from tests.system.conftest import Heapwright

JEMALLOCX = """
    #include <stdlib.h>
    void *mallocx(size_t, int);
    int main(void) { for (int i = 0; i < 10000; i++) free(mallocx(100, 0)); free(malloc(1)); return 0; }
    """


def build(folder: Path, name: str, source: str, *words: str) -> Path:
    """Build a program, or a library if `words` say so."""
    (folder / f"{name}.c").write_text(source)
    subprocess.run(
        [needs.command("gcc"), "-O1", "-fno-builtin", "-o", folder / name, folder / f"{name}.c", *words], check=True
    )
    return folder / name


@pytest.fixture
def jemallocx(tmp_path: Path) -> Path:
    """A program that calls a function of its own of a shared jemalloc."""
    return build(tmp_path, "jemallocx", JEMALLOCX, "-l:libjemalloc.so.2")


def test_a_program_that_calls_other_functions_of_its_malloc(jemallocx: Path) -> None:
    assert unrecorded_calls(str(jemallocx), os.environ) == "it calls mallocx of libjemalloc.so.2"


def test_a_library_that_calls_an_allocator_directly(tmp_path: Path) -> None:
    """A program need not name the allocator that one of its libraries uses."""
    source = "void *scalable_malloc(unsigned long);\nvoid *get(void) { return scalable_malloc(9); }\n"
    library = build(tmp_path, "libpool.so", source, "-shared", "-fPIC", "-l:libtbbmalloc.so.2")
    user = build(tmp_path, "user", "void *get(void);\nint main(void) { return get() == 0; }\n", str(library))
    assert (
        unrecorded_calls(str(user), os.environ) == "its library libpool.so calls scalable_malloc of libtbbmalloc.so.2"
    )


def test_a_library_that_gives_malloc_to_others_is_recorded_at_it(tmp_path: Path) -> None:
    """Oneapi's libtbbmalloc_proxy defines malloc, and calls scalable_malloc in it."""
    program = build(
        tmp_path,
        "proxied",
        "void *malloc(unsigned long);\nint main(void) { return malloc(9) == 0; }\n",
        "-Wl,--no-as-needed",
        "-l:libtbbmalloc_proxy.so.2",
    )
    assert unrecorded_calls(str(program), os.environ) == ""


@pytest.mark.parametrize(
    "names",
    [
        ("mallocx", "_rjem_rallocx", "smallocx", "mi_heap_malloc", "mi_zalloc_aligned", "mi_new_nothrow"),
        ("scalable_malloc", "scalable_posix_memalign", "tc_newarray", "tc_posix_memalign", "rpmalloc", "rpmemalign"),
    ],
)
def test_functions_that_allocate(names: tuple[str, ...]) -> None:
    assert [name for name in names if not allocates(name)] == []


@pytest.mark.parametrize(
    "names",
    [
        ("malloc", "xmalloc", "nallocx", "sallocx", "dallocx", "mi_malloc_usable_size", "mi_malloc_size", "mi_free"),
        ("scalable_allocation_mode", "scalable_allocation_command", "scalable_msize", "tc_malloc_size"),
    ],
)
def test_functions_that_allocate_nothing(names: tuple[str, ...]) -> None:
    assert [name for name in names if allocates(name)] == []


def test_a_link_to_a_program_is_the_program(jemallocx: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(jemallocx)
    assert direct_calls(str(link), os.environ) == "it calls mallocx of libjemalloc.so.2"


def test_ordinary_programs_allocate_by_malloc() -> None:
    for program in ("sort", "perl", sys.executable, "no-such-program"):
        assert unrecorded_calls(program, os.environ) == ""


def test_record_warns_of_missing_allocations(jemallocx: Path, tmp_path: Path) -> None:
    done = Heapwright(tmp_path, forked=True)("record", "-o", "t.hwt", "--", str(jemallocx))
    warning = "t.hwt lacks allocations of jemallocx: it calls mallocx of libjemalloc.so.2"
    assert done.status == 0
    assert f"warning: {warning}; only calls of malloc are recorded\n" in done.err


def test_tune_searches_on_the_program_itself(jemallocx: Path, tmp_path: Path) -> None:
    """A replay would lack these blocks."""
    words = ("tune", "--allocator", "jemalloc", "--budget", "20", "--study", "s.study", "--", str(jemallocx))
    done = Heapwright(tmp_path, report=False, forked=True)(*words)
    assert done.status == 0, done.err
    assert "it calls mallocx of libjemalloc.so.2, and only calls of malloc are recorded" in done.err
