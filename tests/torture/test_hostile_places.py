"""Tests that our files are private, complete and unpredictably named; tests set-user-ID programs as well."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from heapwright.cluster.worker import cache_folder, put_piece
from heapwright.errors import HeapwrightError
from heapwright.files import NATIVE, draft_of, write_whole
from heapwright.trace.pack import native_program
from tests import needs

from .fuzz.targets import template
from .hostile import HEAPWRIGHT, environment

LIBRARIES = NATIVE / "lib"

# While it runs, the target lists kind, mode and path of every file in TMPDIR and in its own folder.
LOOK = """#!/bin/sh
find "$TMPDIR" "$PWD" -mindepth 1 ! -path '*/seen' -printf '%y %m %p\\n' >>"$PWD/seen" 2>/dev/null
echo x
"""


@pytest.fixture
def look(tmp_path: Path) -> Path:
    program = tmp_path / "look"
    program.write_text(LOOK)
    program.chmod(0o755)
    (tmp_path / "tmp").mkdir()
    return program


def heapwright(folder: Path, *words: str, umask: int = 0) -> str:
    """Runs heapwright with a umask that allows everything; returns the list that the target made of its files."""
    done = subprocess.run(
        [HEAPWRIGHT, *words],
        cwd=folder,
        env={**environment(), "TMPDIR": str(folder / "tmp")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        umask=umask,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    seen = folder / "seen"
    return seen.read_text() if seen.exists() else ""


COMMANDS = {
    "tune": ["tune", "--allocators", "glibc", "--budget", "2", "--pairs", "6:6", "--method", "sobol", "--minimize",
             "peak_heap", "--study", "s.study"],
    "tune on replays": ["tune", "--allocators", "glibc", "--budget", "4", "--pairs", "6:6", "--method", "sobol",
                        "--minimize", "peak_heap", "--study", "s.study"],
    "measure": ["measure", "-n", "2"],
    "compare": ["compare", "--allocators", "glibc,exgen", "-n", "1"],
    "record": ["record", "-o", "t.hwt"],
}  # fmt: skip


@pytest.mark.parametrize("case", COMMANDS)
@pytest.mark.long
def test_temporary_things_are_private(case: str, look: Path) -> None:
    """Only the user can access our files in TMPDIR and our drafts in the user's folder, for any umask."""
    seen = heapwright(look.parent, *COMMANDS[case], "--", "./look")
    temporary = [line.split(" ", 2) for line in seen.splitlines() if "/tmp/heapwright" in line or "/." in line]
    assert temporary, "nothing was seen"
    for kind, mode, path in temporary:
        parents = [p for p in Path(path).parents if p.is_relative_to(look.parent)]
        inside = any(f"d 700 {p}" in seen for p in parents)  # files in a closed folder may be open
        assert inside or int(mode, 8) & 0o077 == 0, f"{kind} {mode} {path}"
    assert not list((look.parent / "tmp").iterdir()), "something was left"


