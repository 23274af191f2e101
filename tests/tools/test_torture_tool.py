"""tools/torture.py: a part that passed is not run again at its commit, and nothing is left out in silence."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import ROOT
from tests.tools.loading import load_tool

INCOMPLETE = 3


@pytest.fixture
def whole_tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tool as a module."""
    return load_tool("torture", monkeypatch)


@pytest.fixture
def tool(whole_tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tool with its files in a folder of the test, at a commit that the test names."""
    module = whole_tool
    monkeypatch.setattr(module, "STATE", tmp_path / "torture.json")
    monkeypatch.setattr(module, "LOGS", tmp_path / "torture")
    monkeypatch.setattr(module, "commit", lambda: "abc")
    return module


def stored(tool: ModuleType) -> dict[str, dict[str, object]]:
    parts = json.loads(tool.STATE.read_text())["parts"]
    assert isinstance(parts, dict)
    return parts


def shell(tool: ModuleType, name: str, script: str, **more: object) -> object:
    return tool.Part(name, ("sh", "-c", script), **more)


def go(tool: ModuleType, monkeypatch: pytest.MonkeyPatch, parts: list[object], *words: str) -> int:
    monkeypatch.setattr(tool, "parts", lambda: parts)
    monkeypatch.setattr("sys.argv", ["torture.py", *words])
    return int(tool.main())


def test_a_part_that_passed_is_not_run_again(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = shell(tool, "good", f"echo x >>{tmp_path}/good; echo '7 passed in 3.2s'")
    bad = shell(tool, "bad", f"echo x >>{tmp_path}/bad; echo '1 failed, 2 passed in 1s'; exit 1")
    assert go(tool, monkeypatch, [good, bad]) == 1
    assert go(tool, monkeypatch, [good, bad]) == 1
    assert (tmp_path / "good").read_text() == "x\n"
    assert (tmp_path / "bad").read_text() == "x\nx\n"  # what failed runs again
    assert go(tool, monkeypatch, [good, bad], "--again", "good") == 1
    assert (tmp_path / "good").read_text() == "x\nx\n"
    monkeypatch.setattr(tool, "commit", lambda: "def")
    assert go(tool, monkeypatch, [good], "good") == 0
    assert (tmp_path / "good").read_text() == "x\nx\nx\n"
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("| bad | failed |") and line.endswith("| 1 failed, 2 passed |") for line in lines)
    assert any(line.startswith("| good | passed |") and line.endswith("| 7 passed |") for line in lines)


def test_parts_that_have_not_run_are_in_the_table(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = shell(tool, "one", "echo done"), shell(tool, "two", "echo done")
    assert go(tool, monkeypatch, [one, two], "one") == INCOMPLETE
    assert "| two | not run | | | |" in capsys.readouterr().out.splitlines()
    monkeypatch.setattr(tool, "commit", lambda: "def")
    assert go(tool, monkeypatch, [one, two], "--list") == INCOMPLETE
    assert "| one | not run; last at abc: passed | | | |" in capsys.readouterr().out.splitlines()
    assert go(tool, monkeypatch, [one, two], "--stop-after", "-1") == INCOMPLETE
    assert "0 of 2 parts passed, 2 not run" in tool.STATE.with_suffix(".md").read_text()


def test_a_part_that_does_not_end_is_stopped(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    part = shell(tool, "slow", "sleep 1000", limit=0.2)
    assert go(tool, monkeypatch, [part]) == 1
    assert stored(tool)["slow"]["outcome"] == "too long"


def test_a_part_ends_with_the_tool(tmp_path: Path) -> None:
    """The part sends its parent SIGTERM, as `timeout` does. Without a handler the part went on alone."""
    script = f"echo $$ >{tmp_path}/pid; sleep 0.5; kill -TERM $PPID; exec sleep 1000"
    run = "from parts import Part, run; from pathlib import Path; import sys\n"
    run += "print(run(Part('a', ('sh', '-c', sys.argv[1])), 'abc', Path(sys.argv[2])).outcome)"
    words = [sys.executable, "-c", run, script, str(tmp_path / "log")]
    done = subprocess.run(words, cwd=ROOT / "tools", capture_output=True, text=True, timeout=60, check=False)
    with contextlib.suppress(ProcessLookupError):  # for the case that this test fails
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        pytest.fail("the part was left running")
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


def test_no_test_is_a_failure_only_where_there_should_be_one(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [shell(tool, "full", "exit 5"), shell(tool, "empty", "exit 5", may_be_empty=True)]
    assert go(tool, monkeypatch, parts) == 1
    results = stored(tool)
    assert (results["full"]["outcome"], results["empty"]["outcome"]) == ("failed", "passed")
    assert results["empty"]["found"] == "no long test in this folder"


def test_every_folder_of_tests_is_in_a_part(tool: ModuleType) -> None:
    words = {word for part in tool.parts() for word in part.words}
    folders = {path.parent.relative_to(ROOT) for path in ROOT.glob("tests/*/test_*.py")}
    assert {f for f in folders if str(f) not in words} == {Path("tests/torture")}
    assert {str(path.relative_to(ROOT)) for path in ROOT.glob("tests/torture/test_*.py")} <= words
    assert {str(path.relative_to(ROOT)) for path in ROOT.glob("tests/test_*.py")} <= words


def test_every_whole_program_is_a_part(tool: ModuleType) -> None:
    scripts = {path.stem for path in (ROOT / "tests/torture/programs").glob("*.sh")} - {"compilers"}
    assert {part.name for part in tool.parts()} >= {f"program-{name}" for name in scripts}


def test_changes_make_another_commit(whole_tool: ModuleType, tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    (tmp_path / "file").write_text("1")
    for words in (["init", "-q"], ["add", "file"], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *words], check=True)
    clean = whole_tool.commit(tmp_path)
    (tmp_path / "file").write_text("2")
    changed = whole_tool.commit(tmp_path)
    (tmp_path / "new").write_text("3")
    assert len({clean, changed, whole_tool.commit(tmp_path)}) == 3
    assert "+" not in clean
    assert changed.startswith(clean + "+")
