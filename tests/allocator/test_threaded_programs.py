"""Real threaded programs print the same bytes under a malloc as under glibc's."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests import needs
from tests.allocator.conftest import GLIBC, Malloc, once, short_form
from tests.allocator.threaded_workloads import THREADED
from tests.conftest import PROGRAMS

Print = Callable[[Malloc, str], bytes]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Print:
    """Returns the output of a program under a malloc."""
    numbers = tmp_path_factory.mktemp("input") / "numbers"
    source = random.Random(1)
    numbers.write_text("".join(f"{source.randrange(10**6)}\n" for _ in range(200_000)))
    env = {
        "PYTHON": sys.executable,
        "PERL_HASH_SEED": "1",
        "NUMBERS": str(numbers),
        "SOURCES": str(PROGRAMS),
        "HOME": str(numbers.parent),
    }

    def run(malloc: Malloc, name: str) -> bytes:
        folder = tmp_path_factory.mktemp("threaded")
        done = malloc.run("sh", "-c", THREADED[name].script, env=env, folder=folder, timeout=240)
        assert done.returncode == 0, done.stderr.decode()
        assert done.stdout
        return done.stdout

    return run


@pytest.fixture(scope="module")
def reference(printed: Print, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], bytes]:
    """Returns the output of a program under glibc's malloc."""
    return lambda name: once(f"threaded-{name}", lambda: printed(GLIBC, name), tmp_path_factory)


@pytest.mark.parametrize(("allocator", "name"), short_form(THREADED))
@pytest.mark.few(5)
def test_a_threaded_program_prints_the_same_as_under_glibc(
    allocator: Malloc, name: str, printed: Print, reference: Callable[[str], bytes]
) -> None:
    needs.command(*THREADED[name].needs)
    if name == "perl-threads" and subprocess.run(["perl", "-Mthreads", "-e1"], capture_output=True).returncode != 0:
        needs.machine_cannot("run threads in this Perl")
    assert printed(allocator, name) == reference(name)