def test_names_of_temporary_files_cannot_be_predicted(look: Path) -> None:
    seen = [heapwright(look.parent, "measure", "--", "./look") for _ in range(2)]
    names = [{p for line in s.splitlines() if "tmp/heapwright-" in (p := line.split(" ", 2)[2])} for s in seen]
    first, both = names[0], names[1]
    assert first
    assert both - first
    assert all(len(Path(p).name) >= len("heapwright-") + 8 for p in first if Path(p).parent.name == "tmp")


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o027])
@pytest.mark.long
def test_result_files_follow_the_umask(umask: int, tmp_path: Path) -> None:
    (tmp_path / "s.study").write_bytes(template())
    (tmp_path / "tmp").mkdir()
    heapwright(tmp_path, "report", "s.study", umask=umask)
    heapwright(tmp_path, "measure", "--json", "m.json", "-q", "--", "/bin/true", umask=umask)
    for name in ("s.html", "m.json"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o666 & ~umask, name


def test_drafts_do_not_follow_a_trap(tmp_path: Path) -> None:
    """Symbolic links have every name that a draft might get; nothing is written through any of them."""
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (tmp_path / "e.txt").write_text("0 0 malloc 0 1\n")
    trace = native_program("heapwright-trace")
    subprocess.run([trace, "parse", "e.txt", "e.hwt"], cwd=tmp_path, check=True)
    writers = {"parse": "e.txt", "expand": "e.hwt", "export-wl": "e.hwt"}
    for word, given in writers.items():
        code = (
            "import os, sys\n"
            "pid = os.getpid()\n"
            "for name in ('o.%d.part' % pid, 'o.threads.%d.part' % pid):\n"
            "    os.symlink('victim', name)\n"
            "os.execv(sys.argv[1], sys.argv[1:])\n"  # the same process id
        )
        subprocess.run(
            [sys.executable, "-c", code, trace, word, given, "o"], cwd=tmp_path, check=True, capture_output=True
        )
        assert (tmp_path / "o").is_file()
        assert not (tmp_path / "o").is_symlink()
        assert victim.read_text() == "untouched", word
        for left in tmp_path.glob("o*"):
            left.unlink()


def test_a_whole_file_takes_the_place_of_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("untouched")
    (tmp_path / "out").symlink_to("victim")
    write_whole(tmp_path / "out", "new")
    assert (tmp_path / "victim").read_text() == "untouched"
    with contextlib.suppress(RuntimeError), draft_of(tmp_path / "out") as draft:
        draft.write_text("half")
        raise RuntimeError
    assert (tmp_path / "out").read_text() == "new"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "victim"]


def test_the_cache_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the cache in the temporary folder is predictable, so a folder of another user there is refused."""
    monkeypatch.delenv("HEAPWRIGHT_CACHE", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    name = tmp_path / f"heapwright-cache-{os.getuid()}"
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "letter").write_text("of mine")
    os.utime(mine / "letter", (0, 0))
    name.symlink_to(mine)
    with pytest.raises(HeapwrightError, match="belongs to another user"):
        cache_folder()
    name.unlink()
    name.mkdir()
    name.chmod(0o777)
    with pytest.raises(HeapwrightError, match="others may write there"):
        cache_folder()
    name.rmdir()
    assert stat.S_IMODE(cache_folder().stat().st_mode) == 0o700
    assert put_piece("../../x", "s", 0, b"x", False) == "invalid name of a trace"
    assert put_piece("0" * 64, "../x", 0, b"x", False) == "invalid name of a trace"
    assert list(name.iterdir()) == []


def test_a_cache_named_by_mistake_keeps_what_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache folder holds other files too; tidying removes only files with our names."""
    from heapwright.cluster.worker import _tidy

    monkeypatch.setenv("HEAPWRIGHT_CACHE", str(tmp_path))
    for old in ("letter.txt", "trace.hwt", f"{'a' * 64}.hwt", f".{'b' * 64}.1234abcd"):
        (tmp_path / old).write_text("x")
        os.utime(tmp_path / old, (0, 0))
    _tidy(cache_folder(), set())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["letter.txt", "trace.hwt"]


# Set-user-ID programs. Only root can make one, and the file system must allow it.

READS = """
#include <stdio.h>
#include <stdlib.h>
int main(void) { void *volatile p = malloc(100); free(p); printf("%d\\n", p != NULL); return 0; }
"""


