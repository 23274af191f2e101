"""The allocators under test, and how a program is run under one.

Those that heapwright brings, from the installed package or build/native, whichever was built last.
HEAPWRIGHT_TEST_ALLOCATOR names others instead: paths of libraries with ':' between them, or 'glibc' for no library.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from heapwright.files import NATIVE
from tests import needs
from tests.allocator.workloads import Workload
from tests.conftest import ROOT

NAMES = ("exgen", "reaper", "exgen-secure", "reaper-secure")
FLAGS = ("-O2", "-g", "-fno-builtin")


@dataclass(frozen=True)
class Malloc:
    """A malloc: the C library's own, or that of a library to preload."""

    name: str
    library: Path | None = None

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Ours, without what would change allocators, and with this one preloaded."""
        drop = ("GLIBC_TUNABLES", "MALLOC_", "LD_PRELOAD", "EXGEN_", "REAPER_", "PYTHONMALLOC")
        env = {key: value for key, value in os.environ.items() if not key.startswith(drop)}
        preload = {"LD_PRELOAD": str(self.library)} if self.library else {}
        return {**env, "LC_ALL": "C", **preload, **(more or {})}

    def run(
        self,
        *words: str | Path,
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
        stdin: bytes = b"",
        timeout: float = 120,
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs a program under this malloc, in a process group that ends with it."""
        process = subprocess.Popen(
            words,
            env=self.environment(env),
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(stdin, timeout)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        assert b"cannot be preloaded" not in err, err.decode()
        return subprocess.CompletedProcess(words, process.returncode, out, err)


GLIBC = Malloc("glibc")


def bundled(name: str, suffix: str = "so") -> Path | None:
    """A library of ours, the one built last."""
    folders = (NATIVE / "lib", ROOT / "build/native/native/allocator")
    built = [path for folder in folders if (path := folder / f"lib{name}.{suffix}").is_file()]
    return max(built, key=lambda path: path.stat().st_mtime) if built else None


def bundled_malloc(name: str) -> Malloc:
    """An allocator of ours; skips the test if it is not built."""
    library = bundled(name)
    if library is None:
        needs.not_built(f"lib{name}.so")
    return Malloc(name, library)


def _under_test() -> list[Malloc]:
    given = os.environ.get("HEAPWRIGHT_TEST_ALLOCATOR")
    if given:
        return [
            Malloc(Path(word).name, Path(word).resolve()) if word != "glibc" else GLIBC for word in given.split(":")
        ]
    return [Malloc(name, library) for name in NAMES if (library := bundled(name))]


_ABSENT = pytest.param(None, id="none", marks=needs.not_built_mark("the bundled allocators"))
_ABSENT_PAIR = pytest.param(None, "", id="none", marks=needs.not_built_mark("the bundled allocators"))


@pytest.fixture(scope="session", params=[pytest.param(one, id=one.name) for one in _under_test()] or [_ABSENT])
def allocator(request: pytest.FixtureRequest) -> Malloc:
    """Each malloc under test."""
    assert isinstance(request.param, Malloc)
    assert request.param.library is None or request.param.library.is_file(), request.param.library
    return request.param


@pytest.fixture(scope="session")
def judge(program: Callable[..., Path]) -> Callable[[str], Path]:
    """Builds one of the judging programs: tests/programs/allocator_NAME.cpp."""
    return lambda name: program(f"allocator_{name}", *FLAGS)


def short_form(workloads: Mapping[str, Workload]) -> list[ParameterSet]:
    """Pairs of a malloc and a program for the tests of printed output, as their arguments `allocator` and `name`.

    In the short form each program runs under one plain build and one hardened build of the other allocator, in turn.
    """
    mallocs = _under_test()
    groups = [[one for one in mallocs if one.name.endswith("-secure") == hard] for hard in (False, True)]
    pairs = []
    for turn, (name, workload) in enumerate(workloads.items()):
        short = [group[(turn + shift) % len(group)] for shift, group in enumerate(groups) if group]
        for one in mallocs:
            marks = () if one in short and not workload.long else pytest.mark.long
            pairs.append(pytest.param(one, name, id=f"{one.name}-{name}", marks=marks))
    return pairs or [_ABSENT_PAIR]


def cases(names: Iterable[str], hardened: Collection[str]) -> list[ParameterSet]:
    """Pairs of a malloc and a case, as the arguments `allocator` and `case` of a test.

    Args:
        names: all cases; in the short form the plain builds have all of them.
        hardened: the cases that the hardened builds have in the short form: those that contain the others.
    """
    pairs = [
        needs.long_unless(not one.name.endswith("-secure") or name in hardened, one, name, id=f"{one.name}-{name}")
        for one in _under_test()
        for name in names
    ]
    return pairs or [_ABSENT_PAIR]


def once(key: str, make: Callable[[], bytes], factory: pytest.TempPathFactory) -> bytes:
    """Makes something once for all processes of a test run, and returns it.

    Args:
        key: its name, a file name.
        make: makes it.
        factory: pytest's, which knows the folder of the test run.
    """
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "once"
    folder.mkdir(exist_ok=True)
    path = folder / key
    with (folder / f"{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            content = make()
            draft = folder / f".{key}.{os.getpid()}"
            draft.write_bytes(content)
            draft.replace(path)
    return path.read_bytes()
