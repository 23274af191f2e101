"""Heaps of threads: false sharing, memory that others free, OpenMP, fork, threads that come early and late.

Storms of threads, detached ones, what they allocate in their destructors, dlopen, signals: test_threads.py. Options,
the header and archives are exgen's too: test_exgen.py; here it is that reaper has them.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from heapwright.files import NATIVE
from tests import needs
from tests.allocator.conftest import FLAGS, GLIBC, Malloc, bundled, bundled_malloc
from tests.conftest import PROGRAMS, ROOT

MIB = 1 << 20
BENCHES = [
    ROOT / "build/native/native/benchmarks/bench-thread-exit",
    NATIVE / "benchmarks/bench-thread-exit",
]
NAMES = ("reaper", "reaper-secure", "exgen")  # exgen has the same heaps as soon as there are threads

# Why memory is bounded when other threads free the blocks than those that allocated them. A free
# block is
# - in a thread cache: 16 KiB a thread and class, or the free blocks of one superblock;
# - in a batch: 8 KiB a thread and superblock, 64 superblocks;
# - in the remote queue of a superblock without an owner: less than a quarter of its blocks (kReclaimDivisor), while
#   other blocks of it are live;
# - in the remote queue of a superblock with an owner: likewise, because the freeing thread reclaims a quarter of the
#   blocks, or all that are missing. So no superblock is held all of whose blocks are in these places or in the owner's
#   list.
# A round begins when all blocks of the last round are free. Then caches, batches, and the
# superblocks that these pin (at most one for each block in them) hold memory, but once, not once a
# round. With five threads and one class of 112 bytes: 5 · (64 + 64 · 8) KiB < 3 MiB in caches and
# batches. They pin less than 4 MiB here, because blocks freed in sequence lie together. Free
# superblocks may keep 2 MiB or a quarter of the memory in use: 16 + 2 + 4 + 4 MiB. A hardened block
# has 8 bytes more.
MAX_IN_A_ROUND = 26 * MIB
MAX_HARDENED = 40 * MIB  # blocks in quarantine hold whole superblocks


@pytest.fixture(scope="module", params=NAMES)
def malloc(request: pytest.FixtureRequest) -> Malloc:
    return bundled_malloc(request.param)


@pytest.fixture(scope="module")
def reaper() -> Malloc:
    return bundled_malloc("reaper")


@pytest.fixture(scope="session")
def owners(program: Callable[..., Path]) -> Path:
    return program("allocator_owners", *FLAGS)


def figures(malloc: Malloc, *words: str | Path) -> list[int]:
    done = malloc.run(*words)
    assert done.returncode == 0, done.stderr.decode()
    return [int(word) for word in done.stdout.split()]


def test_no_active_false_sharing(malloc: Malloc, owners: Path) -> None:
    assert figures(malloc, owners, "lines") == [0]


def test_no_passive_false_sharing(malloc: Malloc, owners: Path) -> None:
    assert figures(malloc, owners, "passive") == [0]


@pytest.mark.parametrize("share", ["0", "30", "60", "90"])
def test_an_owner_that_sleeps_strands_nothing(malloc: Malloc, owners: Path, share: str) -> None:
    most, left = figures(malloc, owners, "sleeper", share)
    assert most > 60 * MIB
    assert left < 5 * MIB


@pytest.mark.parametrize("words", [("exchange", "1"), ("exchange", "2"), ("exchange", "4"), ("region",)], ids="-".join)
@pytest.mark.few(2)
def test_remote_frees_do_not_grow_the_heap(malloc: Malloc, owners: Path, words: tuple[str, ...]) -> None:
    [most] = figures(malloc, owners, *words)
    assert most < (MAX_HARDENED if "secure" in malloc.name else MAX_IN_A_ROUND)


def test_heaps_of_ended_threads_are_used_again(malloc: Malloc, owners: Path) -> None:
    second, third = figures(malloc, owners, "many")
    assert max(second, third) < 4 * MIB


def test_a_storm_of_ending_threads_leaves_little(malloc: Malloc) -> None:
    bench = next((one for one in BENCHES if one.is_file()), None)
    if bench is None:
        needs.not_built("bench-thread-exit")
    one, all_of_them = (json.loads(malloc.run(bench, *words).stdout) for words in [("count=1", "blocks=1"), ()])
    assert all_of_them["operations"] >= 300 * 2000
    assert all_of_them["rss_bytes"] - one["rss_bytes"] < 1.25 * MIB  # 1.8 MB when classes did not get theirs back


@pytest.mark.parametrize("malloc", [needs.long_unless(name == "reaper", name) for name in NAMES], indirect=True)
@pytest.mark.long
def test_forks_of_forks_with_threads(malloc: Malloc, owners: Path) -> None:
    assert malloc.run(owners, "fork").stdout == b"ok\n"


def test_openmp_regions_in_regions(malloc: Malloc, program: Callable[..., Path]) -> None:
    assert malloc.run(program("allocator_openmp", *FLAGS, "-fopenmp")).stdout == b"ok\n"


def test_a_thread_before_the_constructors(malloc: Malloc, program: Callable[..., Path]) -> None:
    early = program("allocator_early", *FLAGS, "-shared", "-fPIC")
    done = malloc.run("/bin/true", env={"LD_PRELOAD": f"{malloc.library}:{early}"})
    assert (done.returncode, done.stdout) == (0, b"early\n"), done.stderr.decode()


def test_options_are_read_and_bad_ones_named(reaper: Malloc) -> None:
    assert reaper.run("/bin/true", env={"REAPER_OPTIONS": "keep=1m"}).stderr == b""
    assert (
        b"REAPER_OPTIONS: not understood and ignored: " in reaper.run("/bin/true", env={"REAPER_OPTIONS": "a=b"}).stderr
    )
    assert reaper.run("/bin/true", env={"EXGEN_OPTIONS": "a=b"}).stderr == b""


STATISTICS = r"""
#include <assert.h>
#include <pthread.h>
#include <reaper.h>
#include <stdio.h>
static void* block;
static void* work(void* unused) { block = reaper_malloc(100000); return unused; }
int main(void) {
  reaper_statistics before, within, after;
  reaper_get_statistics(&before);
  pthread_t thread;
  assert(pthread_create(&thread, NULL, work, NULL) == 0);
  pthread_join(thread, NULL);
  reaper_get_statistics(&within);
  assert(within.live >= before.live + 100000 && reaper_usable_size(block) >= 100000);
  reaper_free(block);
  reaper_trim();
  reaper_get_statistics(&after);
  assert(after.live + 100000 <= within.live);
  puts("ok");
}
"""


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
def test_the_archive_and_the_header(static: bool, tmp_path: Path) -> None:
    archive = bundled("reaper", "a")
    if archive is None:
        needs.not_built("libreaper.a")
    source, path = tmp_path / "statistics.c", tmp_path / "statistics"
    source.write_text(STATISTICS)
    include = f"-I{ROOT / 'native/allocator/include'}"
    words = ["-static", "-Wl,-u,heapwright_thread_functions"] if static else []
    subprocess.run(["gcc", "-O1", "-pthread", include, *words, source, archive, "-o", path], check=True)
    assert GLIBC.run(path).stdout == b"ok\n"


@pytest.mark.parametrize("allocator", ["exgen", "exgen-secure", "reaper", "reaper-secure"])
def test_a_static_fortran_program_has_all_thread_functions(allocator: str, tmp_path: Path) -> None:
    """libgfortran refers to them weakly, and calls all if one is there: an asynchronous unit needs most of them."""
    needs.command("gfortran")
    archive = bundled(allocator, "a")
    if archive is None:
        needs.not_built(f"lib{allocator}.a")
    source, path = tmp_path / "unit.f90", tmp_path / "unit"
    source.write_text(
        "program p\nopen(10, file='unit.txt', asynchronous='yes')\nwrite(10, *, asynchronous='yes') 1\nwait(10)\n"
        "close(10)\nprint *, 'ok'\nend\n"
    )
    symbols = ["-Wl,-u,malloc", "-Wl,-u,heapwright_thread_functions"]
    subprocess.run(["gfortran", "-static", *symbols, source, archive, "-o", path], check=True)
    done = subprocess.run([path], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b" ok\n")
    assert (tmp_path / "unit.txt").read_text().strip() == "1"


@pytest.mark.long
def test_fuzz_as_an_archive(tmp_path: Path) -> None:
    archive = bundled("reaper", "a")
    if archive is None:
        needs.not_built("libreaper.a")
    path = tmp_path / "fuzz"
    source = PROGRAMS / "allocator_fuzz.cpp"
    subprocess.run(["g++", "-std=c++20", *FLAGS, "-pthread", source, archive, "-o", path], check=True)
    done = GLIBC.run(path, "--seconds", "2", "--threads", "4", "--fork", "--seed", str(os.getpid()))
    assert done.returncode == 0, done.stderr.decode()
