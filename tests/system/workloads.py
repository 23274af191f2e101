"""Workload files for tests: several inputs with stdin, and a server with its load."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

from tests.conftest import PROGRAMS

# Says what it sees: its stdin, arguments, variables and directory, and whether set-up was made.
SAYS = 'read line; echo "$line|$*|$WHO|$SIZE|$MALLOC_ARENA_MAX|$(basename "$PWD")|$(cat made)"'


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def write_inputs(folder: Path) -> Path:
    """A workload with everything but a server, in folder/w.toml; its directory is folder/data."""
    (folder / "data").mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.txt").write_text(f"line of {name}\n")
    file = folder / "w.toml"
    file.write_text(
        f"""command = ["sh", "-c", {json.dumps(SAYS)}, "sh", "{{args}}", "last"]
cwd = "data"
setup = ["sh", "-c", "echo $WHO >> ../setups; echo made > made"]
cleanup = ["rm", "made"]
[env]
WHO = "me"
MALLOC_ARENA_MAX = "7"
[[input]]
name = "one"
args = ["a b"]
stdin = "one.txt"
[[input]]
name = "the second"
split = "test"
args = ["2"]
stdin = "two.txt"
env = {{ SIZE = "9" }}
"""
    )
    return file


def write_server(folder: Path, port: int, requests: int = 5) -> Path:
    """A workload with tests/programs/tiny_server.py, in folder/server.toml; it and its load write folder/log."""
    words = [sys.executable, "-I", "-S", str(PROGRAMS / "tiny_server.py"), str(port), str(folder / "log")]
    file = folder / "server.toml"
    file.write_text(
        f"""command = {json.dumps(words)}
[env]
WHO = "me"
[output]
compare = "none"
[server]
ready_port = {port}
load = {json.dumps([*words, "load", str(requests)])}
"""
    )
    return file


def log_of(folder: Path) -> list[list[str]]:
    """What a tiny server and its loads wrote: who, GLIBC_TUNABLES, WHO; then the log is empty."""
    lines = (folder / "log").read_text().splitlines()
    (folder / "log").unlink()
    return [line.split() for line in lines]
