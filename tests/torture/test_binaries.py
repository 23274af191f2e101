"""Checks in the ELF files of our programs and libraries how they are hardened.

All are position-independent, with read-only relocations bound at start, a stack that is not executable, no segment
both writable and executable, and no run path. Programs that read untrusted data (heapwright-diagnose, the meter,
heapwright-trace) also have stack protectors, checked C library calls and checked containers. Programs and libraries
that are timed have none of these: for allocators, recorder, replayer and benchmarks the tests check only the hardening
of the link.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from heapwright.files import NATIVE
from tests import needs
from tests.conftest import ROOT

NATIVE = NATIVE
NAMES = (
    *(f"heapwright-{name}" for name in ("diagnose", "meter", "replay", "trace")),
    "benchmarks/bench-realistic",
    *(f"lib/lib{name}.so" for name in ("exgen", "exgen-secure", "reaper", "reaper-secure")),
    *(f"lib/libheapwright-{name}.so" for name in ("no-huge-pages", "nomain", "record", "sample")),
)
EXECUTABLE, WRITABLE = 1, 2
BIND_NOW, NOW, PIE = 0x8, 0x1, 0x08000000
# Object files of the sources that read untrusted data, where `make native` leaves them.
CAREFUL = (
    "native/diagnose/CMakeFiles/diagnose.dir",
    "native/meter/CMakeFiles/meter.dir",
    "native/trace/CMakeFiles/trace.dir",
    "native/model/CMakeFiles/trace_model.dir",
)


def tags(elf: ELFFile) -> dict[str, int]:
    """The last value of each tag in the dynamic section."""
    section = elf.get_section_by_name(".dynamic")
    assert isinstance(section, DynamicSection)
    return {tag.entry.d_tag: tag.entry.d_val for tag in section.iter_tags()}


def is_ours(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def test_every_installed_file_is_checked() -> None:
    installed = {str(path.relative_to(NATIVE)) for path in NATIVE.rglob("*") if path.is_file() and is_ours(path)}
    assert {*NAMES} <= installed
    assert {name for name in installed - {*NAMES} if not name.startswith("benchmarks/bench-")} == set()


@pytest.mark.parametrize("name", NAMES)
def test_is_linked_hardened(name: str) -> None:
    with (NATIVE / name).open("rb") as file:
        elf = ELFFile(file)
        segments = {segment.header.p_type: segment.header.p_flags for segment in elf.iter_segments()}
        both = [s for s in elf.iter_segments() if s.header.p_flags & EXECUTABLE and s.header.p_flags & WRITABLE]
        dynamic = tags(elf)
        assert elf.header.e_type == "ET_DYN", "not position-independent"
        assert "PT_GNU_RELRO" in segments
        assert not segments["PT_GNU_STACK"] & EXECUTABLE
        assert both == []
        assert dynamic.get("DT_FLAGS", 0) & BIND_NOW or dynamic.get("DT_FLAGS_1", 0) & NOW, "bound lazily"
        assert name.endswith(".so") or dynamic["DT_FLAGS_1"] & PIE
        assert ("PT_INTERP" in segments) == (not name.endswith(".so") and name != "heapwright-meter"), (
            "the meter is static"
        )
        assert not {"DT_TEXTREL", "DT_RPATH", "DT_RUNPATH"} & dynamic.keys()


def wanted(folder: Path) -> Iterator[set[str]]:
    """Yields the undefined symbols of each object file."""
    for path in sorted(folder.rglob("*.o")):
        with path.open("rb") as file:
            table = ELFFile(file).get_section_by_name(".symtab")
            assert isinstance(table, SymbolTableSection)
            yield {symbol.name for symbol in table.iter_symbols() if symbol.entry.st_shndx == "SHN_UNDEF"}


@pytest.mark.parametrize("folder", CAREFUL)
def test_is_compiled_hardened(folder: str) -> None:
    objects = [*wanted(ROOT / "build/native" / folder)]
    if not objects:
        needs.not_built("build/native (make native)")
    assert sum("__stack_chk_fail" in names for names in objects) >= len(objects) / 2
    # std::__glibcxx_assert_fail: an index beyond a vector's end stops the program.
    assert any("_ZSt21__glibcxx_assert_failPKciS0_S0_" in names for names in objects)


def test_checked_calls_are_used() -> None:
    objects = [names for folder in CAREFUL for names in wanted(ROOT / "build/native" / folder)]
    if not objects:
        needs.not_built("build/native (make native)")
    assert {name for names in objects for name in names if name.startswith("__") and name.endswith("_chk")}
