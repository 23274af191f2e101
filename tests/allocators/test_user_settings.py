"""Settings given by hand: every slip is one line that says what becomes of it and what to write."""

from __future__ import annotations

import os
import re

import pytest

from heapwright.allocators.registry import get_allocator, glibc_version
from heapwright.allocators.user_settings import check_settings, conf_problems, environment_problems, tunables_problems
from heapwright.errors import UsageError
from heapwright.trace.replay import environment
from tests import needs

needs_glibc = needs.only_where(glibc_version() is not None, "run glibc")


# the widely copied recipe, word for word


def test_a_mistake_in_malloc_conf_loses_all_that_follows() -> None:
    recipe = "dirty_decay_ms:1000,narenas:2,lg_tcache_max=12,background_thread:true"
    assert conf_problems(recipe) == [
        "'lg_tcache_max=12' is not key:value; jemalloc drops it and all that follows (background_thread:true):"
        " write lg_tcache_max:12"
    ]
    assert environment_problems({"MALLOC_CONF": recipe}, []) == [
        f"MALLOC_CONF: {line}" for line in conf_problems(recipe)
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("narenas:2, thp:never", r"' thp:never' is not key:value.*: write thp:never"),
        ("narenas", r"'narenas' is not key:value; jemalloc drops it: write key:value"),
        ("narenas:2,", r"ends with a comma"),
        (",narenas:2", r"'' is not key:value; jemalloc drops it and all that follows \(narenas:2\)"),
    ],
)
def test_mistakes_in_malloc_conf_are_named(text: str, complaint: str) -> None:
    (line,) = conf_problems(text)
    assert re.search(complaint, line)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("dirty_decay:1000", r"dirty_decay:1000 is ignored: jemalloc .* has no setting .*did you mean dirty_decay_ms"),
        ("tcache_max:128k", r"does not take this value; write 131072"),
        ("narenas:0", r"narenas:0 is ignored"),
        ("thp:sometimes", r"thp:sometimes is ignored"),
        ("tcache_max:99999999", r"tcache_max:99999999 becomes (8388608|32768)"),
    ],
)
def test_jemalloc_is_asked(text: str, complaint: str) -> None:
    needs.peer("jemalloc")
    (line,) = environment_problems({"MALLOC_CONF": text}, [get_allocator("jemalloc")])
    assert line.startswith("MALLOC_CONF: ")
    assert re.search(complaint, line)


# glibc, of any version


@pytest.mark.parametrize(
    ("version", "text", "complaint"),
    [
        ("2.36", "glibc.malloc.mmap_threshold=128k", r"read as 128, or dropped: .*write 131072"),
        ("2.36", "glibc.malloc.top_pad=1 MiB", r"write 1048576"),
        ("2.36", "glibc.malloc.mxfast=lots", r"is not a number"),
        ("2.36", "glibc.malloc.mxfast=500", r"takes 0 to 160 and ignores the rest"),
        ("2.43", "glibc.malloc.mxfast=0", r"does nothing since 2\.43"),
        ("2.36", "glibc.malloc.tcache_max=4096", r"glibc 2\.36 takes 0 to 1032"),
        ("2.42", "glibc.malloc.tcache_max=4096", r""),
        ("2.36", "glibc.malloc.arena_max=0", r"takes 1 and more"),
        ("2.31", "glibc.malloc.hugetlb=1", r"needs 2\.35, here is glibc 2\.31"),
        ("2.36", "glibc.malloc.mxfast:1", r"is not name=value|mxfast"),
        ("2.36", " glibc.malloc.mxfast=1", r"space before or after the name"),
        ("2.36", "glibc.malloc.mxfast=0x20:glibc.malloc.arena_max=2:glibc.rtld.nns=4", r""),
        ("2.36", "", r""),
    ],
)  # fmt: skip
def test_mistakes_in_tunables_are_named(version: str, text: str, complaint: str) -> None:
    lines = tunables_problems(text, version)
    assert bool(lines) == bool(complaint), lines
    assert not lines or re.search(complaint, lines[0])


