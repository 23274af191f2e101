"""Starts servers for tools/service_fidelity.py on which allocators differ clearly: changing sizes, peaks and pauses.

- `redis-churn`: values of one size, of which most are deleted, then of other sizes, twice, with pauses.
- `python3-http-buffers`: Python as it comes, in four threads; each request makes byte buffers of 4 KiB to 2 MiB and
  parses JSON. A few buffers stay until a later request replaces them.

A third service is a mode of tests/programs/paused_service.cpp, in which the sizes of blocks change with each peak.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from pathlib import Path

import fidelity
from sample_servers import LOADS, PAUSE_S, Pause, connect

CHURN_PORT, BUFFERS_PORT = 27614, 27615
BUFFERS_PY = f"""import json, random, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
kept = {{}}
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *words): pass
    def do_GET(self):
        _, kind, number = self.path.split("/")
        rng = random.Random(int(number))
        if kind == "quit":
            threading.Thread(target=self.server.shutdown).start()
        else:
            buffers = [bytearray(int(2 ** rng.uniform(12, 21))) for _ in range(8)]
            rows = json.loads(json.dumps([{{"id": rng.random(), "name": "n%d" % i}} for i in range(400)]))
            kept[int(number) % 16] = (buffers[0], rows[:50])
        body = json.dumps({{"kept": len(kept)}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
class Server(ThreadingHTTPServer):
    allow_reuse_address = True
Server(("127.0.0.1", {BUFFERS_PORT}), Handler).serve_forever()
"""


def churn_load(pause: Pause) -> None:
    """Fills redis with values of one size, deletes nine of ten, pauses, and goes on with other sizes."""
    rng = random.Random(3)
    client = connect(CHURN_PORT)

    def ask(commands: list[list[str]]) -> None:
        text = "".join(f"*{len(c)}\r\n" + "".join(f"${len(w)}\r\n{w}\r\n" for w in c) for c in commands)
        client.sendall(text.encode())
        answers = b""
        while answers.count(b"\r\n") < len(commands):
            answers += client.recv(1 << 16)

    sizes = ((60, 90), (300, 900), (3000, 9000), (100, 20000))
    for phase, (low, high) in enumerate(sizes):
        keys = [f"p{phase}:{i}" for i in range(24_000_000 // (low + high + 200))]
        for i in range(0, len(keys), 50):
            ask([["SET", key, "x" * rng.randint(low, high)] for key in keys[i : i + 50]])
        gone = [key for key in keys if rng.random() < 0.9]
        for i in range(0, len(gone), 50):
            ask([["DEL", key] for key in gone[i : i + 50]])
        time.sleep(PAUSE_S)
        if phase == len(sizes) - 2:
            pause()
    client.sendall(b"*2\r\n$8\r\nSHUTDOWN\r\n$6\r\nNOSAVE\r\n")
    client.recv(100)


def buffers_load(pause: Pause) -> None:
    """Sends requests from four clients in two peaks with a pause after each."""

    def get(client: socket.socket, path: str) -> None:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = b""
        while b"}" not in answer:
            answer += client.recv(1 << 16)

    def send(first: int) -> None:
        client = connect(BUFFERS_PORT)
        for number in range(first, first + 100):
            get(client, f"/make/{number}")
        client.close()

    for peak in range(2):
        clients = [threading.Thread(target=send, args=(1000 * peak + 100 * i,)) for i in range(4)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        time.sleep(PAUSE_S)
        if not peak:
            pause()
    last = connect(BUFFERS_PORT)
    get(last, "/quit/0")
    last.close()


def spread_servers(folder: Path) -> list[fidelity.Program]:
    """Writes the servers' inputs and lists them; their loads join those of tools/sample_servers.py."""
    (folder / "buffers_server.py").write_text(BUFFERS_PY)
    LOADS.update({"redis-churn": churn_load, "python3-http-buffers": buffers_load})
    redis = ["redis-server", "--port", str(CHURN_PORT), "--save", "", "--appendonly", "no", "--activedefrag", "no"]
    python = ["/usr/bin/python3", "buffers_server.py"]
    return [
        fidelity.Program("redis-churn", redis, {}, True),
        fidelity.Program("python3-http-buffers", python, {"PYTHONHASHSEED": "0"}, True),
    ]
