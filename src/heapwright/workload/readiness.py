"""Checks whether a server answers: at its port, or by the ready command of the workload file."""

from __future__ import annotations

import contextlib
import re
import shlex
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from heapwright.errors import HeapwrightError
from heapwright.measure.process_group import run_group
from heapwright.workload.model import Server

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close without TIME_WAIT
_NUMBER = re.compile(r"(?<![\d.])\d{2,5}(?![\d.])")  # in a word: a port, but no part of an address


def _listening(port: int) -> bool:
    """Return whether something accepts connections at a port of this machine.

    A connection to a port that is closed may still succeed: if the kernel gives the client this very port, the client
    connects to itself (TCP's simultaneous open). Such a connection is reset, so that the server can use its port.
    """
    for host in ("127.0.0.1", "::1"):
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=0.5) as client:
            if client.getsockname() != client.getpeername():
                return True
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    return False


def port_in_use(server: Server, cwd: Path, plain: Mapping[str, str]) -> int:
    """Return a port at which another server already answers the ready check; 0 if there is none.

    A ready command that succeeds may check no server at all (`sleep`). So the port is one that the command names.

    Args:
        server: of the workload.
        cwd: working directory of the ready command.
        plain: its environment.
    """
    if server.ready_port and _listening(server.ready_port):
        return server.ready_port
    named = [int(number) for word in server.ready for number in _NUMBER.findall(word)]
    taken = next((port for port in named if port in _listening_ports()), 0)
    return taken if taken and answers(server.ready, cwd, plain) else 0


def _listening_ports() -> set[int]:
    """Return the TCP ports of this network namespace at which something listens, at any address."""
    ports: set[int] = set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path("/proc/net", name).read_text().splitlines()[1:]:
                _, address, _, state, *_ = line.split()
                if state == "0A":  # TCP_LISTEN
                    ports.add(int(address.rpartition(":")[2], 16))
    return ports


def answers(words: list[str], cwd: Path, plain: Mapping[str, str]) -> bool:
    """Run the ready command once; return whether it succeeds. An empty one does not.

    Args:
        words: the command.
        cwd: its working directory.
        plain: its environment.
    """
    if not words:
        return False
    try:
        status = run_group(
            words,
            5.0,
            cwd=cwd,
            env=dict(plain),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return False
    except OSError as error:
        raise HeapwrightError(f"the ready command does not start: {error}") from None
    return status == 0


def wait_ready(server: Server, thread: threading.Thread, cwd: Path, plain: Mapping[str, str]) -> str:
    """Wait until the server answers at its port and to the ready command; return which check fails, or empty.

    Of the two checks, those count that the workload has.

    Args:
        server: how to check it.
        thread: runs the server.
        cwd: the directory of the ready command.
        plain: its environment.
    """
    deadline = time.monotonic() + server.ready_timeout
    failing = "there was no time for a check"
    while time.monotonic() < deadline and thread.is_alive():
        if server.ready_port and not _listening(server.ready_port):
            failing = f"port {server.ready_port} does not answer"
        elif server.ready and not answers(server.ready, cwd, plain):
            failing = f"the ready command fails ({shlex.join(server.ready)})"
        else:
            return ""
        time.sleep(0.02)
    return failing
