"""What every test may need: the native meter, and programs of ours built once."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "tests/programs"

# The machine may be slow and busy, and a test that fails must fail again.
hypothesis.settings.register_profile("heapwright", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("heapwright")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--long`: the whole of tests/torture, up to two hours, rather than its short form."""
    parser.addoption("--long", action="store_true", help="tests/torture in full (make torture)")


@pytest.fixture(scope="session")
def meter() -> Path:
    """The native meter: $HEAPWRIGHT_METER, the one built for tests, or the installed one."""
    candidates = [
        Path(os.environ.get("HEAPWRIGHT_METER", "")),
        ROOT / "build/native/native/meter/heapwright-meter",
        Path(str(files("heapwright"))) / "_native/heapwright-meter",
    ]
    return next(path for path in candidates if path.is_file())


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Builds tests/programs/NAME.c or NAME.cpp once, with more compiler options if given."""
    c, cxx = shutil.which("gcc") or shutil.which("cc"), shutil.which("g++") or shutil.which("c++")
    folder = tmp_path_factory.mktemp("programs")

    def build(name: str, *options: str) -> Path:
        path = folder / "".join([name, *options])
        if not path.exists():
            source = next(file for file in (PROGRAMS / f"{name}.c", PROGRAMS / f"{name}.cpp") if file.exists())
            compiler = c if source.suffix == ".c" else cxx
            if compiler is None:
                pytest.skip(f"no compiler for {source.name}")
            words = [compiler, *(["-std=c++20"] if source.suffix == ".cpp" else []), "-O1", "-Wall", "-Wextra"]
            subprocess.run([*words, "-Werror", "-pthread", *options, "-o", path, source, "-ldl"], check=True)
        return path

    return build
