"""No native source takes the page size for known: arm64 has pages of 4, 16 and 64 KiB."""

from __future__ import annotations

import re

from tests.conftest import ROOT

# Source → the meaning of the number there, if not a page.
OTHERS = {
    "allocator/core/freed_by_others.h": "the size of blocks above which they go to its lists",
    "allocator/core/hardening.h": "offsets in a superblock, a piece that is wiped at once, a guard's smallest size",
    "allocator/core/huge_pages.h": "the largest block of classes that get huge pages",
    "allocator/core/remote_queue.h": "a guard's smallest size",
    "diagnose/cpython.cpp": "the smallest page, of which every page is a multiple",
    "diagnose/own_pass.cpp": "a piece that is read at once",
    "meter/massif_tracker.cpp": "a buffer",
    "meter/parts.cpp": "a buffer",
    "meter/procfs.cpp": "a buffer",
    "model/layout.cpp": "bytes that are too few to matter",
    "raw_format/format.h": "a number of writers",
    "recorder/chosen_objects.h": "the smallest page, of which every page is a multiple",
    "recorder/heap_size.h": "a buffer",
    "recorder/session.h": "a path's length",
    "recorder/settings.cpp": "a path's length",
    "recorder/system.cpp": "a buffer",
    "replay/ops.h": "a number of events, and of words",
    "replay/slots.h": "a number of events",
    "trace/event.h": "the page size of a trace whose file states none",
    "trace/heaptrack.cpp": "a buffer, and the smallest page size that a file may state",
    "trace/packed.h": "a number of threads",
}
PAGE_SIZE = re.compile(r"\b(4096|0x1000|4 ?\* ?1024|PAGE_SIZE)\b(?!')")


def sources() -> dict[str, str]:
    """The native sources but the benchmarks, which only allocate blocks of many sizes."""
    native = ROOT / "native"
    files = [file for file in native.rglob("*") if file.suffix in (".h", ".cpp")]
    return {str(file.relative_to(native)): file.read_text(encoding="utf-8") for file in files}


def with_page_size(texts: dict[str, str]) -> set[str]:
    return {name for name, text in texts.items() if PAGE_SIZE.search(text) and not name.startswith("benchmarks/")}


def test_no_source_has_the_page_size_as_a_number() -> None:
    assert with_page_size(sources()) == set(OTHERS)


def test_a_page_size_is_found() -> None:
    texts = {"a.cpp": "munmap(at, 4096);", "b.cpp": "x = 4 * 1024;", "c.cpp": "y = 14096;", "d.cpp": "getpagesize()"}
    assert with_page_size(texts) == {"a.cpp", "b.cpp"}
