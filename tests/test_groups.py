"""Tests that pytest-xdist runs the tests that share a fixture of a module or a package in one process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

SAMPLE = """
import os
from pathlib import Path
import pytest

@pytest.fixture(scope="{scope}")
def shared():
    return None

@pytest.mark.parametrize("number", range(6))
def test_it(number, shared):
    with Path(__file__).with_name("processes").open("a") as file:
        file.write(f"{{os.getpid()}} ")
"""


@pytest.mark.parametrize("scope", ["module", "package"])
@pytest.mark.few(1)
def test_tests_that_share_a_fixture_are_in_one_process(scope: str, tmp_path: Path) -> None:
    """Regression: with pytest 9.2, pytest-xdist 3.8 ignores groups and says nothing."""
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_sample.py").write_text(SAMPLE.format(scope=scope))
    words: list[str | Path] = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup"]
    words += ["--rootdir", tmp_path, "-c", ROOT / "pyproject.toml", tmp_path]
    subprocess.run(words, cwd=ROOT, capture_output=True, check=True)
    processes = (tmp_path / "processes").read_text().split()
    assert (len(processes), len(set(processes))) == (6, 1)
