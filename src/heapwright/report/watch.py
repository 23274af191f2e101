"""A server for one report, live: loopback only, nothing to write, nothing but the page and its state.

    GET /        the page, with the script that asks for the state
    GET /state   a few characters that change whenever the page would (the studies' sizes and times)

A request must name this server as its Host: a page elsewhere whose name is made to lead to 127.0.0.1 (DNS rebinding)
names another, and is refused. The page is made anew only when it is asked for, the studies have changed, and the last
making is `every` seconds ago: drawing costs a second of CPU time on a machine that is measuring. Requests come on
several threads; one lock guards the page, and pictures are never drawn by two threads at once.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from heapwright import __version__
from heapwright.errors import HeapwrightError, UsageError
from heapwright.report.html import render_report
from heapwright.study.view import StudyView


class _Page:
    """The page and which state of the studies it shows."""

    def __init__(self, studies: Sequence[Path], every: float, load: Callable[[Path], StudyView]) -> None:
        self._load = load
        self._studies = studies
        self._every = every
        self._lock = threading.Lock()
        self._state = self._text = ""
        self._made = float("-inf")

    def state(self) -> str:
        """What stands for the page one would get now."""
        with self._lock:
            return self._now()

    def text(self) -> str:
        """The page, made anew if it is time.

        Raises:
            HeapwrightError: a study cannot be read any more.
        """
        with self._lock:
            state = self._now()
            if state != self._state:
                views = [self._load(study) for study in self._studies]
                self._text = render_report(views, state)
                self._state, self._made = state, time.monotonic()
            return self._text

    def _now(self) -> str:
        if self._state and time.monotonic() - self._made < self._every:
            return self._state
        return "-".join(f"{stat.st_mtime_ns:x}.{stat.st_size:x}" for stat in self._files())

    def _files(self) -> list[os.stat_result]:
        """Of the studies and their write-ahead logs, where the newest runs are."""
        found = []
        for study in self._studies:
            for path in (study, study.with_name(f"{study.name}-wal")):
                try:
                    found.append(path.stat())
                except FileNotFoundError:
                    continue
        return found


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = f"heapwright/{__version__}"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        """The page or its state; nothing else is here."""
        if self.headers.get("Host") not in self.server.names:
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, "This server answers to 127.0.0.1 and localhost only.\n")
            return
        path = self.path.partition("?")[0]
        try:
            if path == "/":
                self._answer(HTTPStatus.OK, self.server.page.text(), "text/html")
            elif path == "/state":
                self._answer(HTTPStatus.OK, self.server.page.state())
            else:
                self._answer(HTTPStatus.NOT_FOUND, "There is only the report, at /.\n")
        except HeapwrightError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error.message}\n")

    do_HEAD = do_GET

    def _answer(self, status: HTTPStatus, text: str, kind: str = "text/plain") -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the page asks every two seconds."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, page: _Page, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.page = page
        self.names = {f"{host}:{self.server_port}" for host in ("127.0.0.1", "localhost")}

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: a browser that goes away in the middle is no news."""


def watching(studies: Sequence[Path], port: int, every: float, load: Callable[[Path], StudyView]) -> _Server:
    """A server of the studies' report; `serve_forever` serves, leaving its context closes it.

    Args:
        port: 0 takes any.
        every: seconds between two makings of the page, at least.
        load: reads a study (`study.load.load_view`).

    Raises:
        UsageError: the port is taken or not allowed.
    """
    try:
        return _Server(_Page(studies, every, load), port)
    except OSError as error:
        raise UsageError(
            f"cannot listen on 127.0.0.1:{port}: {error.strerror}", "name another with --port; 0 takes any"
        ) from None
