"""Libraries with a malloc of their own: found in a run of the program, and their settings searched."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from heapwright.allocators.library_mallocs import find_library_mallocs
from heapwright.allocators.registry import find_allocators
from heapwright.allocators.space import build_space
from heapwright.allocators.space_spec import Context
from heapwright.study.load import load_view
from tests.embedded import build_library_with_jemalloc
from tests.system.conftest import Heapwright

ALL = {"dirty_decay_ms", "narenas", "tcache", "thp"}


def test_a_library_with_a_jemalloc_under_other_names(tmp_path: Path) -> None:
    program, library = build_library_with_jemalloc(tmp_path)
    (found,) = find_library_mallocs([str(program), str(library), sys.executable])
    assert (found.path, found.name, found.families) == (library, "pool", ("jemalloc",))
    assert (found.variable, found.version.split(".")[0]) == ("_RJEM_MALLOC_CONF", "5")
    file = found.space()
    assert file is not None
    space = build_space(file, Context(found.version, 2, threads=True, expert=False, thp="madvise"), "jemalloc")
    assert {param.key for param in space.params} == ALL
    env = space.environment({"narenas": "1"}, {"_RJEM_MALLOC_CONF": "tcache:false"})
    assert env == {"_RJEM_MALLOC_CONF": "tcache:false,narenas:1"}


def test_libraries_that_are_the_malloc_have_none_of_their_own() -> None:
    libraries = [a.preload for a in find_allocators().values() if a.preload]
    assert libraries
    assert find_library_mallocs(libraries) == []


def test_settings_are_unknown_where_the_malloc_in_use_is(tmp_path: Path) -> None:
    """As in libarrow, which has two and takes one of them."""
    _, library = build_library_with_jemalloc(tmp_path)
    (found,) = find_library_mallocs([str(library)])
    assert found._replace(families=("jemalloc", "mimalloc")).space() is None
    assert found._replace(variable="").space() is None
    assert found._replace(families=("mimalloc",)).space() is None


def test_tune_searches_the_settings_of_a_librarys_malloc(tmp_path: Path) -> None:
    """It proves what no malloc of the program can change: the library keeps free memory for ten seconds."""
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
    done = Heapwright(tmp_path, report=False, forked=True)("tune", *words, "--study", "s.study", "--", str(program))
    assert done.status == 0, done.err
    said = "libpool.so.1 has a malloc of its own (jemalloc 5."
    assert said in " ".join(done.err.split())
    found = json.loads((tmp_path / "found.json").read_text())
    (one,) = found["runtimes"]
    assert (one["name"], one["title"], one["program"], one["library"]) == ("pool", "jemalloc", None, str(library))
    assert found["runtime"] is None
    pick = load_view(tmp_path / "s.study").picks["memory"]
    assert pick.config.settings["pool.dirty_decay_ms"]
    assert "dirty_decay_ms:" in pick.config.env["_RJEM_MALLOC_CONF"]
    assert "lower" in pick.claim
