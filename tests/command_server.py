"""Runs the command `heapwright` in forks of one process that has imported everything, for tests that run it often.

Importing takes most of the time of a short command: 0.3 s, and 2 s if it plots. A fork is a process of its own, with
the environment, the working directory, the streams and the session that the test gives it. It tests neither the
installed script nor the imports of each verb: tests/system/test_verbs.py and others run these.

    python command_server.py FD     serves requests from the socket FD until the other end closes it
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import NoReturn

# Modules that the verbs import inside their functions.
LATE = (
    "cma",
    "jinja2",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "numpy",
    "pymoo.algorithms.moo.nsga2",
    "rich.console",
    "rich.table",
    "scipy.optimize",
    "scipy.stats.qmc",
    "sklearn.gaussian_process",
    "sqlite3",
    "threadpoolctl",
)
AT_START = ("LD_", "PYTHON", "GLIBC_TUNABLES", "MALLOC_", "LC_", "LANG")
ENOUGH = 1 << 20  # bytes: more than any request has


class CommandServer:
    """The process that forks, seen from the tests. It starts with the first command and ends with this process."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.ours: socket.socket | None = None
        self.spent = 0.0  # processor time of all commands in seconds

    def _started(self) -> socket.socket:
        if self.ours is None:
            self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            words = [sys.executable, __file__, str(theirs.fileno())]
            # Python asks once whether its streams can seek: pipes cannot, as those of the forks.
            process = subprocess.Popen(words, pass_fds=[theirs.fileno()], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            theirs.close()
            atexit.register(self._end, process)
        return self.ours

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if self.ours is not None:
            self.ours.close()
        process.wait(20)

    def run(
        self,
        words: Sequence[str],
        folder: Path,
        env: Mapping[str, str],
        text: str | bytes = "",
        timeout: float = 240,
        memory: int = 0,
    ) -> tuple[int, bytes, bytes]:
        """Runs the command to its end in a session of its own.

        Args:
            words: sys.argv.
            folder: the working directory.
            env: the whole environment.
            text: written to a pipe, the standard input; if it is empty, the standard input is /dev/null.
            timeout: seconds until the command is killed.
            memory: the limit on its data in bytes; no limit if it is 0.

        Returns:
            The exit status, or the negative number of the signal that ended it; standard output; standard error.
        """
        if text:
            source, sink = os.pipe()
            data = text.encode() if isinstance(text, str) else text
            assert os.write(sink, data) == len(data), "more than a pipe holds"
            os.close(sink)
        else:
            source = os.open(os.devnull, os.O_RDONLY)
        pipes = [os.pipe(), os.pipe()]
        request = {"words": list(words), "folder": str(folder), "env": dict(env), "memory": memory}
        with ThreadPoolExecutor(2) as pool:
            read = [pool.submit(_all_of, end) for end, _ in pipes]
            streams = [source, *(end for _, end in pipes)]
            try:
                status = self._ask(request, streams, timeout)
            finally:
                for one in streams:
                    os.close(one)
        out, err = (one.result() for one in read)
        return status, out, err

    def _ask(self, request: Mapping[str, object], streams: list[int], timeout: float) -> int:
        with self.lock:
            server = self._started()
            server.settimeout(120)
            socket.send_fds(server, [json.dumps(request).encode()], streams)
            pid = int(server.recv(ENOUGH))
            server.settimeout(timeout)
            try:
                status, spent = server.recv(ENOUGH).split()
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                server.settimeout(20)
                server.recv(ENOUGH)
                raise
            self.spent = float(spent)
            return int(status)


def _all_of(descriptor: int) -> bytes:
    with open(descriptor, "rb") as stream:
        return stream.read()


SERVER = CommandServer()


def at_start(env: Mapping[str, str]) -> bool:
    """Whether one of the variables is read by the loader, the C library or the interpreter when a process starts."""
    return any(name.startswith(AT_START) for name in env)


def end_with_parent() -> None:
    """Gets SIGTERM when the parent ends, so that no command outlives tests that were killed."""
    pr_set_pdeathsig = 1  # linux/prctl.h
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM, 0, 0, 0)


def serve(number: int) -> None:
    """Imports everything, then forks for each request; returns in the fork, which runs the command.

    Args:
        number: the file descriptor of a socket.
    """
    import heapwright
    from heapwright.allocators.registry import find_allocators
    from heapwright.measure.cold_pages import measure_cold_pages
    from heapwright.study import store

    for module in pkgutil.walk_packages(heapwright.__path__, "heapwright."):
        with contextlib.suppress(ImportError):  # of optional packages
            importlib.import_module(module.name)
    for name in LATE:
        importlib.import_module(name)
    find_allocators()  # the forks have what dpkg-query and the files of parameters said
    measure_cold_pages.__defaults__ = (8,)  # to clear 512 MiB is a tenth of the time of a short `tune`
    store.SYNCHRONOUS = "OFF"  # a short `tune` commits a hundred times, and waits milliseconds for the disk each time
    gc.collect()
    gc.freeze()  # the collector of a fork would write to, and so copy, all memory
    end_with_parent()
    with socket.socket(fileno=number) as ours:
        while True:
            request, streams, _, _ = socket.recv_fds(ours, ENOUGH, 3)
            if not request:
                os._exit(0)
            pid = os.fork()
            if pid == 0:
                break
            for one in streams:
                os.close(one)
            ours.send(str(pid).encode())
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            ours.send(f"{status} {sum(os.times()[:4])}".encode())
    end_with_parent()
    os.setsid()
    asked = json.loads(request)
    for place, one in enumerate(streams):
        os.dup2(one, place)
        os.close(one)
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["folder"])
    # Packages of a test, which the interpreter would find at its start.
    packages = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[1:1] = [path for path in packages if path not in sys.path]
    if asked["memory"]:
        resource.setrlimit(resource.RLIMIT_DATA, (asked["memory"], asked["memory"]))
    sys.argv = asked["words"]


def end(status: int) -> NoReturn:
    """Ends as the interpreter does, but destroys no module: in a fork that copies all memory."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    from heapwright.cli.main import main

    serve(int(sys.argv[1]))
    try:
        end(main())
    except SystemExit as ended:
        end(ended.code if isinstance(ended.code, int) else 1)
