"""The check by clang-tidy: it runs on what changed, and a source that fails is checked until it passes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

GOOD = "#pragma once\nint* none();\n"


def check(folder: Path) -> tuple[int, str]:
    """The exit status and the last line of the check of FOLDER/native/a.cpp."""
    words = [sys.executable, str(ROOT / "tools/tidy.py"), "build", "native/a.cpp"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()[-1].removeprefix("clang-tidy: ")


@pytest.mark.long
def test_only_what_changed_is_checked(tmp_path: Path) -> None:
    header, source, rules = tmp_path / "native/a.h", tmp_path / "native/a.cpp", tmp_path / ".clang-tidy"
    (tmp_path / "native").mkdir()
    (tmp_path / "build").mkdir()
    entry = {"directory": str(tmp_path), "file": str(source), "command": f"c++ -c {source}"}
    (tmp_path / "build/compile_commands.json").write_text(json.dumps([entry]))
    rules.write_text("Checks: '-*,modernize-use-nullptr'\nWarningsAsErrors: '*'\nHeaderFilterRegex: 'native/.*'\n")
    header.write_text(GOOD)
    source.write_text('#include "a.h"\nint* none() { return nullptr; }\n')
    passes, again = (0, "1 of 1 sources changed, 0 failed"), (0, "0 of 1 sources changed, 0 failed")
    assert check(tmp_path) == passes
    assert check(tmp_path) == again

    header.write_text(GOOD + "inline int* bad() { return 0; }\n")
    fails = (1, "1 of 1 sources changed, 1 failed")
    assert check(tmp_path) == fails
    assert check(tmp_path) == fails  # a failure is not remembered as passed

    header.write_text(GOOD)
    assert check(tmp_path) == passes
    entry["command"] += " -DNEW"
    (tmp_path / "build/compile_commands.json").write_text(json.dumps([entry]))
    assert check(tmp_path) == passes
    rules.write_text(rules.read_text() + "# A new version of the rules.\n")
    assert check(tmp_path) == passes
    assert check(tmp_path) == again
