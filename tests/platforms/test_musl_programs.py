"""Real programs that use musl run under the allocators, preloaded and static, with the output that they have without.

`make test-platforms` builds them by tools/musl_programs. On this machine those for arm64 run by qemu's user emulation.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests import needs
from tests.platforms.conftest import BUILT, Platform, made_for

PROGRAMS = ("sqlite3", "lua", "zstd", "mini_httpd", "malloc_threads", "busybox")
WAYS = (
    "preload-exgen",
    "preload-exgen-secure",
    "preload-reaper",
    "preload-reaper-secure",
    "static-exgen",
    "static-reaper",
)
SQL = """
CREATE TABLE words(id INTEGER PRIMARY KEY, word TEXT, n INT);
WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 4000)
  INSERT INTO words(word, n) SELECT hex(x * 7919 % 10007) || 'w', x % 97 FROM c;
CREATE INDEX by_word ON words(word);
SELECT count(DISTINCT word), sum(n), max(length(word)) FROM words;
SELECT n, group_concat(word, '-') FROM words WHERE n < 3 GROUP BY n ORDER BY n;
DELETE FROM words WHERE n % 2; VACUUM; SELECT count(*) FROM words; PRAGMA integrity_check;
"""
LUA = """
local kept, total = {}, 0
for i = 1, 30000 do
  kept[i % 500] = {name = ('x'):rep(i % 300) .. i, next = kept[(i * 7) % 500]}
  if i % 1000 == 0 then for _, v in pairs(kept) do v.next = nil end collectgarbage() end
end
for _, v in pairs(kept) do total = total + #v.name end
local parts = {} for i = 1, 2000 do parts[#parts + 1] = ('%d,'):format(i) end
print(total, #table.concat(parts), select(2, table.concat(parts):gsub('1', '')))
"""
# The shell uses built-in commands only, because qemu's user emulation cannot start another program.
SHELL = """
i=0; while [ $i -lt 300 ]; do i=$((i + 1)); text="$text $i"; done; echo ${#text}
total() { n=0; while read -r a b; do n=$((n + a)); kept="$kept$b"; done; echo $n ${#kept}; }
i=0; while [ $i -lt 25 ]; do i=$((i + 1)); printf '%d line%s\\n' $i "$text"; done | total
"""
AWK = """BEGIN {
  for (i = 1; i < 20000; i++) { seen[i % 50] = seen[i % 50] i; if (i % 700 == 0) delete seen[i % 50] }
  for (n = 0; n < 50; n++) print n, length(seen[n]), substr(seen[n], 1, 20)
}"""


@pytest.fixture(scope="session", params=("x86_64-musl", "aarch64-musl"))
def musl(request: pytest.FixtureRequest) -> Platform:
    return made_for(request.param, folder(Platform(request.param)) / "busybox-static-reaper", "musl_programs")


def folder(platform: Platform) -> Path:
    return BUILT / "musl-programs" / platform.name.partition("-")[0]


class Started:
    """A program of a platform in one of WAYS, or as it is if `way` is empty."""

    def __init__(self, platform: Platform, program: str, way: str) -> None:
        kind, _, self.library = way.partition("-")
        self.platform = platform
        self.preload = platform.library(self.library) if kind == "preload" else None
        self.path = folder(platform) / (f"{program}-{way}" if kind == "static" else program)
        self.env = {f"{self.library.partition('-')[0].upper()}_OPTIONS": "stats=1"} if way else {}

    def run(self, *words: str | Path, tells: bool = True) -> str:
        """Runs it and returns its output. It must succeed, and the library must have served it.

        Args:
            words: its arguments.
            tells: whether the library can tell at its end; it cannot if the program ends by _exit.
        """
        done = self.platform.run(self.path, *words, preload=self.preload, env=self.env)
        assert done.returncode == 0, done.stderr
        assert (" bytes live (" in done.stderr) == (bool(self.library) and tells), done.stderr
        return done.stdout


def sqlite3(started: Started, _: Path) -> str:
    return started.run(":memory:", SQL)


def lua(started: Started, _: Path) -> str:
    return started.run("-e", LUA)


def zstd(started: Started, scratch: Path) -> str:
    data = bytes(random.Random(1).choices(b"abcdefgh \n", k=1_500_000))
    (scratch / "data").write_bytes(data)
    started.run("-q", "-f", "-T2", "-B512KiB", "-6", scratch / "data", "-o", scratch / "packed")
    started.run("-q", "-f", "-d", scratch / "packed", "-o", scratch / "again")
    assert (scratch / "again").read_bytes() == data
    return hashlib.sha256((scratch / "packed").read_bytes()).hexdigest()


def busybox(started: Started, scratch: Path) -> str:
    lines = [f"{n * 7919 % 10007} line {n}" for n in range(6000)]
    (scratch / "lines").write_text("\n".join(lines) + "\n")
    (scratch / "sum").write_text("2^4000 % 1000007\n")
    told = [started.run("ash", "-c", SHELL, tells=False), started.run("awk", AWK), started.run("bc", scratch / "sum")]
    told.append(started.run("sort", "-n", scratch / "lines"))
    assert told[-1].splitlines() == sorted(lines, key=lambda line: (int(line.partition(" ")[0]), line))
    started.run("gzip", "-k", "-f", scratch / "lines")
    assert started.run("gunzip", "-c", scratch / "lines.gz").splitlines() == lines
    return "".join(told)


def malloc_threads(started: Started, _: Path) -> str:
    told = json.loads(started.run("4"))["functions"]["malloc"][""]
    assert told["iterations"] > 0
    return str(told["threads"])


def mini_httpd(started: Started, scratch: Path) -> str:
    site = scratch / "site"
    site.mkdir(exist_ok=True)
    for n in range(8):
        (site / f"page{n}.html").write_text(f"page {n}\n" * (n * 300 + 1))
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    words = ["-D", "-h", "127.0.0.1", "-p", str(port), "-d", str(site), "-u", "root", "-i", str(scratch / "pid")]
    command, env = started.platform.words(started.path, *words, preload=started.preload, env=started.env)
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            total = hashlib.sha256()
            for n in range(24):
                total.update(get(f"http://127.0.0.1:{port}/page{n % 8}.html", server))
            if started.preload:
                assert started.preload.name in Path(f"/proc/{server.pid}/maps").read_text()
            total.update(get(f"http://127.0.0.1:{port}/", server).partition(b"<title>")[2][:40])  # it lists the folder
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)
    return total.hexdigest()


def get(url: str, server: subprocess.Popen[bytes]) -> bytes:
    """The body of a page. The server may still be starting."""
    while True:
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return bytes(answer.read())
        except ConnectionError as error:
            refused: Exception = error
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionError):
                raise
            refused = error
        if server.poll() is not None:
            raise AssertionError(f"the server ended with status {server.returncode}") from refused
        time.sleep(0.05)


WORKLOADS = {work.__name__: work for work in (sqlite3, lua, zstd, mini_httpd, malloc_threads, busybox)}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_musl_program_prints_the_same_with_our_allocators(musl: Platform, program: str, tmp_path: Path) -> None:
    if program == "mini_httpd" and os.geteuid() != 0:
        needs.machine_cannot("start mini_httpd (root only)")
    work = WORKLOADS[program]
    expected = work(Started(musl, program, ""), tmp_path)
    assert expected.strip()
    for way in WAYS:
        assert work(Started(musl, program, way), tmp_path) == expected, way
