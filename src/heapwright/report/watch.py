"""Serves the live report of running studies, read-only and on the loopback interface only.

    GET /        the page, with the script that asks for the state
    GET /state   a few characters that change whenever the page would (from the studies' sizes and times)

A request must name this server in its Host header. A site elsewhere whose name resolves to 127.0.0.1 (DNS rebinding)
sends another name, and the server refuses it. The server renders the page again only on request, if the studies have
changed and the last rendering is at least `every` seconds old, because drawing costs a second of CPU time on a machine
that is measuring. Requests come on several threads. One lock guards the page, so two threads never draw at once.
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
    """The rendered page, and the state of the studies that it shows."""

    def __init__(self, studies: Sequence[Path], every: float, load: Callable[[Path], StudyView]) -> None:
        self._load = load
        self._studies = studies
        self._every = every
        self._lock = threading.Lock()
        self._state = self._text = ""
        self._rendered_at = float("-inf")

    def state(self) -> str:
        """Return the state of the page that `text` would return now."""
        with self._lock:
            return self._now()

    def text(self) -> str:
        """Return the page, rendered again if it is out of date.

        Raises:
            HeapwrightError: a study can no longer be read.
        """
        with self._lock:
            state = self._now()
            if state != self._state:
                views = [self._load(study) for study in self._studies]
                self._text = render_report(views, state)
                self._state, self._rendered_at = state, time.monotonic()
            return self._text

    def _now(self) -> str:
        if self._state and time.monotonic() - self._rendered_at < self._every:
            return self._state
        return "-".join(f"{stat.st_mtime_ns:x}.{stat.st_size:x}" for stat in self._files())

    def _files(self) -> list[os.stat_result]:
        """Return the status of each study and of its write-ahead log, which has the newest runs."""
        stats = []
        for study in self._studies:
            for path in (study, study.with_name(f"{study.name}-wal")):
                try:
                    stats.append(path.stat())
                except FileNotFoundError:
                    continue
        return stats


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = f"heapwright/{__version__}"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        """Answer with the page or its state."""
        if self.headers.get("Host") not in self.server.names:
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, "This server answers to 127.0.0.1 and localhost only.\n")
            return
        path = self.path.partition("?")[0]
        kind = "text/plain"
        try:
            if path == "/":
                status, text, kind = HTTPStatus.OK, self.server.page.text(), "text/html"
            elif path == "/state":
                status, text = HTTPStatus.OK, self.server.page.state()
            else:
                status, text = HTTPStatus.NOT_FOUND, "Not found. The report is at /.\n"
        except HeapwrightError as error:
            status, text = HTTPStatus.SERVICE_UNAVAILABLE, f"{error.message}\n"
        except Exception as error:  # a fault of ours or of the machine, such as a full disk; the server goes on
            why = " ".join(str(error).split())
            status, text = HTTPStatus.INTERNAL_SERVER_ERROR, f"cannot make the report: {type(error).__name__}: {why}\n"
        self._answer(status, text, kind)

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
        """Log nothing: the page asks every two seconds."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, page: _Page, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.page = page
        self.names = {f"{host}:{self.server_port}" for host in ("127.0.0.1", "localhost")}

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors of a connection: a browser may close it at any time."""


def watching(studies: Sequence[Path], port: int, every: float, load: Callable[[Path], StudyView]) -> _Server:
    """Open a server of the studies' report; `serve_forever` serves, and leaving its context closes it.

    Args:
        studies: paths of the study files.
        port: TCP port on 127.0.0.1; 0 chooses a free one.
        every: minimum time between two renderings of the page, seconds.
        load: reads a study (`study.load.load_view`).

    Raises:
        UsageError: the port is in use or not permitted.
    """
    try:
        return _Server(_Page(studies, every, load), port)
    except OSError as error:
        raise UsageError(
            f"cannot listen on 127.0.0.1:{port}: {error.strerror}", "choose another with --port; 0 chooses a free one"
        ) from None
