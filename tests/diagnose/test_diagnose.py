"""`heapwright diagnose`, as installed: real processes, sums, pages and errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from heapwright.allocators.glibc_tunables import find_loader
from heapwright.allocators.registry import find_allocators
from tests import needs
from tests.command_server import SERVER
from tests.diagnose.live import tool
from tests.diagnose.test_target import cgroup, members
from tests.trace.recording import HEAPWRIGHT

MIB = 1 << 20
# Frees every second of 100 000 blocks: half of the heap is free between live blocks.
HOLES = "import sys\nx = [bytes(1000) for i in range(100000)]\ndel x[::2]\n"
FULL = "import sys\nx = [bytes(1000) for i in range(100000)]\n"
WAIT = "print(1, flush=True)\nsys.stdin.read()\n"


@contextmanager
def python(code: str, **environment: str) -> Iterator[int]:
    """Runs Python code, and gives its process id once it has printed something."""
    words = [sys.executable, "-c", code + WAIT]
    env = {**os.environ, **environment}
    with subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.read(1)
        yield process.pid
        process.stdin.close()


def heapwright(*words: str | int | Path) -> subprocess.CompletedProcess[str]:
    line = [str(HEAPWRIGHT), "diagnose", *map(str, words)]
    status, out, err = SERVER.run(line, Path.cwd(), os.environ)
    return subprocess.CompletedProcess(line, status, out.decode(), err.decode())


def diagnosed(*words: str | int | Path) -> dict[str, Any]:
    done = heapwright(*words, "--json", "-")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_free_memory_between_live_blocks() -> None:
    with python(HOLES) as pid:
        found = diagnosed(pid)
        shown = heapwright(pid).stdout
    assert found["allocator"].startswith("glibc 2.")
    assert found["finding"] == "free"
    assert "on pages with live blocks" in found["advice"]
    assert abs(found["heap"]["releasable_bytes"] - 50000 * 1040) < 3 * MIB
    assert found["runtime"]["name"].startswith("CPython 3.")
    assert shown.startswith(found["advice"][:30])
    assert "heap: free, on pages with live blocks" in shown


def test_a_static_program_is_not_told_to_try_other_mallocs(tmp_path: Path) -> None:
    """No malloc can be preloaded there. The loader that is given a program preloads into that program."""
    source = tmp_path / "holes.c"
    source.write_text(
        "#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\nstatic char *kept[40000];\n"
        "int main(void) { for (int i = 0; i < 40000; i++) memset(kept[i] = malloc(1000), 1, 1000);\n"
        "for (int i = 0; i < 40000; i += 2) free(kept[i]);\n"
        'if (write(1, "r", 1) != 1) return 1; return read(0, kept[1], 1) != 0; }\n'
    )
    found = {}
    for name, options in (("static", ["-static"]), ("pie", ["-static-pie"]), ("dynamic", []), ("loader", [])):
        built = tmp_path / name
        subprocess.run([needs.command("gcc"), "-O0", *options, "-o", built, source], check=True)
        words = [find_loader(str(built)) or "", str(built)] if name == "loader" else [str(built)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.read(1) == b"r"
            found[name] = diagnosed(process.pid)
            process.stdin.close()
    for name, one in found.items():
        static = name in {"static", "pie"}
        assert one["finding"] == "free"
        assert ("the program is linked statically" in one["advice"]) == static
        assert ("`heapwright link`" in one["steps"][-1]) == static
        assert ("`heapwright compare`" in one["advice"] + one["steps"][-1]) == (not static)


def test_large_blocks_are_of_malloc_in_the_table_and_in_the_json() -> None:
    with python("import sys\nx = [bytearray(b'1') * (1 << 20) for i in range(60)]\n") as pid:
        found = diagnosed(pid)
        shown = heapwright(pid).stdout
    assert found["heap"]["mapped_blocks"] >= 60
    division = found["division"]
    assert abs(found["heap"]["live_bytes"] - division["live"] - division["mapped"]) < MIB
    assert division["mapped"] >= 60 * MIB
    assert division["other"] < 2 * MIB
    assert "heap: live blocks, mapped one by one" in shown


def test_a_program_that_holds_its_memory() -> None:
    with python(FULL) as pid:
        found = diagnosed(pid)
    assert found["finding"] == "program"
    assert found["steps"] == []


@pytest.mark.parametrize(("size", "finding"), [(16, "headers"), (1000, "program")])
def test_headers_of_small_blocks_are_not_held_by_the_program(size: int, finding: str, tmp_path: Path) -> None:
    source, built = tmp_path / "small.c", tmp_path / "small"
    source.write_text(
        "#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n"
        f"int main(void) {{ for (int i = 0; i < 32000000; i += {size + 16}) memset(malloc({size}), 1, {size});\n"
        'char c; if (write(1, "r", 1) != 1) return 1; return read(0, &c, 1) != 0; }\n'
    )
    subprocess.run([needs.command("gcc"), "-O0", "-o", built, source], check=True)
    with subprocess.Popen([built], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.read(1) == b"r"
        found = diagnosed(process.pid)
        process.stdin.close()
    assert found["finding"] == finding
    assert bool(found["steps"]) == (finding == "headers")
    assert ("live blocks, 1,000,00" in found["advice"] and "of 32 bytes on average" in found["advice"]) == (size == 16)
    assert ("no malloc will help" in found["advice"]) == (size == 1000)


def test_parts_add_up_and_keys_are_those_of_the_contract() -> None:
    with python(HOLES) as pid:
        found = diagnosed(pid)
    assert {"pid", "allocator", "resident_bytes", "parts", "heap", "runtime", "advice", "consistent"} <= found.keys()
    assert {"live_bytes", "free_bytes", "free_pages_bytes", "releasable_bytes", "arenas"} <= found["heap"].keys()
    assert abs(sum(found["parts"].values()) - found["resident_bytes"]) < MIB


@pytest.mark.parametrize("malloc", ["glibc", "exgen"])
def test_the_page_names_every_key(malloc: str) -> None:
    page = (Path(__file__).parents[2] / "docs/diagnose.md").read_text()
    preload = find_allocators()[malloc].preload or ""
    with python(HOLES, LD_PRELOAD=preload) as pid:
        single, several = diagnosed(pid), diagnosed(pid, os.getpid())
    assert single["heap"]["arenas" if malloc == "glibc" else "classes"]
    assert single["runtime"] is not None
    missing = {key for found in (single, several) for key in keys_of(found) if f"`{key}`" not in page}
    assert not missing


def keys_of(found: object) -> set[str]:
    """Returns the keys of an object of JSON, and of all objects in it."""
    if isinstance(found, dict):
        return set(found).union(*map(keys_of, found.values()))
    return set().union(*map(keys_of, found)) if isinstance(found, list) else set()


@pytest.mark.long
def test_forked_workers_are_summed_with_shared_pages_once() -> None:
    code = HOLES + "import os, time\nfor i in range(2):\n    if os.fork() == 0:\n        time.sleep(600)\n"
    with python(code) as pid:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        try:
            found = diagnosed(pid, *children)
            shown = heapwright(pid, *children).stdout
        finally:
            for child in children:
                os.kill(int(child), signal.SIGKILL)
    each = [one["resident_bytes"] for one in found["processes"]]
    assert len(each) == 3
    assert found["resident_bytes"] < 1.5 * max(each) < sum(each)
    assert "3 processes" in shown


@pytest.mark.parametrize(("workers", "told"), [(2, "2 child processes hold "), (6, "6 child processes hold ")])
def test_memory_of_workers_that_is_not_counted_is_told(workers: int, told: str) -> None:
    """Who gives only the main process of a server would else read that it holds next to nothing."""
    fork = f"import os, sys, time\nready, done = os.pipe()\nfor i in range({workers}):\n    if os.fork() == 0:\n"
    work = "        x = b'x' * (30 << 20)\n        os.write(done, b'.')\n        time.sleep(600)\n"
    with python(f"{fork}{work}for i in range({workers}):\n    os.read(ready, 1)\n") as pid:
        children = sorted(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
        try:
            alone = heapwright(pid)
            together = heapwright(pid, *children)
            quiet = heapwright(pid, "-q")
            line = [str(HEAPWRIGHT), "diagnose", str(pid)]
            in_order = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)
    assert alone.returncode == 0
    assert f"heapwright: warning: {told}" in alone.stderr
    assert in_order.stdout.startswith(f"heapwright: warning: {told}"), "the result is of the main process alone"
    together_line = f"heapwright diagnose {' '.join(map(str, [pid, *children]))}"
    assert (f"with them: {together_line}\n" in alone.stderr) == (workers == 2)
    assert together.stderr == quiet.stderr == ""


def test_children_with_little_memory_are_not_told() -> None:
    with python("import subprocess, sys\np = subprocess.Popen(['sleep', '600'])\nx = b'x' * (40 << 20)\n") as pid:
        child = Path(f"/proc/{pid}/task/{pid}/children").read_text().strip()
        try:
            assert heapwright(pid).stderr == ""
        finally:
            os.kill(int(child), signal.SIGKILL)


def test_each_of_many_processes_is_listed() -> None:
    sleeping = [subprocess.Popen(["sleep", "600"]) for _ in range(9)]
    try:
        pids = sorted(process.pid for process in sleeping)
        done = heapwright(*pids)
    finally:
        for process in sleeping:
            process.kill()
            process.wait()
    assert done.returncode == 0, done.stderr
    assert f"processes {', '.join(map(str, pids[:6]))} and 3 more: 9 processes" in done.stdout
    table = done.stdout[done.stdout.index("\nprocesses  ") :]
    assert all(f"  {pid} " in table for pid in pids)


@pytest.mark.parametrize("preload", ["", "exgen", "mimalloc", "glibc"])
def test_redis_of_the_distribution_is_on_jemalloc(preload: str, tmp_path: Path) -> None:
    env = {**os.environ}
    if preload:
        if preload == "mimalloc":
            needs.peer(preload)
        library = find_allocators()[preload]
        env["LD_PRELOAD"] = library.preload or str(library.path)
    server = needs.command("redis-server")
    words = [server, "--port", "0", "--unixsocket", str(tmp_path / "socket"), "--save", "", "--daemonize", "no"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=tmp_path, text=True, env=env) as process:
        assert process.stdout is not None
        try:
            next(line for line in process.stdout if "ready to accept" in line.lower())
            found = diagnosed(process.pid)
        finally:
            process.terminate()
    if not preload:
        assert found["allocator"] == "jemalloc"
        assert found["heap"] is None
    else:  # redis-server overwrites its environment, which holds LD_PRELOAD
        assert preload in found["allocator"]


def test_diagnose_writes_a_page(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    with python(HOLES) as pid:
        assert heapwright(pid, "--html", out).returncode == 0
    page = out.read_text()
    assert "<svg" in page
    assert "free memory that malloc keeps" in page


def test_watch_ends_with_the_process() -> None:
    with python(HOLES) as pid:
        words = [str(HEAPWRIGHT), "diagnose", str(pid), "--watch", "0.2"]
        watching = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert watching.stdout is not None
        first = [next(line for line in watching.stdout if line.startswith("Of ")) for _ in range(2)]
    rest, errors = watching.communicate(timeout=60)
    assert first[0].startswith("Of ")
    assert watching.returncode == 0, errors + rest


def test_watch_ends_with_a_process_whose_status_is_not_collected() -> None:
    with subprocess.Popen(["sleep", "600"]) as sleeping:
        words = [str(HEAPWRIGHT), "diagnose", str(sleeping.pid), "--watch", "0.2"]
        watching = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert watching.stdout is not None
        next(line for line in watching.stdout if line.startswith("Of "))
        sleeping.kill()
        _, errors = watching.communicate(timeout=60)
    assert (watching.returncode, errors) == (0, "")


def test_watch_follows_the_processes_of_a_unit() -> None:
    with cgroup("hw-test-watch.service") as group, members(group) as first:
        words = [str(HEAPWRIGHT), "diagnose", "hw-test-watch", "--watch", "0.2"]
        watching = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert watching.stdout is not None
        next(line for line in watching.stdout if line.startswith("processes"))
        with members(group) as second:  # as a server that starts its workers anew
            for pid in first:
                os.kill(pid, signal.SIGKILL)
            awaited = {*map(str, second)}
            assert any(not (awaited := awaited - {*line.split()}) for line in watching.stdout)
    rest, errors = watching.communicate(timeout=60)
    assert watching.returncode == 0, errors + rest


def test_narrow_terminals_shorten_names_and_no_figures() -> None:
    """A server writes a title over its words; a folder in it is no folder of the program."""
    titles = ["web: master process /srv/web/web.conf with a long title", "/srv/bin/web --config web.conf"]
    running = [subprocess.Popen([title, "600"], executable="/bin/sleep") for title in titles]
    try:
        shown = heapwright(*(process.pid for process in running)).stdout
    finally:
        for process in running:
            process.kill()
            process.wait()
    table = shown[shown.index("\nprocesses  ") + 1 :]
    assert "web: mas" in table
    assert " web --co" in table
    assert "shared counted once  free in malloc" in table
    assert all(line.count("…") <= 1 and line.endswith("glibc 2.36") for line in table.splitlines()[1:])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["4194305"], "no process 4194305"),
        (["no-such-program"], "no process, container or unit is called 'no-such-program'"),
    ],
)
def test_processes_that_cannot_be_read_give_one_line(words: list[str], why: str) -> None:
    done = heapwright(*words)
    assert done.returncode == 1
    assert why in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_name_that_several_processes_have(tmp_path: Path) -> None:
    program = tmp_path / "several-of-it"
    program.symlink_to("/bin/sleep")
    running = [subprocess.Popen([program, "600"]) for _ in range(2)]
    try:
        done = heapwright("several-of-it")
        running[0].kill()
        running[0].wait()
        only = diagnosed("several-of-it")
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert done.returncode == 1
    assert "2 processes run 'several-of-it'" in done.stderr
    assert only["pid"] == running[1].pid
    assert only["finding"] == "small"


def test_wrong_arguments_are_refused() -> None:
    for name in ("", "0::"):
        done = heapwright(name)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert heapwright().returncode == 2
    assert heapwright("1", "--watch", "never").returncode == 2
    assert "--watch took 4711 as its seconds" in heapwright("--watch", "4711").stderr


def test_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        words: list[str | Path] = [tool(), str(os.getpid())]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    message = "heapwright-diagnose: stdout cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, message)
