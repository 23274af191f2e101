"""`diagnose` on services that run: its first sentence is right, as following its advice shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests import needs
from tests.conftest import PROGRAMS
from tests.diagnose.test_diagnose import MIB, diagnosed


def resident(pid: int) -> int:
    """Resident memory in bytes."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


class Service:
    """The threaded service in C++."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    def tell(self, word: str) -> None:
        """Sends a command and waits for its end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"


@contextmanager
def threaded(program: Path, kept: int, **env: str) -> Iterator[Service]:
    """Runs the service in C++ through four bursts."""
    with subprocess.Popen(
        [program, str(kept)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **env}
    ) as process:
        service = Service(process)
        for _ in range(4):
            service.tell("burst")
        yield service
        assert process.stdin is not None
        process.stdin.close()


def test_a_threaded_service_gives_back_what_diagnose_says(program: Callable[..., Path]) -> None:
    built = program("threaded_service", "-O2", "-pthread")
    with threaded(built, 64) as service:
        found = diagnosed(service.pid)
        before = resident(service.pid)
        service.tell("trim")
        after = resident(service.pid)
    assert found["finding"] == "free"
    assert found["steps"][0].startswith("malloc_trim(0)")
    assert found["steps"][1].startswith("MALLOC_ARENA_MAX=2")
    assert abs((before - after) - found["heap"]["trimmable_bytes"]) < 0.05 * before
    with threaded(built, 64, MALLOC_ARENA_MAX="2") as service:
        bounded = resident(service.pid)
    assert before - bounded < found["heap"]["releasable_bytes"] + MIB  # the bound holds
    assert bounded < 0.5 * before


def test_free_memory_between_the_live_blocks_of_many_arenas(program: Callable[..., Path]) -> None:
    built = program("threaded_service", "-O2", "-pthread")
    with threaded(built, 8) as service:
        found = diagnosed(service.pid)
        before = resident(service.pid)
    assert found["steps"][0].startswith("MALLOC_ARENA_MAX=2")
    with threaded(built, 8, MALLOC_ARENA_MAX="2") as service:
        assert resident(service.pid) < 0.75 * before


@contextmanager
def web(**env: str) -> Iterator[tuple[int, Callable[[str], bytes]]]:
    """Runs the web service in Python under 120 requests; gives its process id, and a function that asks it."""
    words = [sys.executable, str(PROGRAMS / "threaded_service.py")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, **env}) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())

        def ask(path: str) -> bytes:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
                found: bytes = answer.read()
                return found

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(ask, ["/"] * 120))
        yield process.pid, ask
        process.kill()


def test_a_web_service_in_python() -> None:
    with web() as (pid, ask):
        found = diagnosed(pid)
        before = resident(pid)
        ask("/trim")
        after = resident(pid)
    assert found["finding"] == "free"
    assert found["runtime"]["name"].startswith("CPython 3.")
    assert abs((before - after) - found["heap"]["trimmable_bytes"]) < max(0.1 * before, 4 * MIB)


def test_a_redis_server_says_itself_what_diagnose_cannot_see(tmp_path: Path) -> None:
    server, client = needs.command("redis-server"), needs.command("redis-cli")
    socket = str(tmp_path / "socket")
    words = [server, "--port", "0", "--unixsocket", socket, "--save", "", "--enable-debug-command", "yes"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=tmp_path, text=True) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if "ready to accept" in line.lower())

        def ask(*command: str) -> str:
            return subprocess.run([client, "-s", socket, *command], capture_output=True, text=True, check=True).stdout

        ask("debug", "populate", "100000", "key", "400")
        found = diagnosed(process.pid)
        figures = dict(line.split(":", 1) for line in ask("info", "memory").splitlines() if ":" in line)
        process.terminate()
    assert found["allocator"] == "jemalloc"
    assert found["finding"] == "unknown"
    assert f"`redis-cli -s {socket} info memory`" in found["steps"][0]
    assert "allocator_resident − allocator_active is free pages" in found["advice"]
    assert {"allocator_allocated", "allocator_active"} <= figures.keys()
    private = found["parts"]["heap"] + found["parts"]["other"]
    assert abs(private - int(figures["allocator_resident"])) < 0.15 * private