@pytest.fixture
def as_nobody(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a set-user-ID copy of a program as an unprivileged user."""
    needs.root("make a set-user-ID program")
    setpriv = needs.command("setpriv")
    for parent in [tmp_path, *tmp_path.parents]:
        if parent != Path("/") and parent.stat().st_uid == 0:
            parent.chmod(parent.stat().st_mode | 0o055)
    tmp_path.chmod(0o777)

    def run(program: Path, privileged: bool, **env: str) -> subprocess.CompletedProcess[str]:
        program.chmod(0o4755 if privileged else 0o755)
        words: list[str | Path] = [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", program]
        return subprocess.run(words, env=env, capture_output=True, text=True, check=False, cwd=tmp_path)

    mark = tmp_path / "mark"
    shutil.copy("/usr/bin/id", mark)
    if run(mark, True).stdout.find("euid=0") < 0:
        needs.machine_cannot("run set-user-ID programs (nosuid)")
    return run


def linked(folder: Path, *more: str | Path) -> Path:
    """Links a program with one of our libraries, as `heapwright link` and a careless packager would do."""
    cc = needs.command("g++")
    (folder / "p.c").write_text(READS)
    subprocess.run(
        [cc, "-x", "c", folder / "p.c", "-x", "none", *more, "-o", folder / "p", "-pthread", "-ldl"], check=True
    )
    return folder / "p"


@pytest.mark.parametrize("allocator", ["exgen", "reaper", "exgen-secure", "reaper-secure"])
def test_a_privileged_program_ignores_options(
    allocator: str, tmp_path: Path, as_nobody: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    variable = f"{allocator.partition('-')[0].upper()}_OPTIONS"
    program = linked(tmp_path, "-Wl,-u,malloc", LIBRARIES / f"lib{allocator}.a")
    for text in ("stats=1", "no such option"):
        plain = as_nobody(program, False, **{variable: text})
        assert plain.stdout == "1\n"
        assert plain.stderr, "the option does nothing even without rights, so this test tests nothing"
        raised = as_nobody(program, True, **{variable: text})
        assert (raised.stdout, raised.stderr) == ("1\n", "")


def test_a_privileged_program_is_not_preloaded(
    tmp_path: Path, as_nobody: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """The loader ensures this. The test checks our claim that none of our libraries is loaded."""
    program = linked(tmp_path)
    env = {"LD_PRELOAD": str(LIBRARIES / "libexgen.so"), "EXGEN_OPTIONS": "stats=1"}
    assert "exgen" in as_nobody(program, False, **env).stderr
    assert as_nobody(program, True, **env).stderr == ""


def test_a_privileged_program_records_nothing(
    tmp_path: Path, as_nobody: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """In a privileged program linked with it, the recorder must not write to the folder that the caller names."""
    from heapwright.trace.record import recording_environment as recording

    library = LIBRARIES / "libheapwright-record.so"
    program = linked(tmp_path, "-Wl,--no-as-needed", library, f"-Wl,-rpath,{LIBRARIES}")
    into = tmp_path / "into"
    into.mkdir()
    into.chmod(0o777)
    env = {k: v for k, v in recording(into, None, True, {}).items() if k != "LD_PRELOAD"}
    assert as_nobody(program, False, **env).stdout == "1\n"
    assert list(into.glob("*.raw")), "it does not record even without rights, so this test tests nothing"
    for raw in into.glob("*"):
        assert stat.S_IMODE(raw.stat().st_mode) == 0o600
        raw.unlink()
    assert as_nobody(program, True, **env).stdout == "1\n"
    assert list(into.iterdir()) == []


def test_no_file_is_installed_with_special_rights() -> None:
    native = NATIVE.parent
    assert not [p for p in native.rglob("*") if p.stat().st_mode & 0o6000]


def test_nothing_is_unpickled_or_evaluated() -> None:
    """None of our modules reads a file with a function that can run code."""
    forbidden = re.compile(
        r"\b(?:pickle|marshal|shelve|dill|joblib|yaml)\b|(?<![\w.])(?:eval|exec|compile)\(|shell=True|os\.system"
    )
    found = [
        f"{p.name}: {match[0]}"
        for p in NATIVE.parent.rglob("*.py")
        for match in forbidden.finditer(p.read_text(encoding="utf-8"))
    ]
    assert found == []
