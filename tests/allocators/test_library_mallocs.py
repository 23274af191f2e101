"""Libraries with a malloc of their own: found in a run of the program, and their settings searched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from heapwright.allocators.library_mallocs import find_library_mallocs
from heapwright.allocators.registry import find_allocators, get_allocator
from heapwright.allocators.space import build_space
from heapwright.allocators.space_spec import Context
from heapwright.study.load import load_view
from heapwright.tuning.runtimes import find_extra_spaces
from tests import needs
from tests.embedded import build_library_with_jemalloc
from tests.system.conftest import Heapwright

ALL = {"dirty_decay_ms", "narenas", "tcache", "thp"}


def test_a_library_with_a_jemalloc_under_other_names(tmp_path: Path) -> None:
    program, library = build_library_with_jemalloc(tmp_path)
    (found,) = find_library_mallocs([str(program), str(library), sys.executable])
    assert (found.paths, found.name, found.families) == ((library,), "pool", ("jemalloc",))
    assert (found.variable, found.version.split(".")[0]) == ("_RJEM_MALLOC_CONF", "5")
    context = Context(found.version, 2, threads=True, expert=False, thp="madvise")
    space = build_space(found.space("pool"), context, "jemalloc")
    assert {param.key for param in space.params} == ALL
    assert not any(param.spec.replayable for param in space.params), "a replay has no block of the library"
    env = space.environment({"narenas": "1"}, {"_RJEM_MALLOC_CONF": "tcache:false"})
    assert env == {"_RJEM_MALLOC_CONF": "tcache:false,narenas:1"}


def test_libraries_that_read_one_variable_are_one(tmp_path: Path) -> None:
    """As all of Rust with the jemalloc crate: two settings for one variable would contradict each other."""
    _, library = build_library_with_jemalloc(tmp_path)
    other = Path(shutil.copy(library, tmp_path / "_internal.abi3.so"))
    (found,) = find_library_mallocs([str(library), str(other)])
    assert found.paths == (other, library)
    assert found.name == "internal"


def test_libraries_that_are_the_malloc_have_none_of_their_own() -> None:
    libraries = [a.preload for a in find_allocators().values() if a.preload]
    assert libraries
    assert find_library_mallocs(libraries) == []


def test_a_library_that_only_names_tcmalloc_has_no_malloc(tmp_path: Path) -> None:
    source, library = tmp_path / "names.c", tmp_path / "libnames.so"
    source.write_text('const char name[] = "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES";')
    subprocess.run([needs.command("gcc"), "-shared", "-fPIC", "-o", library, source], check=True)
    assert find_library_mallocs([str(library), f"{library} (deleted)"]) == []


def test_settings_are_unknown_where_the_malloc_in_use_is(tmp_path: Path) -> None:
    """As in libarrow, which has two and takes one of them."""
    _, library = build_library_with_jemalloc(tmp_path)
    (found,) = find_library_mallocs([str(library)])
    assert found.space("pool").param
    assert not found._replace(families=("jemalloc", "mimalloc")).space("pool").param
    assert not found._replace(variable="").space("pool").param
    assert not found._replace(families=("mimalloc",)).space("pool").param


def test_tune_searches_the_settings_of_a_librarys_malloc(tmp_path: Path) -> None:
    """The library keeps free memory for ten seconds. Only a setting of its own malloc changes that."""
    program, library = build_library_with_jemalloc(tmp_path)
    words = (
        "--json",
        "found.json",
        "--allocator",
        "glibc",
        "--minimize",
        "peak_rss",
        "--budget",
        "16",
        "--pairs",
        "6:6",
        "--no-minify",
    )
    command = ("tune", *words, "--study", "s.study", "--", str(program), "100")
    done = Heapwright(tmp_path, report=False, forked=True)(*command)
    assert done.status == 0, done.err
    said = "libpool.so.1 has a malloc of its own (jemalloc 5."
    assert said in " ".join(done.err.split())
    found = json.loads((tmp_path / "found.json").read_text())
    (one,) = found["runtimes"]
    assert (one["name"], one["title"], one["program"], one["libraries"]) == ("pool", "jemalloc", None, [str(library)])
    assert found["runtime"] is None
    pick = load_view(tmp_path / "s.study").picks["memory"]
    assert pick.config.settings["pool.dirty_decay_ms"]
    assert "dirty_decay_ms:" in pick.config.env["_RJEM_MALLOC_CONF"]
    assert "lower" in pick.claim
    done = Heapwright(tmp_path, report=False, forked=True)(*command, env={"_RJEM_MALLOC_CONF": "narenas:1"})
    assert done.status == 1
    assert "was measured with _RJEM_MALLOC_CONF unset in the environment, now it is" in done.err


def test_compare_says_what_no_row_shows(tmp_path: Path) -> None:
    program, _ = build_library_with_jemalloc(tmp_path)
    words = ("compare", "-n", "2", "--allocators", "glibc,exgen", "--json", "-", "--")
    warned = "libpool.so.1 has a malloc of its own (jemalloc), which no other malloc replaces."
    heapwright = Heapwright(tmp_path, forked=True)
    found = json.loads(heapwright(*words, str(program), "100").out)
    assert any(text.startswith(warned) for text in found["warnings"]), found["warnings"]
    assert json.loads(heapwright(*words, "sort", str(tmp_path / "main.c")).out)["warnings"] == []


def test_the_settings_of_a_library_can_be_named(tmp_path: Path) -> None:
    program, _ = build_library_with_jemalloc(tmp_path)
    heapwright = Heapwright(tmp_path, report=False, forked=True)
    words = ("--allocator", "glibc", "--minimize", "peak_rss", "--budget", "4", "--pairs", "6:6", "--no-minify")
    done = heapwright("tune", "--params", "pool.tcache", *words, "--study", "s.study", "--", str(program), "100")
    assert done.status == 0, done.err
    assert "its settings are searched too (tcache)." in done.err
    done = heapwright("tune", "--params", "poll.tcache", *words, "--study", "t.study", "--", str(program), "100")
    assert done.status == 1
    assert "heapwright: the program has no library 'poll' with a malloc of its own" in done.err
    done = heapwright("tune", "--params", "jemalloc.tcache", *words, "--study", "u.study", "--", str(program), "100")
    assert (done.status, (tmp_path / "u.study").exists()) == (2, False), "jemalloc is an allocator, and not searched"


def session(command: list[str], allocators: tuple[str, ...] = ("glibc", "jemalloc")) -> Any:
    """What `find_extra_spaces` reads of a session."""
    first = SimpleNamespace()
    workload = SimpleNamespace(train=[first], command=lambda _: command, program=lambda _: command[0])
    cache = SimpleNamespace(base=dict(os.environ))
    found = [get_allocator(name) for name in allocators if name in find_allocators()]
    options = SimpleNamespace(expert=False, params=())
    return SimpleNamespace(
        added=(), workload=workload, config_cache=cache, allocators=found, options=options, threads=True
    )


def test_a_library_does_not_hide_the_runtime_behind_a_shell() -> None:
    """The libraries are those of the process with the most memory, not those of the shell that starts it."""
    python = needs.command("/usr/bin/python3")
    shell = session(["sh", "-c", f"{python} report.py"])
    names = [extra.space.allocator.name for extra in find_extra_spaces(shell, python, ["/opt/lib/libgomp.so.1"])]
    assert names[:2] == ["cpython", "openmp"]


def test_the_name_of_a_library_is_no_allocators(tmp_path: Path) -> None:
    """Two spaces of one name would end the study."""
    needs.peer("jemalloc")
    _, library = build_library_with_jemalloc(tmp_path)
    copy = shutil.copy(library, tmp_path / "libjemalloc.so.9")
    (extra,) = (e for e in find_extra_spaces(session(["sort"]), "", [str(copy)]) if e.libraries)
    assert extra.space.allocator.name == "jemalloc-2"
    assert extra.libraries == (str(copy),)
