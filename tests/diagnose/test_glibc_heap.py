"""heapwright-diagnose on programs with glibc's malloc, beside their own malloc_info."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heapwright.trace.pack import native_program
from tests import needs
from tests.diagnose.fragments import check, diagnose, running
from tests.diagnose.glibcs import Glibc, build_for, unpacked

MIB = 1 << 20
Build = Callable[..., Path]


@pytest.mark.parametrize(
    ("words", "options"),
    [
        pytest.param(("1", "20"), (), id="one arena"),
        pytest.param(("5", "20"), (), id="five arenas"),
        pytest.param(("2", "20"), ("-static",), id="static"),
        pytest.param(("2", "10", "0"), (), id="nothing mapped"),
        pytest.param(("2", "10", "7"), (), id="seven mapped at most"),
        pytest.param(("2", "20"), ("-DNO_BRK",), id="main arena in pieces"),
        pytest.param(("2", "20"), ("-DFOREIGN_SBRK",), id="foreign sbrk"),
        pytest.param(("2", "20"), ("-DSPLIT_HEAP",), id="heap in several mappings"),
        pytest.param(("1", "20"), ("-DFORKED",), id="forked"),
    ],
)
def test_figures_are_those_of_malloc_info(words: tuple[str, ...], options: tuple[str, ...], program: Build) -> None:
    with running(program("fragments", *options), *words) as fragments:
        before = check(fragments)
        assert before["free_bytes"] > 0.5 * int(words[0]) * int(words[1]) * MIB
        assert fragments.ask("trim") == "trimmed"
        after = check(fragments)
        assert after["trimmable_bytes"] <= 16384 < before["trimmable_bytes"]


@pytest.mark.parametrize("options", [(), ("-DFASTBINS",), ("-DFASTBINS", "-DNO_BRK")])
def test_trim_gives_back_what_was_trimmable(options: tuple[str, ...], program: Build) -> None:
    with running(program("fragments", *options), "4", "20") as fragments:
        before = check(fragments)
        resident = fragments.diagnose()["resident_bytes"]
        fragments.ask("trim")
        after = fragments.diagnose()
        given_back = resident - after["resident_bytes"]
        assert abs(given_back - before["trimmable_bytes"]) < 0.05 * given_back + 65536


@pytest.mark.parametrize("option", ["-DSPLIT_HEAP", "-DFORKED"])
def test_heap_of_several_mappings_is_one_piece(option: str, program: Build) -> None:
    with running(program("fragments", option), "1", "20") as fragments:
        pid = int(fragments.ask("pid"))
        heap = [line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if line.endswith("[heap]")]
        found = fragments.diagnose()
    assert len(heap) > 1
    assert found["glibc"]["arenas"][0]["resident_bytes"] == found["parts"]["heap"]


def heap_of(source: Path, *options: str) -> dict[str, Any]:
    """glibc's heap in a program that writes a byte when it is ready, and ends with its standard input."""
    built = source.with_suffix("")
    subprocess.run(["cc", *options, "-o", built, source], check=True)
    with subprocess.Popen([built], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.read(1)
        found: dict[str, Any] = diagnose(process.pid)["glibc"]
        process.stdin.close()
    return found


def test_blocks_with_their_own_mapping_count_as_far_as_they_are_resident(tmp_path: Path) -> None:
    source = tmp_path / "mapped.c"
    source.write_text(
        "#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n#include <sys/mman.h>\n"
        "int main(void) { char *a = malloc(50 << 20), *b, *c; memset(a, 1, 10 << 20);\n"
        "b = mmap(0, 5 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); memset(b, 1, 5 << 20);\n"
        "c = aligned_alloc(4096, 3 << 20); memset(c, 1, 3 << 20);\n"
        'if (write(1, "r", 1) != 1) return 1; return read(0, a, 1) != 0; }\n'
    )
    heap = heap_of(source, "-O0")
    assert heap["mapped_blocks"] == 2
    assert 53 * MIB < heap["mapped_bytes"] < 53.1 * MIB
    assert 13 * MIB <= heap["mapped_resident_bytes"] < 13.1 * MIB


# Keeps every second block of the main thread, and all blocks of another one.
COUNTED = """#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
enum { BLOCKS = 50000 };
static void *blocks[BLOCKS], *others[BLOCKS];
static void *fill(void *to) {
  for (int i = 0; i < BLOCKS; i++) ((void **)to)[i] = malloc(SIZE);
  return 0;
}
int main(void) {
  pthread_t thread;
  pthread_create(&thread, 0, fill, others);
  pthread_join(thread, 0);
  fill(blocks);
  for (int i = 0; i < BLOCKS; i += 2) free(blocks[i]);
  if (write(1, "r", 1) != 1) return 1;
  return read(0, blocks[1], 1) != 0;
}
"""


@pytest.mark.parametrize("size", [24, 1000], ids=["fastbins", "bins"])
def test_live_blocks_are_counted(size: int, tmp_path: Path) -> None:
    source = tmp_path / "counted.c"
    source.write_text(COUNTED)
    heap = heap_of(source, "-O0", "-pthread", f"-DSIZE={size}")
    main, other = (arena["live_blocks"] for arena in heap["arenas"])
    assert 0 <= main - 25000 < 20  # with seven in the thread cache, and blocks of the C library
    assert 0 <= other - 50000 < 20
    assert heap["live_blocks"] == main + other


# glibc's older versions store links plainly. This program makes those of its own free blocks plain.
PLAIN_LINKS = """#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
enum { BLOCKS = 50000, CACHED = 7 };
static uintptr_t *blocks[BLOCKS], keep;
int main(void) {
  for (int i = 0; i < BLOCKS; i++) blocks[i] = malloc(24);
  keep = (uintptr_t)malloc(24);
  for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
  if (PLAIN) for (int i = CACHED; i < BLOCKS; i++) *blocks[i] ^= (uintptr_t)blocks[i] >> 12;
  if (write(1, "r", 1) != 1) return 1;
  return read(0, &keep, 1) != 0;
}
"""


@pytest.mark.parametrize("plain", [0, 1])
def test_links_of_fastbins_are_read_as_old_and_new_versions_store_them(plain: int, tmp_path: Path) -> None:
    source = tmp_path / "fast.c"
    source.write_text(PLAIN_LINKS)
    heap = heap_of(source, "-O0", f"-DPLAIN={plain}")
    assert heap["consistent"]
    assert heap["fast_bytes"] == (50000 - 7) * 32


# Threads free seven blocks of each of the 64 sizes of a cache. The first one frees those of the main
# thread, which are in another arena. PLAIN: it stores links as glibc does before 2.32. IMPOSTOR: it
# holds a block that looks like a cache, until one follows its lists: the count is wrong.
CACHES = """#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
enum { THREADS = 3, SIZES = 64, CACHED = 7 };
typedef struct { uint16_t counts[SIZES]; uintptr_t *blocks[SIZES]; } Cache;
static pthread_barrier_t ready;
static uintptr_t *blocks[THREADS][SIZES][CACHED];
static void allocate(int i) {
  for (int k = 0; k < SIZES; k++)
    for (int j = 0; j < CACHED; j++) blocks[i][k][j] = malloc(16 * k + 24);
}
static void *run(void *number) {
  const int i = (int)(intptr_t)number;
  if (i != 0) allocate(i);
  for (int k = 0; k < SIZES; k++)
    for (int j = 0; j < CACHED; j++) free(blocks[i][k][j]);
  if (PLAIN)
    for (int k = 0; k < SIZES; k++)
      for (int j = 0; j < CACHED; j++) *blocks[i][k][j] ^= (uintptr_t)blocks[i][k][j] >> 12;
  if (IMPOSTOR) {
    Cache *cache = memset(malloc(sizeof(Cache)), 0, sizeof(Cache));
    cache->counts[0] = 6;
    cache->blocks[0] = blocks[i][0][CACHED - 1];
  }
  pthread_barrier_wait(&ready);
  for (;;) pause();
  return number;
}
int main(void) {
  pthread_t thread;
  char byte = 0;
  pthread_barrier_init(&ready, 0, THREADS + 1);
  allocate(0);
  for (int i = 0; i < THREADS; i++) pthread_create(&thread, 0, run, (void *)(intptr_t)i);
  pthread_barrier_wait(&ready);
  if (write(1, &byte, 1) != 1) _exit(1);
  _exit(read(0, &byte, 1) != 0);
}
"""
IN_CACHE = sum(7 * (16 * k + 32) for k in range(64))


GLIBC = tuple(int(part) for part in (os.confstr("CS_GNU_LIBC_VERSION") or "glibc 0").split()[-1].split(".")[:2])


@needs.only_where((2, 30) <= GLIBC < (2, 42), "show caches of threads: glibc 2.30 to 2.41 does")
@pytest.mark.parametrize(("plain", "impostor"), [(0, 0), (1, 0), (0, 1)])
def test_free_blocks_in_caches_of_threads_are_counted(plain: int, impostor: int, tmp_path: Path) -> None:
    source = tmp_path / "caches.c"
    source.write_text(CACHES)
    heap = heap_of(source, "-O0", "-pthread", f"-DPLAIN={plain}", f"-DIMPOSTOR={impostor}")
    cached = [arena["thread_cache_bytes"] for arena in heap["arenas"]]
    assert heap["consistent"]
    assert heap["thread_cache_bytes"] == sum(cached)
    each = IN_CACHE - impostor * 656  # an impostor is a block of a cache again
    # An impostor would add 6 * 32. The cache of the main thread may hold a block of the C library.
    assert 0 <= sum(cached) - 3 * each < 6 * 32
    assert cached[0] >= each
    for arena in heap["arenas"]:
        assert arena["thread_cache_bytes"] <= arena["live_bytes"]


# A thread whose arena has a header on a page that is not in memory, as after swapping.
HOLE = """#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static char *blocks[9];
static void *fill(void *unused) {
  for (int i = 0; i < 9; i++) memset(blocks[i] = malloc(50000), 1, 50000);
  for (int i = 1; i < 6; i += 2) free(blocks[i]);
  madvise((void *)((uintptr_t)(blocks[6] - 8) & ~4095ul), 4096, MADV_DONTNEED);
  if (write(1, "r", 1) != 1) _exit(1);
  _exit(read(0, &unused, 1) != 0);
}
int main(void) {
  pthread_t thread;
  pthread_create(&thread, 0, fill, 0);
  pthread_join(thread, 0);
}
"""


def test_arena_of_a_thread_is_read_past_a_page_that_is_not_in_memory(tmp_path: Path) -> None:
    source = tmp_path / "hole.c"
    source.write_text(HOLE)
    heap = heap_of(source, "-O0", "-pthread")
    arena = heap["arenas"][1]
    assert heap["consistent"]
    assert arena["free_bytes"] - arena["top_bytes"] == 3 * 50016
    assert 6 * 50000 < arena["resident_bytes"] < arena["system_bytes"]


# A program that claims a free block and an arena of 32 TiB. The bins are at a fixed distance from
# the arena's size.
HUGE_CHUNK = """#include <stdlib.h>
#include <unistd.h>
static char *blocks[3];
int main(void) {
  for (int i = 0; i < 3; i++) blocks[i] = malloc(50000);
  free(blocks[1]);
  char *unsorted = *(char **)blocks[1];
  *(size_t *)(unsorted + 16 + 127 * 16 + 16 + 24) = 1ul << 46;
  *(size_t *)(blocks[1] - 8) = 1ul << 45 | 1;
  char byte = 0;
  if (write(1, &byte, 1) != 1) return 1;
  return read(0, &byte, 1) != 0;
}
"""


def test_size_of_a_chunk_that_no_mapping_holds_takes_no_memory(tmp_path: Path) -> None:
    source = tmp_path / "huge.c"
    source.write_text(HUGE_CHUNK)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, limits[1]))
    try:
        heap = heap_of(source, "-O0")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert not heap["consistent"]
    assert heap["free_bytes"] < MIB


