"""Starts a real Dask cluster of processes, whose workers are restarted when they end, as under systemd or SLURM."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ..processes import alive, wait_for

# Shorter than the defaults of half a minute and of five minutes, so that a test of a cut network
# ends.
SHORT = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "12s", "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "5s"}
AGAIN = 'trap "kill 0" TERM; while :; do "$@" & wait $!; sleep 0.2; done'


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port below the range of outgoing connections, where a connection could connect to itself."""
    while True:
        port = random.randrange(20000, 30000)
        with contextlib.suppress(OSError), socket.socket() as s:
            s.bind((host, port))
            return port


class Farm:
    """A scheduler and workers, each in its own session; `close` ends all of them."""

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self.folder = folder
        self.host = host
        self.port = free_port(host)
        self.address = f"tcp://{host}:{self.port}"
        self.cache = folder / "cache"
        self.environ = {**os.environ, **SHORT, "HEAPWRIGHT_CACHE": str(self.cache)}
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: dict[str, subprocess.Popen[bytes]] = {}

    def start_scheduler(self) -> None:
        words = [sys.executable, "-m", "dask", "scheduler", "--host", self.host]
        words += ["--port", str(self.port), "--no-dashboard", "--no-jupyter"]
        self.scheduler = self._start("scheduler", words)
        wait_for(self._answers)

    def stop_scheduler(self) -> None:
        assert self.scheduler is not None
        self.scheduler.kill()
        self.scheduler.wait()

    def start_worker(self, name: str, before: Sequence[str] = (), nanny: bool = False, **env: str) -> None:
        """A worker that is started again whenever it ends.

        Args:
            before: words before the command: `ip netns exec …`, `taskset …`.
            nanny: it has Dask's own supervisor, too, which changes its environment.
        """
        words = [*before, sys.executable, "-m", "dask", "worker", self.address, "--nthreads", "1"]
        words += ["--no-dashboard", "--local-directory", str(self.folder / name), "--nanny" if nanny else "--no-nanny"]
        self.workers[name] = self._start(name, ["bash", "-c", AGAIN, "again", *words], **env)

    def worker_pids(self) -> list[int]:
        """Return the processes that run tasks."""
        words, parents = {}, {}
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words[int(path.name)] = (path / "cmdline").read_text().split("\0")
                parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        started = {pid for pid, w in words.items() if w[1:4] == ["-m", "dask", "worker"] and self.address in w}
        spawned = {pid for pid, p in parents.items() if p in started and "spawn_main" in " ".join(words[pid])}
        return sorted(spawned | (started - {parents[pid] for pid in spawned}))

    def close(self) -> None:
        for process in [*self.workers.values(), *([self.scheduler] if self.scheduler else [])]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        wait_for(lambda: not any(alive(pid) for pid in self.worker_pids()))

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), timeout=0.5):
            return True
        return False

    def _start(self, name: str, words: Sequence[str], **env: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env={**self.environ, **env},
                start_new_session=True, cwd=self.folder,
            )  # fmt: skip


def pids_in(log: Path) -> list[int]:
    """Return the processes that wrote their ids to a file."""
    return [int(line) for line in log.read_text().split()] if log.exists() else []


def none_left(pids: Callable[[], list[int]]) -> None:
    """Wait until all of these processes have ended."""
    wait_for(lambda: not any(alive(pid) for pid in pids()), seconds=15)
