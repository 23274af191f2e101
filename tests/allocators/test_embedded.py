"""Allocators that are linked into programs: recognised by their texts, asked in the program itself, before its main."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from heapwright.allocators.embedded import embedded_name, embedded_obstacle, find_embedded
from heapwright.allocators.library_report import can_ask, effective_settings
from heapwright.allocators.registry import get_allocator
from heapwright.allocators.user_settings import environment_problems
from tests import needs
from tests.embedded import build_prefixed_jemalloc, build_with

Program = Callable[..., Path]

# As mimalloc prints it under MIMALLOC_VERBOSE, with one option of its own; main must not run.
LIKE_MIMALLOC = r"""
#include <stdio.h>
#include <stdlib.h>
static const char* volatile text = "mimalloc: warning: environment option mimalloc_%s has an invalid value.";
__attribute__((constructor)) static void start(void) {
  const char* delay = getenv("MIMALLOC_PURGE_DELAY");
  if (getenv("MIMALLOC_VERBOSE") != NULL && text != NULL) {
    fprintf(stderr, "v3.1.4 (built on)\noption 'purge_delay': %s ms\noption 'deprecated_eager_commit': 1\n",
            delay != NULL ? delay : "1000");
  }
}
int main(void) { remove(getenv("WITNESS")); return 3; }
"""
ONLY_TEXT = 'static const char* volatile text = "{}"; int main(void) {{ return text == 0; }}'


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., str]:
    """Compiles a program from its text."""

    def compile_(text: str, *options: str) -> str:
        (tmp_path / "text.c").write_text(text)
        path = tmp_path / "".join(["own", *options])
        subprocess.run([needs.command("gcc"), "-O1", *options, "-o", path, tmp_path / "text.c"], check=True)
        return str(path)

    return compile_


def test_a_program_is_not_started_unless_it_may_be_asked(build: Callable[..., str], tmp_path: Path) -> None:
    """`diagnose` may run as root on a process of another user, so no code of that program may run."""
    started = tmp_path / "started"
    text = LIKE_MIMALLOC.replace("{\n  const", f'{{\n  fclose(fopen("{started}", "w"));\n  const', 1)
    path = build(text)
    assert find_embedded(path, ask=False) is not None
    assert not started.exists()
    assert find_embedded(path) is not None
    assert started.exists(), "this test would not notice"


@pytest.mark.parametrize("options", [(), ("-s",)])
def test_a_jemalloc_under_prefixed_names(options: tuple[str, ...], tmp_path: Path) -> None:
    """Like the Rust crate's, also in a stripped program: its variable has the prefix, and its settings take effect."""
    path = str(build_prefixed_jemalloc(tmp_path, *options))
    found = find_embedded(path)
    assert found is not None
    spec = found.file.allocator
    assert (found.name, spec.env, found.embedded, found.preload) == ("jemalloc", "_RJEM_MALLOC_CONF", True, "")
    assert str(found.version).startswith("5.")
    space = found.space(threads=True)
    assert {"dirty_decay_ms", "narenas", "tcache_max"} <= {p.key for p in space.params}
    env = space.environment({"narenas": "1"}, {"_RJEM_MALLOC_CONF": "dirty_decay_ms:0"})
    assert env == {"_RJEM_MALLOC_CONF": "dirty_decay_ms:0,narenas:1"}
    assert effective_settings(spec, path, {"narenas": "1"}, env) == {"narenas": "1"}


def test_a_jemalloc_that_is_the_programs_malloc(tmp_path: Path) -> None:
    found = find_embedded(str(build_with(tmp_path, "libjemalloc.a")))
    assert found is not None
    assert (found.name, found.file.allocator.env) == ("jemalloc", "MALLOC_CONF")
    assert "dirty_decay_ms" in {p.key for p in found.space(threads=True).params}


def test_a_static_program_is_read_and_not_run(tmp_path: Path) -> None:
    path = str(build_with(tmp_path, "libjemalloc.a", "-static", "-s"))
    found = find_embedded(path)
    assert found is not None
    assert not can_ask(path)
    assert (found.name, str(found.version)[:2]) == ("jemalloc", "5.")
    keys = {p.key for p in found.space(threads=True).params}
    assert {"dirty_decay_ms", "narenas", "tcache_max"} <= keys
    assert "lg_tcache_max" not in keys, "that is of jemalloc before 5.3"