@needs_glibc
@pytest.mark.parametrize(
    ("env", "complaint"),
    [
        ({"GLIBC_TUNABLES": "glibc.malloc.arena_mx=2"}, r"no such setting.*did you mean glibc\.malloc\.arena_max"),
        (
            {"MALLOC_TRIM_THRESHOLD": "1"},
            r"no glibc reads MALLOC_TRIM_THRESHOLD; did you mean MALLOC_TRIM_THRESHOLD_\?",
        ),
        ({"MALLOC_ARENA_MAX_": "2"}, r"did you mean MALLOC_ARENA_MAX\?$"),
        ({"MALLOC_MMAP_THRESHOLD_": "1M"}, r"read as 1, .*write 1048576"),
        (
            {"MALLOC_ARENA_MAX": "2", "GLIBC_TUNABLES": "glibc.malloc.arena_max=4"},
            r"MALLOC_ARENA_MAX=2 does nothing: GLIBC_TUNABLES sets arena_max too, and wins",
        ),
    ],
)
def test_names_that_glibc_does_not_read(env: dict[str, str], complaint: str) -> None:
    (line,) = environment_problems(env, [])
    assert re.search(complaint, line)


# one variable for each setting


@pytest.mark.parametrize(
    ("name", "env", "complaint"),
    [
        needs.long("mimalloc3", {"MIMALLOC_EAGER_COMMIT": "0"}, r"is ignored: mimalloc3 3\S* has no such setting"),
        ("mimalloc2", {"MIMALLOC_PURGEDELAY": "1"}, r"did you mean MIMALLOC_PURGE_DELAY"),
        ("mimalloc2", {"MIMALLOC_PURGE_DELAY": "12x"}, r"mimalloc2 does not take this value|2\.0\S* has no such"),
        ("tcmalloc", {"TCMALLOC_RELEASE_RAT": "1"}, r"did you mean TCMALLOC_RELEASE_RATE"),
        ("tcmalloc", {"TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES": "32m"}, r"knows no units; write 33554432"),
        ("tcmalloc", {"TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES": "9"}, r"is clamped to the range 524288 to 1073741824"),
        ("tcmalloc", {"TCMALLOC_SKIP_MMAP": "1", "TCMALLOC_SKIP_SBRK": "1"}, r"every allocation fails"),
        ("exgen", {"EXGEN_OPTIONS": "kep=1"}, r"EXGEN_OPTIONS: not understood and ignored: 'kep=1'"),
        ("reaper", {"REAPER_OPTIONS": "keep=x"}, r"not understood and ignored: 'keep=x'"),
    ],
)
def test_each_library_is_asked(name: str, env: dict[str, str], complaint: str) -> None:
    needs.peer(name)
    (line,) = environment_problems(env, [get_allocator(name)])
    assert re.search(complaint, line)
    assert "\n" not in line


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"PATH": "/bin"},
        {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=0x1000:glibc.malloc.arena_max=2"},
        {"MALLOC_CONF": "narenas:2,dirty_decay_ms:-1"},
        needs.long({"MIMALLOC_PURGE_DELAY": "5", "MIMALLOC_SHOW_STATS": "1", "MIMALLOC_ARENA_RESERVE": "64MiB"}),
        {"TCMALLOC_RELEASE_RATE": "2.5", "EXGEN_OPTIONS": "keep=1048576", "MALLOC_ARENA_MAX": "2"},
    ],
)
def test_valid_variables_are_not_complained_about(env: dict[str, str]) -> None:
    if "MIMALLOC_PURGE_DELAY" in env:
        needs.peer("mimalloc3")  # Debian's mimalloc 2.0 has not all of these
    assert environment_problems(env) == []


# --set


@pytest.mark.parametrize(
    ("name", "settings", "complaint"),
    [
        ("glibc", {"mmap_threshold": "128k"}, r"--set: GLIBC_TUNABLES: .*write 131072"),
        ("glibc", {"GLIBC_TUNABLES": "glibc.malloc.mxfast=500"}, r"takes 0 to 160"),
        ("jemalloc", {"MALLOC_CONF": "narenas:2,lg_tcache_max=12"}, r"write lg_tcache_max:12"),
        ("jemalloc", {"tcache_max": "128k"}, r"write 131072"),
        needs.long("mimalloc3", {"abandoned_page_purge": "1"}, r"mimalloc3 does not take it: gone since version 3"),
        ("tcmalloc", {"max_total_thread_cache_bytes": "32m"}, r"write 33554432"),
        ("exgen", {"keep": "much"}, r"not understood"),
    ],
)
def test_invalid_settings_of_the_command_line_are_refused(name: str, settings: dict[str, str], complaint: str) -> None:
    needs.peer(name)
    with pytest.raises(UsageError, match=complaint):
        environment(get_allocator(name), settings, dict(os.environ))


def test_valid_settings_of_the_command_line_are_accepted() -> None:
    allocator = get_allocator("exgen")
    env = environment(allocator, {"keep": "1048576"}, {})
    check_settings(allocator, {"keep": "1048576"}, env)
    assert env["EXGEN_OPTIONS"] == "keep=1048576"
