"""Compares the meter's proportional memory of a pre-forking gunicorn with sums of smaps_rollup. Prints Markdown.

    python3 -m venv /tmp/gunicorn && /tmp/gunicorn/bin/pip install gunicorn
    .venv/bin/python tools/pss_check.py --gunicorn /tmp/gunicorn/bin/gunicorn

The server loads 200,000 strings before it forks. Four clients send requests for eight seconds.
Meanwhile this program sums `Rss` and `Pss` over the server's processes every 20 ms, which is more
often than the meter's budget allows.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from heapwright.measure.meter import meter_path

_APP = """
import json
TABLE = {i: ("row %d " % i) * 5 for i in range(200_000)}
def app(environ, start_response):
    first = int(environ["PATH_INFO"].strip("/"))
    body = json.dumps([TABLE[(first * 7 + k) % 200_000] for k in range(2000)]).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""
_SECONDS = 8.0
_MIB = 1 << 20


class Watch(threading.Thread):
    """Sums smaps_rollup over the descendants of a process that run gunicorn, until told to stop."""

    def __init__(self, root: int) -> None:
        super().__init__()
        self.root = root
        self.done = threading.Event()
        self.readings: list[tuple[float, int, int]] = []  # seconds, RSS and PSS in bytes

    def run(self) -> None:
        """Reads every 20 ms."""
        while not self.done.wait(0.02):
            sums = [rollup(pid) for pid in descendants(self.root)]
            self.readings.append((time.monotonic(), sum(rss for rss, _ in sums), sum(pss for _, pss in sums)))

    def mean_pss(self) -> float:
        """The mean PSS over time, in bytes."""
        pairs = list(zip(self.readings, self.readings[1:], strict=False))
        area = sum((later[0] - one[0]) * (one[2] + later[2]) / 2 for one, later in pairs)
        return area / (self.readings[-1][0] - self.readings[0][0])


def descendants(pid: int) -> list[int]:
    """The descendants of a process, without the meter's helpers, which run the meter's own program."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                if Path(f"/proc/{child}/comm").read_text().strip() != "heapwright-mete":
                    found.append(child)
                found += descendants(child)
    return found


def rollup(pid: int) -> tuple[int, int]:
    """RSS and PSS of a process in bytes; 0 if it has ended."""
    with contextlib.suppress(OSError, KeyError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        sizes = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
        return sizes["Rss"], sizes["Pss"]
    return 0, 0


def ask(port: int, seconds: float, first: int) -> None:
    """Requests pages from the server, one after the other.

    Args:
        port: The server's port.
        seconds: For how long.
        first: The number of the first page.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/{first}").read()
        first += 13


def measure(gunicorn: str, workers: int, backend: str, folder: Path) -> str:
    """Runs the server once and formats a row of the table.

    Args:
        gunicorn: The command.
        workers: The number of worker processes.
        backend: The meter's back end.
        folder: Where to write the application and the meter's output.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "app.py").write_text(_APP)
    ledger = folder / "ledger.json"
    meter = [str(meter_path()), "--backend", backend, "--pss", "--output", str(ledger), "--"]
    serve = [gunicorn, "--preload", "-w", str(workers), "-b", f"127.0.0.1:{port}", "--log-level", "error", "app:app"]
    with subprocess.Popen([*meter, *serve], cwd=folder) as process:
        watch = Watch(process.pid)
        watch.start()
        for _ in range(300):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        clients = [threading.Thread(target=ask, args=(port, _SECONDS, n)) for n in range(4)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        process.terminate()
        process.wait()
        watch.done.set()
        watch.join()
    found = json.loads(ledger.read_text())
    figures = [
        found["peak_rss_bytes"], found["peak_pss_bytes"], max(pss for *_, pss in watch.readings),
        found["mean_pss_bytes"], watch.mean_pss(),
    ]  # fmt: skip
    cost = f"{found['pss_samples']}, {found['pss_cpu_s'] * 1e3:.0f} ms of {found['wall_s']:.1f} s"
    return " | ".join([f"| {workers}", backend, *(f"{value / _MIB:.1f}" for value in figures), f"{cost} |"])


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gunicorn", required=True, help="path of the installed command")
    args = parser.parse_args()
    print(
        "| workers | back end | peak RSS | peak PSS, meter | peak PSS, script | mean PSS, meter | mean PSS, script |"
        " readings, their CPU time |\n|---|---|---|---|---|---|---|---|"
    )
    for workers in (1, 4):
        for backend in ("notify", "ptrace", "poll"):
            with tempfile.TemporaryDirectory() as name:
                print(measure(args.gunicorn, workers, backend, Path(name)), flush=True)


if __name__ == "__main__":
    main()