@pytest.mark.long
def test_a_tcmalloc_linked_in(tmp_path: Path) -> None:
    for options in ((), ("-static",)):
        found = find_embedded(str(build_with(tmp_path, "libtcmalloc_minimal.a", *options)))
        assert found is not None
        assert (found.name, found.file.allocator.env) == ("tcmalloc", "TCMALLOC_{KEY}")
        assert "max_total_thread_cache_bytes" in {p.key for p in found.space(threads=True).params}


def test_the_program_is_asked_before_its_main(
    build: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = tmp_path / "witness"
    witness.touch()
    monkeypatch.setenv("WITNESS", str(witness))
    path = build(LIKE_MIMALLOC)
    found = find_embedded(path)
    assert found is not None
    assert (found.name, found.version, embedded_name(found)) == ("mimalloc", "3.1.4", "mimalloc 3.1.4")
    assert [p.key for p in found.space(threads=True).params] == ["purge_delay"], "what this very mimalloc knows"
    spec = found.file.allocator
    assert effective_settings(spec, path, {"purge_delay": "7"}, {"MIMALLOC_PURGE_DELAY": "7"}) == {"purge_delay": "7"}
    assert witness.exists(), "main has run"
    assert subprocess.run([path], check=False).returncode == 3
    assert not witness.exists(), "main would have removed it"


def test_a_program_without_the_c_librarys_start_is_not_asked(build: Callable[..., str]) -> None:
    """No process can end it before it has done its work."""
    assert can_ask(build("int main(void) { return 0; }"))
    start = 'void _start(void) { __asm__("mov $60, %eax; mov $3, %edi; syscall"); } '
    assert not can_ask(build(start + "int x;", "-nostartfiles"))


def test_programs_that_only_name_an_allocator(build: Callable[..., str]) -> None:
    """Texts are not enough where the program can be asked, or where malloc is the C library's."""
    for text in ("<jemalloc>: error", "environment option mimalloc_%s", "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES"):
        assert find_embedded(build(ONLY_TEXT.format(text))) is None, text


def test_python_has_a_mimalloc_that_it_does_not_use(build: Callable[..., str]) -> None:
    assert find_embedded(build(LIKE_MIMALLOC + 'const char* volatile own = "PYTHONMALLOC";')) is None


def test_ordinary_programs_have_no_embedded_allocator(program: Program, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    for name in (str(program("mapping_calls")), "sh", "perl", "no-such-program", "", str(tmp_path / "text")):
        assert find_embedded(name) is None, name


def test_other_allocators_cannot_serve_a_program_with_an_embedded_one(build: Callable[..., str]) -> None:
    path = build(LIKE_MIMALLOC)
    embedded = find_embedded(path)
    assert embedded is not None
    assert embedded_obstacle(embedded, embedded, path) == ""
    for name in ("glibc", "exgen"):
        assert (
            embedded_obstacle(embedded, get_allocator(name), path)
            == f"{name} cannot serve own: mimalloc 3.1.4 is linked into it"
        )


def test_settings_by_hand_are_held_against_the_embedded_allocator(build: Callable[..., str], tmp_path: Path) -> None:
    """They were held against the mimalloc of this machine, and a variable without the prefix passed."""
    mimalloc = find_embedded(build(LIKE_MIMALLOC))
    assert mimalloc is not None
    assert environment_problems({"MIMALLOC_PURGE_DELAY": "0"}, [mimalloc]) == []
    (trouble,) = environment_problems({"MIMALLOC_ARENA_EAGER_COMMIT": "0"}, [mimalloc])
    assert trouble.startswith("MIMALLOC_ARENA_EAGER_COMMIT=0 is ignored: mimalloc 3.1.4 has no such setting")
    jemalloc = find_embedded(str(build_prefixed_jemalloc(tmp_path)))
    assert jemalloc is not None
    assert environment_problems({"_RJEM_MALLOC_CONF": "narenas:1"}, [jemalloc]) == []
    (trouble,) = environment_problems({"_RJEM_MALLOC_CONF": "narena:1"}, [jemalloc])
    assert trouble.startswith("_RJEM_MALLOC_CONF: narena:1 is ignored: jemalloc 5.")
    assert "did you mean narenas?" in trouble
    (trouble,) = environment_problems({"MALLOC_CONF": "narenas:1"}, [jemalloc])
    assert trouble == "MALLOC_CONF is ignored: the jemalloc in this program reads _RJEM_MALLOC_CONF"
