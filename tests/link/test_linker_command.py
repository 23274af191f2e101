"""The linker's command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from heapwright.link.linker_command import LinkLine, read_line


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("a.o", "b.o", "lib/libx.so", "lib/libx.a", "lib/liby.a", "other/liby.a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"\x7fELF" + bytes(20))
    return tmp_path


def names(line: LinkLine) -> list[str]:
    return [str(one.path) for one in line.inputs]


@pytest.mark.usefixtures("files")
def test_inputs_in_order_and_libraries_found() -> None:
    line = read_line(
        [
            "-plugin",
            "p.so",
            "-o",
            "prog",
            "-m",
            "elf_x86_64",
            "a.o",
            "-lx",
            "-L",
            "lib",
            "-L=other",
            "-ly",
            "b.o",
            "-lz",
            "-rpath",
            "/x",
            "-z",
            "now",
        ]
    )
    assert names(line) == ["a.o", "lib/libx.so", "lib/liby.a", "b.o"]
    assert line.lost == ["-lz"]
    assert (line.output, line.program, line.static) == ("prog", True, False)


@pytest.mark.usefixtures("files")
def test_states_hold_where_they_stand() -> None:
    words = "-Llib -Bstatic -lx -Bdynamic --push-state --as-needed -lx --pop-state --whole-archive -ly"
    line = read_line([*words.split(), "--no-whole-archive", "-l:libx.a"])
    assert names(line) == ["lib/libx.a", "lib/libx.so", "lib/liby.a", "lib/libx.a"]
    assert [(one.as_needed, one.whole) for one in line.inputs] == [
        (False, False),
        (True, False),
        (False, True),
        (False, False),
    ]


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("word", ["-shared", "-r", "--relocatable", "-Bshareable", "-i"])
def test_lines_that_link_no_program_are_recognised(word: str) -> None:
    assert not read_line(["a.o", word]).program


@pytest.mark.parametrize("word", ["x" * 5000, "@" + "x" * 5000, "-l" + "x" * 5000, "a\0b", "@a\0b"])
def test_words_that_cannot_be_names_of_files(word: str) -> None:
    line = read_line(["-L.", word])
    assert (names(line), line.lost) == ([], [word])


def test_response_files_are_read_within_each_other(files: Path) -> None:
    (files / "words").write_text("a.o '-o' \"my prog\" @more @missing")
    (files / "more").write_text("-static\nb.o")
    line = read_line(["@words"])
    assert names(line) == ["a.o", "b.o"]
    assert (line.output, line.static, line.lost) == ("my prog", True, ["@missing"])


@pytest.mark.usefixtures("files")
def test_options_joined_to_their_value_are_read() -> None:
    line = read_line(["-oprog", "-Llib", "-lx", "--entry=begin", "--output=other", "-T", "script", "a.o", "-E"])
    assert names(line) == ["lib/libx.so", "a.o"]
    assert (line.output, line.entry, line.exported) == ("other", "begin", True)