def test_malloc_that_was_never_called_has_a_heap_of_nothing(tmp_path: Path) -> None:
    source = tmp_path / "idle.c"
    source.write_text(
        "#include <unistd.h>\n"
        "int main(void) { char c; if (write(1, &c, 1) != 1) return 1; return read(0, &c, 1) != 0; }\n"
    )
    heap = heap_of(source)
    keys = ("system_bytes", "live_bytes", "free_bytes", "releasable_bytes", "resident_bytes", "mapped_blocks")
    assert [heap[key] for key in keys] == [0] * len(keys)
    assert heap["consistent"]


def test_process_that_works_is_read_without_stopping(program: Build) -> None:
    """Its figures drift between two readings, by what a thread with 1,000 blocks changes."""
    with running(program("fragments"), "3", "30") as fragments:
        still = fragments.diagnose()["glibc"]
        assert fragments.ask("work") == "working"
        consistent = 0
        for _ in range(10):
            heap = fragments.diagnose()["glibc"]
            consistent += heap["consistent"]
            assert abs(heap["free_bytes"] - still["free_bytes"]) < 5 * MIB
        assert consistent >= 8


def test_reading_leaves_no_trace_in_the_process(program: Build) -> None:
    with running(program("fragments"), "2", "20") as fragments:
        fragments.ask("trim")  # many pages are absent now, and must stay so
        first, status = fragments.diagnose()["resident_bytes"], Path(f"/proc/{fragments.process.pid}/status")
        tables = [line for line in status.read_text().splitlines() if line.startswith("VmPTE")]
        for _ in range(5):
            assert fragments.diagnose()["resident_bytes"] == first
        assert [line for line in status.read_text().splitlines() if line.startswith("VmPTE")] == tables


