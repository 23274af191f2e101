"""Real programs print the same bytes under a malloc as under glibc's."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import needs
from tests.allocator.conftest import GLIBC, Malloc, once, short_form
from tests.allocator.workloads import WORKLOADS
from tests.conftest import PROGRAMS

Print = Callable[[Malloc, str], bytes]


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 000 numbers, one a line."""
    path = tmp_path_factory.mktemp("input") / "numbers"
    source = random.Random(1)
    path.write_text("".join(f"{source.randrange(10**6)}\n" for _ in range(200_000)))
    return path


@pytest.fixture(scope="module")
def printed(numbers: Path, tmp_path_factory: pytest.TempPathFactory) -> Print:
    """Returns the output of a workload under a malloc."""

    def run(malloc: Malloc, name: str) -> bytes:
        env = {
            "PYTHON": sys.executable,
            "PYTHONMALLOC": "malloc",
            "PYTHONHASHSEED": "1",
            "PERL_HASH_SEED": "1",
            "SOURCE": str(PROGRAMS / "allocator_fuzz.cpp"),
            "NUMBERS": str(numbers),
        }
        folder = tmp_path_factory.mktemp("programs")
        done = malloc.run("sh", "-c", WORKLOADS[name].script, env=env, folder=folder, timeout=240)
        assert done.returncode == 0, done.stderr.decode()
        assert done.stdout
        return done.stdout

    return run


@pytest.fixture(scope="module")
def reference(printed: Print, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], bytes]:
    """Returns the output of a workload under glibc's malloc."""
    return lambda name: once(f"programs-{name}", lambda: printed(GLIBC, name), tmp_path_factory)


def need(name: str) -> None:
    """Skips where a program is missing."""
    needs.command(*WORKLOADS[name].needs)
    if name.startswith("python-tests") and importlib.util.find_spec("test.test_json") is None:
        needs.missing("libpython{}.{}-testsuite".format(*sys.version_info))


@pytest.mark.parametrize(("allocator", "name"), short_form(WORKLOADS))
@pytest.mark.few(3)
def test_a_program_prints_the_same_as_under_glibc(
    allocator: Malloc, name: str, printed: Print, reference: Callable[[str], bytes]
) -> None:
    need(name)
    assert printed(allocator, name) == reference(name)


def test_a_faulty_malloc_changes_the_output(program: Callable[..., Path], tmp_path: Path) -> None:
    faulty = program("allocator_faulty", "-shared", "-fPIC", "-fno-builtin")
    done = Malloc("faulty", faulty).run(
        sys.executable,
        "-c",
        "import json; print(sum(len(json.dumps(['x' * 100] * 100)) for _ in range(200)))",
        env={"FAULT": "loses", "PYTHONMALLOC": "malloc"},
        folder=tmp_path,
    )
    assert done.returncode != 0 or done.stdout != b"2080000\n"
