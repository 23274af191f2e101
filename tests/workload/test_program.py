"""One build of a program is told from another."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from heapwright.allocators.peers import build_id
from heapwright.workload.model import Workload, from_command, load_workload
from heapwright.workload.program import (
    ProgramIdentity,
    command_changes,
    identify_program,
    program_changes,
    program_json,
    without_outputs,
)

PERL = shutil.which("perl") or "perl"


def compiled(folder: Path, text: str, *options: str) -> Path:
    """A program in C."""
    source, program = folder / "prog.c", folder / "prog"
    source.write_text(text)
    subprocess.run(["cc", "-o", program, source, *options], check=True)
    return program


def of(folder: Path, *words: str, monkeypatch: pytest.MonkeyPatch) -> Workload:
    monkeypatch.chdir(folder)
    return from_command(list(words))


def kept(identity: ProgramIdentity) -> ProgramIdentity:
    """As a study gives it back."""
    return msgspec.convert(msgspec.to_builtins(identity), ProgramIdentity)


@pytest.mark.parametrize("ids", ["-Wl,--build-id", "-Wl,--build-id=none"])
def test_a_rebuilt_program_is_another(ids: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled(tmp_path, "int main(void) { return 0; }", ids)
    before = kept(identify_program(of(tmp_path, "./prog", monkeypatch=monkeypatch)))
    assert program_json(before)["build_id"] == build_id(str(program))
    assert len(str(program_json(before)["sha256"])) == 64
    assert program_changes(before) == []
    os.utime(program)
    assert program_changes(before) == [], "only touched"
    compiled(tmp_path, "int main(void) { return 1; }", ids)
    (change,) = program_changes(before)
    assert change.startswith(str(program))
    assert ("was rebuilt (build id" in change) == ("none" not in ids)
    program.unlink()
    assert program_changes(before) == [f"{program} is missing"]


def test_a_script_its_interpreter_and_what_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "work.pl"
    script.write_text(f"#!{PERL}\nprint 1;\n")
    script.chmod(0o755)
    data = tmp_path / "in.txt"
    data.write_text("1\n")
    before = kept(
        without_outputs(identify_program(of(tmp_path, "./work.pl", "--in=in.txt", "nothing", monkeypatch=monkeypatch)))
    )
    assert before.interpreter is not None
    assert before.interpreter.path == PERL
    assert any("libc.so" in library.path for library in before.libraries), "of the interpreter"
    assert [file.path for file in before.files] == [str(data)]
    data.write_text("2\n")
    assert program_changes(before) == [f"{data} changed"]
    data.write_text("1\n")
    script.write_text(f"#!{PERL}\nprint 2;\n")
    assert program_changes(before) == [f"{script} changed"]


def test_an_argument_that_is_a_script_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "work.pl"
    script.write_text("print 1;\n")
    before = kept(without_outputs(identify_program(of(tmp_path, "perl", "work.pl", monkeypatch=monkeypatch))))
    script.write_text("print 2;\n")
    assert program_changes(before) == [f"{script} changed"]


def test_a_file_that_the_program_writes_is_no_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.txt"
    out.write_text("0\n")
    first = identify_program(of(tmp_path, "perl", "-e1", "out.txt", monkeypatch=monkeypatch))
    out.write_text("1\n")  # as a run does
    before = without_outputs(first)
    out.write_text("2\n")
    assert program_changes(before) == []


def test_a_changed_library_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def library(value: int) -> None:
        (tmp_path / "part.c").write_text(f"int part(void) {{ return {value}; }}")
        subprocess.run(["cc", "-shared", "-o", tmp_path / "libpart.so", tmp_path / "part.c"], check=True)

    library(1)
    compiled(
        tmp_path,
        "int part(void); int main(void) { return part(); }",
        f"-L{tmp_path}",
        "-lpart",
        f"-Wl,-rpath,{tmp_path}",
    )
    before = kept(identify_program(of(tmp_path, "./prog", monkeypatch=monkeypatch)))
    library(2)
    (change,) = program_changes(before)
    assert "libpart.so" in change


def test_a_large_input_is_known_by_its_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heapwright.workload.program._WHOLE_BYTES", 4 << 20)
    large = tmp_path / "large.bin"
    large.write_bytes(bytes(5 << 20))
    before = kept(without_outputs(identify_program(of(tmp_path, "perl", "-e1", "large.bin", monkeypatch=monkeypatch))))
    os.utime(large)
    assert program_changes(before) == []
    with large.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    assert program_changes(before) == [f"{large} changed"]


def test_the_inputs_and_the_load_of_a_workload_count(tmp_path: Path) -> None:
    for name in ("load.sh", "one.txt", "two.txt", "result"):
        (tmp_path / name).write_text("1\n")
    file = tmp_path / "w.toml"
    file.write_text(
        'command = ["perl", "-e1"]\n[output]\ncompare = "files"\nfiles = ["result"]\n'
        '[server]\nready_port = 1\nload = ["sh", "load.sh", "result"]\n'
        '[[input]]\nname = "one"\nstdin = "one.txt"\n[[input]]\nname = "two"\nargs = ["two.txt"]\n'
    )
    identity = without_outputs(identify_program(load_workload(file)))
    assert sorted(Path(f.path).name for f in identity.files) == ["load.sh", "one.txt", "two.txt"]


def test_a_program_that_has_moved_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` names the program as it likes; files count only if it is given them."""
    compiled(tmp_path, "int main(void) { return 0; }")
    (tmp_path / "in.txt").write_text("1")
    before = kept(without_outputs(identify_program(of(tmp_path, "./prog", "in.txt", monkeypatch=monkeypatch))))
    elsewhere = tmp_path / "bin"
    elsewhere.mkdir()
    shutil.copy(tmp_path / "prog", elsewhere)
    (tmp_path / "in.txt").write_text("2")
    assert command_changes(before, ["bin/prog", "other.txt"], tmp_path) == []
    assert command_changes(before, ["bin/prog", "in.txt"], tmp_path) == [f"{tmp_path}/in.txt changed"]
    shutil.copy("/bin/true", elsewhere / "prog")
    (change,) = command_changes(before, ["bin/prog"], tmp_path)
    assert "was rebuilt" in change
