"""Tests that damaged, foreign and odd files end in one clear line, and in nothing else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heapwright.elf.image import read_image
from heapwright.elf.note import OWNER, LinkedAllocator, note_object, read_note
from heapwright.errors import HeapwrightError
from heapwright.link.archive import Archive
from heapwright.link.closure import read_input
from heapwright.link.judge import inspect_files
from heapwright.link.linker_command import read_line, read_script

from .conftest import Build, run


def refusal(path: Path) -> str:
    with pytest.raises(HeapwrightError) as caught:
        inspect_files([path])
    message = f"{caught.value.message} {caught.value.hint}"
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"#!/usr/bin/perl -w\nprint 1", "is a script for /usr/bin/perl -w"),
        (b"hello", "is not an ELF file, but text"),
        (b"\0\1\2\3" * 50, "is not an ELF file"),
        (b"MZ" + bytes(200), "is a program for another operating system"),
        (b"\x7fELF", "damaged ELF file"),
        (b"\x7fELF\x02\x01\x01" + bytes(60), "ELF file"),
        (b"\x7fELF\x09\x01\x01" + bytes(60), "damaged ELF file"),
        (b"!<arch>\nnonsense", "damaged archive"),
    ],
)
def test_files_that_cannot_be_judged_are_refused_with_a_reason(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "x").write_bytes(content)
    assert says in refusal(tmp_path / "x")


def test_directories_devices_and_missing_files_are_refused(tmp_path: Path) -> None:
    assert "is a directory" in refusal(tmp_path)
    assert "not a regular file" in refusal(Path("/dev/null"))
    assert "No such file or directory" in refusal(tmp_path / "missing")


def test_an_empty_archive_and_one_without_an_index(compile_: Build, archive: Build, tmp_path: Path) -> None:
    (tmp_path / "empty.a").write_bytes(b"!<arch>\n")
    assert inspect_files([tmp_path / "empty.a"])[0].verdict == "single"
    made = archive("lib.a", compile_("a.c", "int f(void){return 0;}"), flags="rcS")
    main = compile_("m.c", "int f(void);int main(){return f();}")
    assert inspect_files([main, made])[0].verdict == "single"


def test_a_thin_archive_whose_member_is_gone(compile_: Build, archive: Build) -> None:
    member = compile_("a.c", "int f(void){return 0;}")
    thin = archive("lib.a", member, flags="rcsT")
    member.unlink()
    assert "a thin archive needs its members" in refusal(thin)


def test_long_names_of_members(compile_: Build, archive: Build) -> None:
    member = compile_(f"{'long' * 20}.c", "int f(void){return 0;}")
    found = read_input(archive("lib.a", member))
    assert isinstance(found, Archive)
    assert [image.name for image in found.members] == [f"{found.path}({member.name})"]


@pytest.mark.long
def test_damage_is_never_more_than_a_line(compile_: Build, tmp_path: Path) -> None:
    """Bytes changed at random and ends cut off: a verdict or a HeapwrightError, nothing else."""
    made = compile_(
        "a.c", "#include <stdlib.h>\nint f(int x){return x;}\nint main(){return f(rand());}", "-ffunction-sections"
    )
    run("gcc", made, "-o", tmp_path / "prog")
    run("ar", "rcs", tmp_path / "lib.a", made)
    chance = random.Random(8)
    said = []
    for path in (made, tmp_path / "prog", tmp_path / "lib.a"):
        whole = path.read_bytes()
        for _ in range(80):
            content = bytearray(whole)
            for _ in range(chance.randint(1, 30)):
                start = chance.choice((0, 0, len(content) - 1500, chance.randrange(len(content))))
                content[max(0, start + chance.randrange(64)) % len(content)] = chance.randrange(256)
            if chance.random() < 0.3:
                del content[chance.randrange(len(content)) :]
            (tmp_path / "damaged").write_bytes(content)
            try:
                inspect_files([tmp_path / "damaged"])
            except HeapwrightError as error:
                said.append(error.message)
    assert len(said) > 50
    assert not [message for message in said if "\n" in message]


def test_linker_scripts_name_their_libraries(tmp_path: Path) -> None:
    script = tmp_path / "libx.so"
    script.write_text(
        "/* GNU ld script\n*/\nOUTPUT_FORMAT(elf64-x86-64)\nGROUP ( /lib/a.so.1 -lb AS_NEEDED ( c.so ) d.a )"
    )
    assert read_script(script) == [("/lib/a.so.1", False), ("-lb", False), ("c.so", True), ("d.a", False)]
    script.write_text("#!/bin/sh\necho")
    with pytest.raises(HeapwrightError, match="nor a linker script"):
        read_script(script)


def test_linker_scripts_that_name_each_other_end_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "liba.so").write_text("INPUT(./liba.so)")
    with pytest.raises(HeapwrightError, match="linker scripts name each other"):
        read_line([str(tmp_path / "liba.so")])


_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)


@given(why=_TEXT, options=st.text("abc=,019", max_size=30), machine=st.sampled_from(["EM_X86_64", "EM_AARCH64"]))
def test_notes_come_back(why: str, options: str, machine: str) -> None:
    linked = LinkedAllocator("exgen", "1", "static", "single", why, options)
    image = read_image(note_object(linked, machine), "note.o")
    assert image.kind == "object"
    assert image.machine == machine
    assert read_note(image) == linked
    assert ("heapwright_built_in_options" in image.defined) == bool(options)


def test_a_foreign_note_is_passed_over() -> None:
    image = read_image(note_object(LinkedAllocator("exgen", "1", "static", "single", ""), "EM_X86_64"), "note.o")
    for data in (b"nonsense", b"[1]", b"\xff\xfe", b"[" * 100_000):
        image.notes[OWNER] = [data]
        assert read_note(image) is None
