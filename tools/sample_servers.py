"""Starts servers and their loads for fidelity.py and sample_fidelity.py: the same requests every time, with pauses."""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fidelity_programs import Program, bench

# Below the ports that the kernel gives to clients: a client that waits for a server could connect to itself.
REDIS_PORT, HTTP_PORT, MEMCACHED_PORT = 27611, 27612, 27613
PAUSE_S = 1.5
Pause = Callable[[], None]  # called at the end of the pause in which memory is idle
# Each request keeps a part of what it makes; a thread serves each connection.
HTTP_PY = f"""import json, random, socketserver, sys, threading
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
        elif kind == "drop":
            for key in list(kept)[::2]: del kept[key]
        else:
            rows = [{{"id": rng.random(), "tags": ["t%d" % rng.randrange(10**9) for _ in range(3)]}}
                    for _ in range(rng.randrange(20, 600))]
            kept[number] = json.loads(json.dumps(rows))[: len(rows) // 4]
        body = json.dumps({{"kept": len(kept)}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
class Server(ThreadingHTTPServer):
    allow_reuse_address = True
Server(("127.0.0.1", {HTTP_PORT}), Handler).serve_forever()
"""


def connect(port: int) -> socket.socket:
    """Connects to a server on this machine; waits until it listens."""
    end = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=60)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def redis_load(pause: Pause) -> None:
    """Fills redis, deletes half of it, pauses, and fills a part again; redis then exits."""
    rng = random.Random(1)

    def ask(client: socket.socket, commands: list[list[str]]) -> None:
        text = "".join(f"*{len(c)}\r\n" + "".join(f"${len(w)}\r\n{w}\r\n" for w in c) for c in commands)
        client.sendall(text.encode())
        answers = b""
        while answers.count(b"\r\n") < len(commands):
            answers += client.recv(1 << 16)

    def fill(client: socket.socket, start: int, count: int) -> None:
        for i in range(start, start + count, 50):
            batch = []
            for key in range(i, i + 50):
                size = int(2 ** rng.uniform(3, 11))
                batch.append(["SET", f"k{key}", "x" * size])
                if key % 4 == 0:
                    batch.append(["HSET", f"h{key % 997}", f"f{key}", "y" * (size // 8 + 1)])
                if key % 7 == 0:
                    batch.append(["RPUSH", f"l{key % 301}", "z" * (size // 4 + 1)])
            ask(client, batch)

    client = connect(REDIS_PORT)
    fill(client, 0, 60000)
    time.sleep(0.7)
    for i in range(0, 60000, 100):
        ask(client, [["DEL", f"k{key}"] for key in range(i, i + 100) if rng.random() < 0.6])
    time.sleep(PAUSE_S)
    pause()
    fill(client, 60000, 15000)
    client.sendall(b"*2\r\n$8\r\nSHUTDOWN\r\n$6\r\nNOSAVE\r\n")
    client.recv(100)


def http_load(pause: Pause) -> None:
    """Sends requests from four clients, lets the server drop half of what it keeps, pauses, and sends some more."""

    def get(client: socket.socket, path: str) -> None:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = b""
        while b"}" not in answer:
            answer += client.recv(1 << 16)

    def send(first: int, count: int) -> None:
        client = connect(HTTP_PORT)
        for number in range(first, first + count):
            get(client, f"/make/{number}")
        client.close()

    def burst(first: int, count: int) -> None:
        clients = [threading.Thread(target=send, args=(first + i * count, count)) for i in range(4)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()

    burst(0, 80)
    time.sleep(0.7)
    client = connect(HTTP_PORT)
    get(client, "/drop/0")
    time.sleep(PAUSE_S)
    pause()
    burst(1000, 30)
    get(client, "/quit/0")
    client.close()


def memcached_load(pause: Pause) -> None:
    """Fills memcached from four clients, pauses, fills it further, and ends it."""

    def fill(first: int) -> None:
        rng = random.Random(first)
        client = connect(MEMCACHED_PORT)
        for key in range(first, first + 8000):
            size = int(2 ** rng.uniform(4, 13))
            client.sendall(f"set k{key} 0 0 {size} noreply\r\n{'v' * size}\r\n".encode())
        client.sendall(b"version\r\n")
        client.recv(100)
        client.close()

    for first in (0, 100000):
        clients = [threading.Thread(target=fill, args=(first + i * 10000,)) for i in range(4)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        if first == 0:
            time.sleep(PAUSE_S)
            pause()
    connect(MEMCACHED_PORT).sendall(b"shutdown\r\n")


LOADS: dict[str, Callable[[Pause], None]] = {
    "redis": redis_load,
    "python3-http": http_load,
    "memcached": memcached_load,
}


def servers(folder: Path) -> list[Program]:
    """Writes the inputs of the servers, and lists those that are installed."""
    (folder / "http_server.py").write_text(HTTP_PY)
    malloc = {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"}
    redis = ["redis-server", "--port", str(REDIS_PORT), "--save", "", "--appendonly", "no", "--activedefrag", "no"]
    memcached = ["memcached", "-p", str(MEMCACHED_PORT), "-U", "0", "-A", "-t", "4", "-m", "64", "-u", "root"]
    found = [
        Program("redis", redis, {}, True),
        Program("python3-http", ["/usr/bin/python3", "http_server.py"], malloc, True),
        Program("memcached", memcached, {}, True),
    ]
    wide = ["--threads", "4", "blocks=100000", "steps=300000", "generations=4"]
    found += [
        Program("bench-server", [bench("server"), *wide], {}, True),
        Program("bench-realistic", [bench("realistic"), "--threads", "3", "mib=96", "handover=10"], {}, True),
    ]
    return [p for p in found if shutil.which(p.command[0])]


def run_program(
    program: Program, env: dict[str, str], folder: Path, series: list[tuple[float, int]] | None = None
) -> dict[str, float]:
    """Runs a program once, a server under its load, and reads its resident memory every 5 ms.

    Args:
        program: The program.
        env: The whole environment.
        folder: Where it runs.
        series: Receives the readings, (seconds, bytes) each.

    Returns:
        Peak, mean and idle memory in bytes, and CPU time in seconds ('cpu').
    """
    process = subprocess.Popen(
        program.command,
        env=env,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    readings: list[tuple[float, int]] = [] if series is None else series
    idle, peak = [0], [0]  # the kernel's ru_maxrss counts this tool's memory before exec, too

    def resident() -> int:
        sizes = re.findall(r"Vm(?:HWM|RSS):\s*(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
        if sizes:  # not when it is ending
            peak[0] = int(sizes[0]) * 1024
        return int(sizes[1]) * 1024 if sizes else 0

    def load() -> None:
        LOADS[program.name](lambda: idle.__setitem__(0, resident()))

    client = threading.Thread(target=load) if program.name in LOADS else None
    if client:
        client.start()
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        readings.append((time.monotonic(), resident()))
        time.sleep(0.005)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if client:
        client.join()
    if process.returncode:
        raise SystemExit(f"{program.name} ended with status {process.returncode}")
    while readings and not readings[-1][1]:  # it has given back its memory, and still ends
        readings.pop()
    pairs = list(itertools.pairwise(readings))
    spent = readings[-1][0] - readings[0][0]
    mean = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairs) / spent
    return {
        "peak": float(peak[0]),
        "mean": mean,
        "idle": float(idle[0] or readings[-1][1]),
        "cpu": usage.ru_utime + usage.ru_stime,
    }