def failure(pid: int | str, status: int = 1) -> str:
    """Returns the one line with which heapwright-diagnose fails."""
    tool = native_program("heapwright-diagnose")
    done = subprocess.run([tool, str(pid)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1)
    return done.stderr


def test_unreadable_processes_are_named() -> None:
    assert "there is no process 4194303" in failure(4194303)
    assert "usage" in failure("x", 2)
    with subprocess.Popen(["true"]) as zombie:
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        assert "is a zombie" in failure(zombie.pid)
    kernel = next((p for p in Path("/proc").glob("[0-9]*/stat") if p.read_text().split()[3] == "2"), None)
    if kernel is not None:
        assert "of the kernel" in failure(int(kernel.parent.name))


def test_threads_are_told_from_processes(program: Build) -> None:
    with running(program("fragments"), "2", "1") as fragments:
        tasks = [int(task.name) for task in Path(f"/proc/{fragments.process.pid}/task").iterdir()]
        other = next(task for task in tasks if task != fragments.process.pid)
        assert f"is a thread of process {fragments.process.pid}" in failure(other)


def test_process_of_another_user_is_refused(program: Build) -> None:
    needs.root("run as another user")
    libc = ctypes.CDLL(None)
    with running(program("fragments"), "1", "1") as fragments:

        def become_nobody() -> None:
            libc.prctl(8, 0)  # PR_SET_KEEPCAPS: lose all capabilities
            os.setgid(65534)
            os.setuid(65534)

        done = subprocess.run(
            [native_program("heapwright-diagnose"), str(fragments.process.pid)],
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=become_nobody,
        )
        assert done.returncode == 1
        assert "belongs to user root and may not be read" in done.stderr


def test_root_without_the_capability_is_not_told_to_be_root(program: Build) -> None:
    needs.root("drop a capability")
    words = [needs.command("setpriv"), "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
    with running(program("fragments"), "1", "1") as fragments:
        words += [str(native_program("heapwright-diagnose")), str(fragments.process.pid)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "root lacks CAP_SYS_PTRACE here" in done.stderr


def test_interpreter_has_glibc_heap_too() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"], stdout=-1) as p:
        assert p.stdout is not None
        p.stdout.readline()
        try:
            assert diagnose(p.pid)["glibc"]["live_bytes"] > 100_000
        finally:
            p.kill()


@pytest.mark.long
@pytest.mark.xdist_group("glibcs")  # in one process, because they share the unpacked packages
@pytest.mark.parametrize("suite", ["bullseye", "trixie", "forky"])
@pytest.mark.parametrize("threads", [1, 4])
def test_other_versions_of_glibc(suite: str, threads: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    glibc: Glibc = unpacked(suite, tmp_path_factory.getbasetemp().parent / "glibcs")
    with running(*glibc.start, build_for(glibc), str(threads), "30") as fragments:
        heap = check(fragments)
        assert (heap["thread_cache_bytes"] is None) == (suite == "forky")  # from 2.42 on
        fragments.ask("trim")
        check(fragments)
