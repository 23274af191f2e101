"""The decision of a diagnosis: each finding, and the figures on both sides of each threshold."""

from __future__ import annotations

import pytest

from heapwright.diagnose.advice import (
    BUFFER_SHARE,
    FREE_SHARE,
    HEADER_BYTES,
    MAJOR_SHARE,
    MANY_ARENAS,
    MEAN_ROUNDING_BYTES,
    MIB,
    SMALL_BYTES,
    Advice,
    AdviceFigures,
    advise,
)
from heapwright.diagnose.diagnosis import own_figures

WHOLE = 1000 * MIB
SERVICE = AdviceFigures("glibc 2.36", resident=WHOLE, files=50 * MIB, private=950 * MIB, known=True, arenas=1)
SERVICE_FREE = SERVICE._replace(free=400 * MIB)


def test_little_private_memory_is_too_small_to_matter() -> None:
    small = SERVICE._replace(
        resident=40 * MIB, files=40 * MIB - SMALL_BYTES + 1, private=SMALL_BYTES - 1, free=SMALL_BYTES - 1
    )
    assert advise(small).kind == "small"
    assert advise(small).sentence == (
        "Of 40.0 MiB resident, only 16.0 MiB is private memory: no malloc can save more than that"
    )
    assert advise(small).steps == ()
    assert advise(small._replace(private=SMALL_BYTES)).kind == "free"


def test_free_memory_from_a_tenth_on() -> None:
    at = round(FREE_SHARE * WHOLE)
    assert advise(SERVICE._replace(free=at)).kind == "free"
    below = advise(SERVICE._replace(free=at - 1))
    assert below.kind == "program"
    assert below.sentence == "The program itself holds 90% of 1000.0 MiB: no malloc will help"


def test_program_that_may_hold_less_than_the_thread_caches() -> None:
    """glibc's malloc_info counts blocks in thread caches as live, also if there are many."""

    def found(count: str, allocator: str = "glibc 2.36") -> Advice:
        settings = {"GLIBC_TUNABLES": f"glibc.malloc.arena_max=2:glibc.malloc.tcache_count={count}"}
        return advise(SERVICE._replace(free=20 * MIB, allocator=allocator, settings=settings))

    raised = found("4000")
    assert raised.kind == "unknown"
    assert "the program and the thread caches of glibc hold 98%: with tcache_count=4000" in raised.sentence
    assert raised.steps[0].startswith("GLIBC_TUNABLES=glibc.malloc.arena_max=2:glibc.malloc.tcache_count=7, a smaller")
    assert {found("7").kind, found("0").kind, found("4000", "exgen").kind} == {"program"}


def test_free_memory_in_caches_of_threads() -> None:
    cached = SERVICE._replace(free=400 * MIB, free_cached=round(MAJOR_SHARE * 400 * MIB))
    off = "GLIBC_TUNABLES=glibc.malloc.tcache_count=0, which turns the caches of threads off"
    assert "most of it lies in caches of threads, where malloc_trim does not reach it" in advise(cached).sentence
    assert advise(cached).steps[0] == off
    assert advise(cached._replace(free_cached=cached.free_cached - 1)).steps[0].startswith("`heapwright tune`")
    raised = cached._replace(settings={"GLIBC_TUNABLES": "glibc.malloc.tcache_count=4000"})
    assert advise(raised).steps[0] == "GLIBC_TUNABLES=glibc.malloc.tcache_count=7, a smaller limit"
    assert advise(raised._replace(free=20 * MIB, free_cached=10 * MIB)).kind == "program"


def test_free_memory_between_live_blocks_needs_another_malloc() -> None:
    found = advise(SERVICE._replace(free=400 * MIB))
    assert found.sentence.startswith(
        "Of 1000.0 MiB resident, 400.0 MiB is free memory that malloc keeps: most of it lies on"
    )
    assert "another malloc or setting may give back up to 400.0 MiB; start with `heapwright tune`" in found.sentence
    assert len(found.steps) == 1


def test_a_linked_malloc_must_go_before_others_are_tried() -> None:
    found = advise(SERVICE._replace(allocator="exgen", free=400 * MIB, linked_in="exgen"))
    assert "start with a build without exgen linked in: there `heapwright tune` with a load" in found.sentence


