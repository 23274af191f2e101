"""Reads the loader's log of bindings, and says which malloc serves a program."""

from __future__ import annotations

from pathlib import Path

from heapwright.allocators.registry import Allocator
from heapwright.allocators.space_spec import AllocatorSpec, SpaceFile
from heapwright.allocators.takeover import bindings, judge_takeover, other_providers

LINE = "      1234:\tbinding file {} [0] to {} [0]: normal symbol `malloc' [GLIBC_2.2.5]\n"


def test_paths_may_have_spaces(tmp_path: Path) -> None:
    program, library = "/opt/My App/bin/prog", "/opt/My App/lib/libown malloc.so"
    (tmp_path / "bindings.1234").write_text(LINE.format(program, library) + LINE.format("/lib/libc.so.6", library))
    found = bindings(tmp_path)
    assert found == [{(program, library), ("/lib/libc.so.6", library)}]
    assert other_providers("/usr/lib/libjemalloc.so.2", found) == [library]


def test_every_copy_of_glibc_is_glibc() -> None:
    """A 32-bit program has its own, which reads the same variables."""
    found = [{("/prog", "/usr/lib32/libc.so.6")}]
    assert other_providers("/usr/lib/x86_64-linux-gnu/libc.so.6", found) == []
    assert other_providers("/usr/lib/libjemalloc.so.2", found) == ["/usr/lib32/libc.so.6"]


def test_titles_and_proc_self_are_no_other_programs(tmp_path: Path) -> None:
    """Chromium starts itself as /proc/self/exe, and its processes write their titles over their command lines."""
    program = tmp_path / "browser"
    program.touch()
    title = f"{program} --type=renderer --first=/a/b{'A' * 5000}"
    log = "".join(LINE.format("/lib/libz.so.1", who) for who in (title, "/proc/self/exe", "nginx: worker process"))
    (tmp_path / "bindings.7").write_text(log)
    names = ["/proc/self/exe", str(program), "nginx: worker process"]
    assert sorted(provider for _, provider in bindings(tmp_path)[0]) == sorted(names)
    others = other_providers("/usr/lib/libjemalloc.so.2", bindings(tmp_path))
    assert {"/proc/self/exe", str(program)} < set(others)
    assert not any("python" in Path(other).name for other in others)


def test_the_systems_malloc_is_preloaded_only_where_another_is_known() -> None:
    """Regression: for a program that binds no malloc the C library was preloaded, as if it replaced something."""
    libc = "/usr/lib/x86_64-linux-gnu/libc.so.6"
    glibc = Allocator("glibc", None, libc, False, "", SpaceFile(AllocatorSpec("glibc"), [], []))
    for found in ([], [{(libc, libc)}], [{("/prog", libc)}]):
        assert judge_takeover(glibc, "/prog", found) == (glibc, "")
    judged, why = judge_takeover(glibc, "/prog", [{("/prog", "/usr/lib/libjemalloc.so.2")}])
    assert (judged.preload, why) == (libc, "")
