"""The files of each platform: the right machine, few libraries, no symbol of a newer glibc."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

from tests import needs
from tests.platforms.conftest import LIBRARIES, Platform

PROGRAMS = ("heapwright-meter", "heapwright-trace", "heapwright-diagnose")
OURS = (*(f"lib/lib{name}.so" for name in LIBRARIES), "lib/libheapwright-record.so", "lib/libheapwright-sample.so")
GLIBC = {"libc.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def facts(path: Path) -> tuple[str, set[str], set[str], int]:
    """The machine of an ELF file, the libraries and versions that it needs, and its DT_FLAGS_1."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        dynamic: Any = elf.get_section_by_name(".dynamic")
        tags = list(dynamic.iter_tags()) if dynamic else []
        versions: Any = elf.get_section_by_name(".gnu.version_r")
        named = {aux.name for _, auxes in (versions.iter_versions() if versions else ()) for aux in auxes}
        needed = {tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"}
        flags = next((tag.entry.d_val for tag in tags if tag.entry.d_tag == "DT_FLAGS_1"), 0)
        return elf["e_machine"], needed, named, flags


def test_every_file_is_there(built: Platform) -> None:
    wanted = [*PROGRAMS, "heapwright-replay", *OURS, *(f"lib/lib{name}.a" for name in LIBRARIES)]
    wanted += ["include/exgen.h", "include/reaper.h", "include/heapwright.h"]
    assert [name for name in wanted if not (built.folder / name).is_file()] == []


def test_files_are_for_this_machine_and_need_only_the_c_library(built: Platform) -> None:
    machine = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}[built.name.split("-")[0]]
    libraries = GLIBC if built.name.endswith("glibc") else {"libc.so"}
    for name in (*OURS, "heapwright-replay"):
        found, needed, _, _ = facts(built.folder / name)
        assert (name, found) == (name, machine)
        assert needed, name
        assert needed <= libraries, name
    for name in PROGRAMS:
        assert facts(built.folder / name)[:3] == (machine, set(), set()), name


def test_no_symbol_is_newer_than_glibc_2_17(built: Platform) -> None:
    for name in (*OURS, "heapwright-replay"):
        versions = facts(built.folder / name)[2]
        assert bool(versions) == built.name.endswith("glibc"), name
        newer = {
            v for v in versions if (found := re.fullmatch(r"GLIBC_2\.(\d+)(\.\d+)?", v)) is None or int(found[1]) > 17
        }
        assert newer == set(), name


def test_allocators_are_initialised_first_and_stay(built: Platform) -> None:
    initfirst, nodelete = 0x20, 0x8
    for name in LIBRARIES:
        flags = facts(built.folder / f"lib/lib{name}.so")[3]
        assert flags & (initfirst | nodelete) == initfirst | nodelete, name


def test_no_library_asks_the_loader_where_a_thread_s_variable_is(built: Platform) -> None:
    """glibc's loader may allocate then, in the middle of a call of malloc or of a fork."""
    dynamic = {"EM_X86_64": {16, 36}, "EM_AARCH64": {1028, 1031}}  # DTPMOD and TLSDESC
    for name in OURS:
        with (built.folder / name).open("rb") as file:
            elf = ELFFile(file)
            sections: list[Any] = [each for each in elf.iter_sections() if each["sh_type"] == "SHT_RELA"]
            kinds = {relocation["r_info_type"] for each in sections for relocation in each.iter_relocations()}
            assert kinds & dynamic[elf["e_machine"]] == set(), name


def test_the_files_of_a_platform_are_a_few_megabytes(built: Platform) -> None:
    total = sum(file.stat().st_size for file in built.folder.rglob("*") if file.is_file())
    assert total < 16 << 20


def test_cmake_finds_the_archives_in_the_folder(built: Platform, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(finds NONE)\nfind_package(heapwright REQUIRED)\n"
        "foreach(name exgen reaper)\nforeach(kind LOCATION_NOCONFIG LOCATION_RELEASE LOCATION_NONE)\n"
        "get_target_property(path heapwright::${name} IMPORTED_${kind})\nif(path)\nmessage(STATUS found=${path})\n"
        "endif()\nendforeach()\nendforeach()\n"
    )
    words: list[str | Path] = [
        needs.command("cmake"),
        "-S",
        tmp_path,
        "-B",
        tmp_path / "build",
        f"-Dheapwright_ROOT={built.folder}",
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"found=(.*)$", done.stdout, re.MULTILINE)
    assert found == [str(built.folder / f"lib/lib{name}.a") for name in ("exgen", "reaper")]