def test_no_malloc_is_to_be_preloaded_into_a_static_program() -> None:
    static = SERVICE._replace(allocator="glibc", free=400 * MIB, static=True)
    found = advise(static)
    assert (
        "; the program is linked statically, so no malloc can be preloaded, but a setting or another malloc that is"
        " linked in may give back up to 400.0 MiB; start with `heapwright tune`" in found.sentence
    )
    assert found.steps == (
        "`heapwright tune` with a load, which searches the settings of glibc, or a build with `heapwright link`, which"
        " links exgen or reaper in",
    )
    for allocator, known in (("musl", False), ("unknown", False)):
        assert advise(static._replace(allocator=allocator, known=known)).steps[-1].startswith("a build with `heap")
    jemalloc = advise(static._replace(allocator="jemalloc", known=False)).steps[-1]
    assert jemalloc.startswith("`heapwright tune` with a load, which searches the settings of jemalloc, or a build")
    go = SERVICE._replace(allocator="Go runtime", known=False, managed="go", managed_resident=400 * MIB, static=True)
    assert advise(go).steps[-1] == "`heapwright tune` with a load, which searches the settings of Go"
    linked = advise(static._replace(allocator="exgen", linked_in="exgen"))
    assert linked.steps == (
        f"a dynamically linked build without exgen linked in: there {advise(SERVICE_FREE).steps[0]}",
    )
    python = advise(
        static._replace(free=0, runtime="CPython 3.11", runtime_resident=WHOLE // 2, runtime_free=WHOLE // 4)
    )
    assert python.sentence.endswith("start with PYTHONMALLOC=malloc with another malloc linked in")


def test_free_pages_are_trimmed_first() -> None:
    trimmable = SERVICE._replace(free=400 * MIB, free_pages=300 * MIB, trimmable=round(MAJOR_SHARE * 400 * MIB))
    assert "malloc_trim gives back 200.0 MiB, another" in advise(trimmable).sentence
    assert advise(trimmable).steps[0].startswith("malloc_trim(0)")
    assert advise(trimmable._replace(trimmable=trimmable.trimmable - 1)).steps[0].startswith("`heapwright tune`")
    assert advise(trimmable._replace(top=200 * MIB)).steps[0].startswith("MALLOC_TRIM_THRESHOLD_")


def test_memory_that_a_trim_does_not_reach_is_where_the_table_says() -> None:
    fixed = SERVICE._replace(free=400 * MIB, trimmable=0)
    for where, pages, top in (
        ("on pages with live blocks", 9, 0),
        ("in whole pages", 390, 9),
        ("at the ends", 390, 380),
    ):
        sentence = advise(fixed._replace(free_pages=pages * MIB, top=top * MIB)).sentence
        assert f"most of it lies {where}" in sentence
        assert "where malloc_trim does not reach it; another malloc" in sentence


def test_python_is_trimmed_without_a_debugger() -> None:
    """A call by a debugger can end a system call of the service with an error."""
    trimmable = SERVICE._replace(free=400 * MIB, free_pages=300 * MIB, trimmable=300 * MIB)
    assert "an instance that may fail: gdb" in advise(trimmable).steps[0]
    assert "set language c" in advise(trimmable).steps[0]  # gdb takes the cast for an error in a Go program
    python = advise(trimmable._replace(runtime="CPython 3.11", trimmable_in_python=150 * MIB))
    assert python.steps[0] == "malloc_trim(0) at idle times (in Python: ctypes.CDLL(None).malloc_trim(0))"


def test_arenas_of_threads_are_bounded() -> None:
    many = SERVICE._replace(free=400 * MIB, arenas=MANY_ARENAS, in_arenas=round(MAJOR_SHARE * 400 * MIB))
    assert advise(many).steps[0].startswith("MALLOC_ARENA_MAX=2")
    trimmable = advise(many._replace(free_pages=300 * MIB, trimmable=200 * MIB))
    assert [step.partition("(")[0].partition("=")[0] for step in trimmable.steps[:2]] == [
        "malloc_trim",
        "MALLOC_ARENA_MAX",
    ]
    assert not advise(many._replace(arenas=MANY_ARENAS - 1)).steps[0].startswith("MALLOC_ARENA_MAX")
    assert not advise(many._replace(in_arenas=many.in_arenas - 1)).steps[0].startswith("MALLOC_ARENA_MAX")
    assert not any("MALLOC_ARENA" in step for step in advise(many._replace(allocator="exgen")).steps)


def test_files_are_named_if_they_are_most() -> None:
    half = SERVICE._replace(files=500 * MIB, private=500 * MIB)
    assert advise(half).kind == "files"
    assert advise(half._replace(files=500 * MIB - 1)).kind == "program"
    assert advise(half._replace(free=400 * MIB)).kind == "free"


def test_free_memory_of_malloc_is_named_beside_a_mapped_database() -> None:
    """As in slapd, whose database is page cache that the kernel can drop."""
    mapped = SERVICE._replace(files=900 * MIB, private=100 * MIB, live=50 * MIB)
    free = advise(mapped._replace(free=50 * MIB, free_pages=50 * MIB, trimmable=40 * MIB))
    assert free.kind == "files"
    assert free.sentence.startswith(
        "Of 1000.0 MiB resident, 900.0 MiB is the program, its libraries and files: no malloc will help there; of the"
        " other 100.0 MiB, 50.0 MiB is free memory that malloc keeps; start with malloc_trim(0)"
    )
    assert free.steps[0].startswith("malloc_trim(0)")
    assert "free memory" not in advise(mapped._replace(free=round(FREE_SHARE * 100 * MIB) - 1)).sentence


def test_free_arenas_of_a_runtime() -> None:
    python = SERVICE._replace(runtime="CPython 3.11", runtime_resident=300 * MIB, runtime_free=150 * MIB)
    assert advise(python).kind == "runtime"
    assert "150.0 MiB is free memory in the arenas of CPython 3.11" in advise(python).sentence
    assert advise(python._replace(free=151 * MIB)).kind == "free"
    full = python._replace(runtime_free=0)
    assert advise(full).kind == "program"
    assert advise(full._replace(runtime_resident=500 * MIB)).kind == "runtime"


def test_headers_of_small_blocks_do_not_count_as_held_by_the_program() -> None:
    """Of a program with 5 million blocks of 16 bytes, exgen, jemalloc and mimalloc save half; of 24 bytes, nothing."""
    small = SERVICE._replace(resident=200 * MIB, private=199 * MIB, live=190 * MIB, block_bytes=190 * MIB)
    least = round(FREE_SHARE * 200 * MIB / (HEADER_BYTES + MEAN_ROUNDING_BYTES))
    found = advise(small._replace(blocks=190 * MIB // 32))
    assert found.kind == "headers"
    assert found.sentence == (
        "Of 200.0 MiB resident, 190.0 MiB is live blocks, 6,225,920 of 32 bytes on average: glibc's headers take"
        " 47.5 MiB of that, and its rounding of sizes takes up to 95.0 MiB more; another malloc may save a part of"
        f" both; start with {found.steps[0]}"
    )
    assert found.steps == advise(SERVICE_FREE).steps
    assert advise(small._replace(blocks=least)).kind == "headers"
    for blocks in (least - 1, 0):  # 0: the number is not known
        plain = advise(small._replace(blocks=blocks))
        assert plain.kind == "program"
        assert plain.sentence == "The program itself holds 100% of 200.0 MiB: no malloc will help"
    assert advise(small._replace(blocks=6225920, free=20 * MIB)).kind == "free"


def test_an_unreadable_malloc_is_asked() -> None:
    found = advise(SERVICE._replace(allocator="jemalloc", known=False))
    assert found.kind == "unknown"
    assert "950.0 MiB is private memory, but jemalloc does not show" in found.sentence
    assert "MALLOC_CONF" in found.steps[0]
    assert "its malloc is unknown" in advise(SERVICE._replace(allocator="unknown", known=False)).sentence


def test_a_runtime_that_manages_its_heap_without_malloc() -> None:
    go = SERVICE._replace(allocator="Go runtime", known=False, managed="go", managed_resident=500 * MIB)
    assert advise(go).kind == "runtime"
    assert "no malloc will help; start with GOMEMLIMIT" in advise(go).sentence
    assert advise(go._replace(managed_resident=500 * MIB - 1)).kind == "unknown"
    node = SERVICE._replace(managed="node", managed_resident=600 * MIB)
    assert advise(node).steps == ("--max-old-space-size (in NODE_OPTIONS)",)


def test_buffers_that_a_collector_has_not_freed_yet_count_as_live() -> None:
    """Of a Node.js service with 94 MiB in malloc, it freed 48 when made to collect; of a Java one 20 of 49."""
    held = SERVICE._replace(managed="node", live=round(BUFFER_SHARE * WHOLE))
    assert advise(held).kind == "program"
    assert advise(held).sentence == (
        "The program itself holds 100% of 1000.0 MiB: no malloc will help; 250.0 MiB of it are live blocks of malloc,"
        " and those of Buffers that are no longer used stay live until Node.js collects them; start with arrayBuffers"
        " of process.memoryUsage() in the program, which is their size"
    )
    assert advise(held._replace(managed="openjdk")).steps == (
        "`jcmd PID GC.run`, which collects them, and then diagnose again",
    )
    plain = "The program itself holds 100% of 1000.0 MiB: no malloc will help"
    assert advise(held._replace(live=held.live - 1)).sentence == plain
    assert advise(held._replace(managed="")).sentence == plain
    assert advise(held._replace(managed="go")).sentence == plain


def test_a_library_with_a_malloc_of_its_own_is_named() -> None:
    """As DuckDB's, which has jemalloc under other names: its free memory is not the program's."""
    duck = SERVICE._replace(managed_resident=round(FREE_SHARE * WHOLE), private_mallocs=("_duckdb.so (jemalloc)",))
    found = advise(duck)
    assert found.kind == "unknown"
    assert found.sentence == (
        "Of 1000.0 MiB resident, 100.0 MiB is outside of the program's malloc, and a library has a malloc of its own:"
        " _duckdb.so (jemalloc). How much of this memory is free does not show from outside, and no preloaded malloc"
        " serves that library; start with the library's own settings, which heapwright tune searches where it knows"
        " them: _duckdb.so (jemalloc)"
    )
    (step,) = found.steps
    assert found.sentence.endswith(f"start with {step}")
    assert advise(duck._replace(managed_resident=duck.managed_resident - 1)).kind == "program"
    free = advise(duck._replace(free=100 * MIB))
    assert free.kind == "free"
    assert free.steps[-1] == found.steps[0]
    assert advise(duck._replace(managed="node")).kind == "program"


def test_most_memory_in_mappings_of_an_unknown_owner_is_not_mallocs() -> None:
    """As in SBCL and GHC."""
    lisp = SERVICE._replace(managed_resident=500 * MIB)
    assert advise(lisp).kind == "program"
    assert advise(lisp).sentence == (
        "Of 1000.0 MiB resident, 500.0 MiB is outside of malloc, in mappings that the program or its language runtime"
        " makes itself: no malloc will help, but their own settings may"
    )
    assert "The program itself holds" in advise(lisp._replace(managed_resident=500 * MIB - 1)).sentence
    assert advise(lisp._replace(free=100 * MIB)).kind == "free"


def test_a_managed_heap_beside_free_memory_of_malloc() -> None:
    """The first sentence follows the larger part, and does not deny the other one."""
    node = SERVICE._replace(managed="node", managed_resident=600 * MIB, free=200 * MIB, free_pages=200 * MIB)
    heap = advise(node._replace(trimmable=200 * MIB))
    assert heap.kind == "runtime"
    assert (
        "600.0 MiB is outside of malloc, most of it in the heap of Node.js, and 200.0 MiB is free memory"
        in heap.sentence
    )
    assert "no malloc will help" not in heap.sentence
    assert [step.partition("(")[0].strip() for step in heap.steps[:2]] == ["--max-old-space-size", "malloc_trim"]
    assert advise(node._replace(managed_resident=499 * MIB)).kind == "free"
    assert advise(node._replace(managed_resident=500 * MIB, free=500 * MIB)).kind == "free"


def test_several_mallocs_of_which_one_cannot_be_read() -> None:
    mixed = SERVICE._replace(allocator="glibc 2.36, jemalloc", unread=100 * MIB, unread_mallocs="jemalloc")
    free = advise(mixed._replace(free=300 * MIB, free_pages=300 * MIB, trimmable=300 * MIB))
    assert free.kind == "free"
    assert "malloc_trim gives back 300.0 MiB" in free.sentence
    assert any(step.startswith("the figures of jemalloc: MALLOC_CONF") for step in free.steps)
    unread = advise(mixed)
    assert unread.kind == "unknown"
    assert "100.0 MiB is private memory of processes with another malloc, but jemalloc does not" in unread.sentence
    assert advise(mixed._replace(unread=100 * MIB - 1)).kind == "program"
    both = advise(
        SERVICE._replace(
            allocator="jemalloc, mimalloc", known=False, unread=950 * MIB, unread_mallocs="jemalloc, mimalloc"
        )
    )
    assert "jemalloc, mimalloc do not show" in both.sentence
    assert [step.partition(":")[0] for step in both.steps[::2]] == [
        "the figures of jemalloc",
        "the figures of mimalloc",
        "`heapwright tune` with a load, or `heapwright compare`, which tries other mallocs",
    ]


def test_settings_of_the_users_own_are_kept() -> None:
    """The line to paste replaces the variable, so it has the settings that the process has already."""
    set_already = {"MALLOC_CONF": "narenas:2,dirty_decay_ms:500", "GLIBC_TUNABLES": "glibc.malloc.arena_max=8:x.y.z=1"}
    jemalloc = advise(SERVICE._replace(allocator="jemalloc", known=False, settings=set_already))
    assert "MALLOC_CONF=narenas:2,dirty_decay_ms:500,stats_print:true, which prints" in jemalloc.steps[0]
    assert jemalloc.steps[1] == "MALLOC_CONF=narenas:2,dirty_decay_ms:0, if they show free pages"
    differ = advise(SERVICE._replace(allocator="jemalloc", known=False, settings={"MALLOC_CONF": None}))
    assert differ.steps[1] == "dirty_decay_ms:0 added to MALLOC_CONF, if they show free pages"
    many = SERVICE._replace(free=400 * MIB, arenas=MANY_ARENAS, in_arenas=400 * MIB, settings=set_already)
    assert advise(many).steps[0].startswith("GLIBC_TUNABLES=x.y.z=1:glibc.malloc.arena_max=2, which lets")
    odd = {"MALLOC_CONF": "prof_prefix:a b"}
    assert (
        "MALLOC_CONF='prof_prefix:a b,dirty_decay_ms:0'"
        in advise(SERVICE._replace(allocator="jemalloc", known=False, settings=odd)).steps[1]
    )


def test_redis_is_asked_for_its_own_figures() -> None:
    jemalloc = SERVICE._replace(allocator="jemalloc", known=False)
    assert advise(jemalloc).steps[0].startswith("its own figures: MALLOC_CONF=stats_print:true")
    redis = advise(jemalloc._replace(own_figures="redis-cli -p 7777 info memory"))
    assert "start with its own figures: `redis-cli -p 7777 info memory`, where allocator_resident" in redis.sentence
    assert redis.steps[1:] == advise(jemalloc).steps[1:]


@pytest.mark.parametrize(
    ("command", "how"),
    [
        (["redis-server 127.0.0.1:7777", "", ""], "redis-cli -p 7777 info memory"),
        (["/usr/bin/redis-server *:6379 [cluster]"], "redis-cli info memory"),
        (["redis-server unixsocket:/run/redis.sock"], "redis-cli -s /run/redis.sock info memory"),
        (["/opt/redis-server", "--save", "", "--port", "7001"], "redis-cli -p 7001 info memory"),
        (["valkey-server", "[::1]:7001"], "valkey-cli -p 7001 info memory"),
        (["redis-server"], "redis-cli info memory"),
        (["redis-server-exporter", "--port", "7001"], ""),
        (["grep", "redis-server"], ""),
        ([], ""),
    ],
)
def test_how_a_redis_server_is_asked(command: list[str], how: str) -> None:
    assert own_figures(command) == how
