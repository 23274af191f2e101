"""Which malloc a running process uses: preloaded, linked, in the program, or the C library's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from heapwright.allocators.registry import find_allocators, glibc_version
from heapwright.diagnose.environment import read_environment
from heapwright.diagnose.which_malloc import which_malloc
from heapwright.trace.record import recording_environment
from heapwright.trace.sampling import Sampling
from tests import needs
from tests.conftest import ROOT
from tests.processes import wait_for


@contextmanager
def waiting(*command: str | Path, **env: str) -> Iterator[int]:
    """Runs a program that waits for its input, and gives its process id once it has asked for it."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **env}) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"x\n")
        process.stdin.flush()
        assert process.stdout.read(1) == b"x"  # cat is past the dynamic linker
        yield process.pid
        process.stdin.close()


def test_the_malloc_of_the_c_library_is_named() -> None:
    with waiting("cat") as pid:
        found = which_malloc(pid)
    assert found.name == f"glibc {glibc_version()}"
    assert "libc.so" in found.evidence


@pytest.mark.parametrize("name", ["exgen", "jemalloc", "mimalloc", "tcmalloc"])
def test_the_malloc_of_a_preloaded_library_is_named(name: str) -> None:
    if name != "exgen":
        needs.peer(name)
    with waiting("cat", LD_PRELOAD=find_allocators()[name].preload) as pid:
        found = which_malloc(pid)
    assert name in found.name
    assert found.evidence.startswith("library /")


@pytest.mark.parametrize("code", ["", "void *malloc(unsigned long n) { return n ? 0 : duck_je_text; }"])
def test_a_malloc_that_only_a_library_uses_is_named(code: str, tmp_path: Path) -> None:
    source, library = tmp_path / "duck.c", tmp_path / "_duck.so"
    source.write_text(f'char duck_je_text[] = "<jemalloc>: Error in munmap(): %s"; {code}')
    subprocess.run([needs.command("gcc"), "-shared", "-fPIC", "-fno-builtin", "-o", library, source], check=True)
    load = f"import ctypes, sys; ctypes.CDLL({str(library)!r}); print('x', flush=True); sys.stdin.read()"
    with waiting(sys.executable, "-c", load) as pid:
        found = which_malloc(pid)
    assert found.name.startswith("glibc")
    assert found.private == ("_duck.so (jemalloc)",)
    with waiting("cat") as pid:
        assert which_malloc(pid).private == ()


def test_a_collector_in_a_library_is_named_if_it_has_most_of_the_memory(tmp_path: Path) -> None:
    from heapwright.diagnose.diagnosis import diagnose

    source, library = tmp_path / "gc.c", tmp_path / "libgc.so.1"
    source.write_text(
        "#include <string.h>\n#include <sys/mman.h>\n"
        "void take(void) { memset(mmap(0, 99 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 99 << 20); }\n"
    )
    subprocess.run([needs.command("gcc"), "-shared", "-fPIC", "-o", library, source], check=True)
    load = f"import ctypes, sys; gc = ctypes.CDLL({str(library)!r}); {{}}; print('x', flush=True); sys.stdin.read()"
    for taken, name in (("gc.take()", "bdwgc"), ("0", "")):
        with waiting(sys.executable, "-c", load.format(taken)) as pid:
            found = diagnose(pid)
        assert found.figures.managed == name
        assert ("GC_FREE_SPACE_DIVISOR" in found.advice.sentence) == bool(name)


def test_the_advice_keeps_the_settings_of_the_process() -> None:
    from heapwright.diagnose.diagnosis import diagnose, sum_processes

    needs.peer("jemalloc")
    library = find_allocators()["jemalloc"].preload
    fill = "import sys; keep = [bytearray(2000) for _ in range(20000)]; print('x', flush=True); sys.stdin.read()"
    found = []
    for conf in ("narenas:2", "narenas:3"):
        env = {"LD_PRELOAD": str(library), "MALLOC_CONF": conf, "PYTHONMALLOC": "malloc"}
        with waiting(sys.executable, "-c", fill, **env) as pid:
            wait_for(lambda pid=pid: diagnose(pid).advice.kind == "unknown")  # type: ignore[misc]
            found.append(diagnose(pid))
    assert found[0].advice.steps[0].startswith("its own figures: MALLOC_CONF=narenas:2,stats_print:true, ")
    assert found[1].advice.steps[1] == "MALLOC_CONF=narenas:3,dirty_decay_ms:0, if they show free pages"
    assert "dirty_decay_ms:0 added to MALLOC_CONF" in sum_processes(found).advice.steps[1]


