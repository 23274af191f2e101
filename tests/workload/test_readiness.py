"""Tests the ready checks of a server: its port, and its ready command."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from heapwright.workload.model import Server
from heapwright.workload.readiness import port_in_use, wait_ready


@pytest.fixture
def server_thread() -> Iterator[threading.Thread]:
    """Stands for the thread that runs a server, and lives as long as the test."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    yield thread
    done.set()
    thread.join()


@pytest.mark.parametrize("up", [False, True])
def test_a_port_and_a_ready_command_are_both_required(
    up: bool, server_thread: threading.Thread, tmp_path: Path
) -> None:
    (tmp_path / "up").touch()
    ready = ["test", "-e", "up" if up else "later"]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        server = Server(["true"], ready=ready, ready_port=port, ready_timeout=10 if up else 0.2)
        failing = "" if up else "the ready command fails (test -e later)"
        assert wait_ready(server, server_thread, tmp_path, {}) == failing
    if up:
        closed = Server(["true"], ready=ready, ready_port=1, ready_timeout=0.2)
        assert wait_ready(closed, server_thread, tmp_path, {}) == "port 1 does not answer"


def test_a_connection_to_itself_is_no_server(
    server_thread: threading.Thread, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The kernel may give the client the port that it asks for; then the client connects to itself.

    The server can still use its port after that.
    """
    used: list[tuple[str, int]] = []

    def connect_to_itself(address: tuple[str, int], timeout: float) -> socket.socket:
        client = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        client.settimeout(timeout)
        client.bind((address[0], 0))
        client.connect(client.getsockname())
        used.append(client.getsockname()[:2])
        return client

    monkeypatch.setattr(socket, "create_connection", connect_to_itself)
    closed = Server(["true"], ready_port=1, ready_timeout=0.1)
    assert port_in_use(closed, tmp_path, {}) == 0
    assert wait_ready(closed, server_thread, tmp_path, {}) == "port 1 does not answer"
    for host, port in used:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
            server.bind((host, port))
