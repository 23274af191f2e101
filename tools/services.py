"""Makes the figures of docs/guides/service-memory.md: three services, their diagnosis, and the effect of each step.

    tools/services.py [cpp] [gunicorn] [redis]

It needs g++ and gdb; gunicorn (on PATH or $GUNICORN); redis-server, redis-cli and redis-benchmark. It prints for each
service the output of `heapwright diagnose`, then resident memory (of several processes by PSS) before and after each
step: malloc_trim called by gdb in the running process, or a restart with a variable and the same load.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from heapwright.allocators.registry import find_allocators
from heapwright.diagnose.diagnosis import diagnose, sum_processes
from heapwright.metrics import show_bytes
from heapwright.report.diagnosis import show_diagnosis
from heapwright.terminal_text import console

PROGRAMS = Path(__file__).parents[1] / "tests/programs"
PORT = 7797
TRIM = "malloc_trim"
# Deletes seven of eight keys.
DELETE = """local n = 0
for i = 0, 299999 do if i % 8 ~= 0 then n = n + redis.call("del", string.format("key:%012d", i)) end end
return n"""

Service = Callable[[dict[str, str], Path], Iterator[list[int]]]


def cpp(env: dict[str, str], folder: Path) -> Iterator[list[int]]:
    """Run the service in C++ through four bursts."""
    program = folder / "threaded_service"
    subprocess.run(["g++", "-O2", "-pthread", "-o", program, PROGRAMS / "threaded_service.cpp"], check=True)
    with subprocess.Popen(
        [program, "64"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(4):
            process.stdin.write("burst\n")
            process.stdin.flush()
            process.stdout.readline()
        yield [process.pid]
        process.stdin.close()


def gunicorn(env: dict[str, str], folder: Path) -> Iterator[list[int]]:
    """Run the service in Python under gunicorn, with two workers, and send 400 requests."""
    program = os.environ.get("GUNICORN") or shutil.which("gunicorn") or sys.exit("gunicorn is missing")
    address = f"127.0.0.1:{PORT}"
    words = [program, "--chdir", str(PROGRAMS), "-b", address, "-w", "2", "--threads", "8", "--log-level", "error"]
    with subprocess.Popen([*words, "threaded_service:app"], env=env, cwd=folder) as process:
        time.sleep(3)  # until both workers have started

        def ask(_number: int) -> bytes:
            with urllib.request.urlopen(f"http://{address}/") as answer:
                found: bytes = answer.read()
                return found

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(ask, range(400)))
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        yield [process.pid, *map(int, children)]
        process.terminate()


def redis(env: dict[str, str], folder: Path) -> Iterator[list[int]]:
    """Run redis-server through three rounds of writing 300 000 keys and deleting seven of eight."""
    socket = str(folder / "socket")
    client = ["redis-cli", "-s", socket]
    server = ["redis-server", "--port", "0", "--unixsocket", socket, "--save", ""]
    load = [
        "redis-benchmark",
        "-q",
        "-n",
        "300000",
        "-r",
        "300000",
        "-d",
        "400",
        "-t",
        "set",
        "-P",
        "32",
        "-c",
        "8",
        "-s",
    ]
    with subprocess.Popen(server, stdout=subprocess.DEVNULL, env=env, cwd=folder) as process:
        while subprocess.run([*client, "ping"], capture_output=True, check=False).returncode:
            time.sleep(0.1)
        for _ in range(3):
            subprocess.run([*load, socket], capture_output=True, check=True)
            subprocess.run([*client, "eval", DELETE, "0"], capture_output=True, check=True)
        yield [process.pid]
        process.terminate()


def preloaded(name: str) -> dict[str, str]:
    """Return the environment for an allocator; of glibc too, for a program that has another malloc."""
    found = find_allocators()[name]
    return found.environment({}) if found.preload else {"LD_PRELOAD": str(found.path)}


def resident(pids: list[int]) -> int:
    """Return resident memory in bytes, of several processes by PSS."""
    each = [diagnose(pid) for pid in pids]
    return (sum_processes(each) if len(each) > 1 else each[0]).division.total


def steps(name: str, service: Service, variables: dict[str, dict[str, str]]) -> None:
    """Print the diagnosis of a service, and resident memory before and after each step.

    Args:
        name: of the service.
        service: runs it under its load, and gives its processes.
        variables: step → variables of a restart; the step `TRIM` calls malloc_trim in the running service.
    """
    run = contextmanager(service)
    with tempfile.TemporaryDirectory() as folder, run({**os.environ}, Path(folder)) as pids:
        each = [diagnose(pid) for pid in pids]
        several = len(each) > 1
        show_diagnosis(sum_processes(each) if several else each[0], name, console(), each if several else [])
        before = resident(pids)
        if TRIM in variables:
            for pid in pids:
                words = ["gdb", "-p", str(pid), "-batch", "-ex", "set language c", "-ex", "call (int)malloc_trim(0)"]
                subprocess.run(words, capture_output=True, check=True)
            print(f"{TRIM} by gdb: {show_bytes(before)} -> {show_bytes(resident(pids))}")
    for step, env in variables.items():
        if step != TRIM:
            with tempfile.TemporaryDirectory() as folder, run({**os.environ, **env}, Path(folder)) as pids:
                print(f"restart with {step}: {show_bytes(before)} -> {show_bytes(resident(pids))}")


def main() -> None:
    """Run the services that the command line names, or all."""
    found = find_allocators()
    others = {name: preloaded(name) for name in ("jemalloc", "mimalloc", "glibc", "exgen") if name in found}
    arenas = {"MALLOC_ARENA_MAX=2": {"MALLOC_ARENA_MAX": "2"}}
    decay = {"MALLOC_CONF=dirty_decay_ms:0": {"MALLOC_CONF": "dirty_decay_ms:0"}}
    chosen = sys.argv[1:] or ["cpp", "gunicorn", "redis"]
    if "cpp" in chosen:
        steps("threaded_service", cpp, {TRIM: {}, **arenas})
    if "gunicorn" in chosen:
        steps("gunicorn", gunicorn, {TRIM: {}, **arenas, **{k: v for k, v in others.items() if k == "jemalloc"}})
    if "redis" in chosen:
        steps("redis-server", redis, {**decay, **{k: v for k, v in others.items() if k != "jemalloc"}})


if __name__ == "__main__":
    main()
