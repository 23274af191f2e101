"""Writes workload files for tests: several inputs with stdin, and a server with its load."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

from tests.conftest import PROGRAMS

# Prints its stdin, arguments, variables and directory, and whether the set-up was made.
SAYS = 'read line; echo "$line|$*|$WHO|$SIZE|$MALLOC_ARENA_MAX|$(basename "$PWD")|$(cat made)"'


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def write_inputs(folder: Path) -> Path:
    """Writes folder/w.toml, a workload with every feature except a server; its directory is folder/data."""
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
    """Writes folder/server.toml, a workload with tests/programs/tiny_server.py.

    Args:
        folder: the folder of the workload; the server and its load write folder/log.
        port: the server's port.
        requests: how many lines the load sends.
    """
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
    """Reads the lines of a tiny server and its loads (who, GLIBC_TUNABLES, WHO), and removes the log."""
    lines = (folder / "log").read_text().splitlines()
    (folder / "log").unlink()
    return [line.split() for line in lines]