def test_all_tunables_of_the_process_are_read() -> None:
    """glibc 2.36 divides them by NULs in the memory that the kernel shows as the environment."""
    tunables = "glibc.malloc.arena_max=16:glibc.malloc.tcache_count=0:glibc.malloc.perturb=0"
    with waiting("cat", GLIBC_TUNABLES=tunables, HW_LAST="x=y") as pid:
        found = read_environment(pid)
    assert found is not None
    assert (found["GLIBC_TUNABLES"], found["HW_LAST"]) == (tunables, "x=y")
    assert not any(name.startswith("glibc.") for name in found)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(rate=8)], ids=["all", "sample"])
def test_a_recorder_is_no_malloc_of_its_own(sampling: Sampling, tmp_path: Path) -> None:
    with waiting("cat", **recording_environment(tmp_path, None, True, {}, sampling)) as pid:
        assert any(tmp_path.glob("*.raw"))
        assert which_malloc(pid).name == f"glibc {glibc_version()}"


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
def test_a_malloc_in_the_program_is_named(static: bool, tmp_path: Path) -> None:
    """A program that defines malloc itself has no known family; a static one with glibc's malloc is told by texts."""
    source = tmp_path / "echo.c"
    source.write_text(
        "#include <stdlib.h>\n#include <unistd.h>\n"
        + (
            ""
            if static
            else "static char room[99999]; void *malloc(size_t n) { return n < 99999 ? room : 0; }\n"
            "void free(void *p) { (void)p; }\n"
        )
        + "int main(void) { char c; char *p = malloc(9); (void)p; while (read(0, &c, 1) == 1) if (write(1, &c, 1) != 1)"
        " return 1; free(p); return 0; }\n"
    )
    built = tmp_path / "echo"
    subprocess.run(["cc", "-O0", *(["-static"] if static else []), "-o", built, source], check=True)
    with waiting(built) as pid:
        found = which_malloc(pid)
    if static:
        assert found.name.startswith("glibc")
    else:
        assert found.name == "unknown"
        assert "defined in the program" in found.evidence


@pytest.mark.parametrize("options", [[], ["-static"]], ids=["dynamic", "static"])
def test_the_malloc_of_musl_is_named(options: list[str], tmp_path: Path) -> None:
    source = tmp_path / "echo.c"
    source.write_text(
        "#include <stdlib.h>\n#include <unistd.h>\nint main(void) { char *p = malloc(9);"
        " while (read(0, p, 1) == 1) if (write(1, p, 1) != 1) return 1; free(p); return 0; }\n"
    )
    built = tmp_path / "echo"
    subprocess.run([needs.command("musl-gcc"), "-O0", *options, "-o", built, source], check=True)
    with waiting(built) as pid:
        assert which_malloc(pid).name == "musl"


GO = """package main

%s
import "os"

func main() {
	c := make([]byte, 1)
	for n, _ := os.Stdin.Read(c); n == 1; n, _ = os.Stdin.Read(c) {
		os.Stdout.Write(c)
	}
}
"""


@pytest.mark.parametrize("cgo", [False, True], ids=["pure", "cgo"])
def test_go_programs_have_a_malloc_if_they_have_c_code(cgo: bool, tmp_path: Path) -> None:
    (tmp_path / "echo.go").write_text(GO % ('// #include <stdlib.h>\nimport "C"' if cgo else ""))
    built = tmp_path / "echo"
    env = {**os.environ, "CGO_ENABLED": str(int(cgo)), "GO111MODULE": "off", "GOCACHE": str(ROOT / "build/go-cache")}
    subprocess.run([needs.command("go"), "build", "-o", built, tmp_path / "echo.go"], check=True, env=env)
    with waiting(built) as pid:
        found = which_malloc(pid)
    assert found.name == (f"glibc {glibc_version()}" if cgo else "Go runtime")
    assert "the Go compiler made" in found.evidence


def test_the_malloc_of_a_missing_process_is_unknown() -> None:
    assert which_malloc(2**22 + 1).name == "unknown"
