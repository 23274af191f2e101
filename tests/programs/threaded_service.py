"""A threaded web service that keeps a cache: each request makes some thousand texts and keeps few of them.

The path /trim calls glibc's malloc_trim instead. `app` is a WSGI application, for example for gunicorn. As a program
this file serves it on a free port, which it prints.
"""

from __future__ import annotations

import ctypes
import random
import socketserver
import threading
from collections.abc import Callable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

KEPT = 64  # the cache keeps one text in so many
cache: list[str] = []


def app(environment: dict[str, Any], answer: Callable[[str, list[tuple[str, str]]], object]) -> list[bytes]:
    """Answer a request with the number of texts in the cache."""
    if environment["PATH_INFO"] == "/trim":
        ctypes.CDLL(None).malloc_trim(0)
    texts = ["x" * random.randrange(600, 3000) for _ in range(0 if environment["PATH_INFO"] == "/trim" else 8000)]
    cache.extend(texts[::KEPT])
    body = str(len(cache)).encode()
    answer("200 OK", [("Content-Length", str(len(body)))])
    return [body]


class Quiet(WSGIRequestHandler):
    """Writes no log."""

    def log_message(self, *_words: object) -> None:
        """Write nothing."""


class Server(socketserver.ThreadingMixIn, WSGIServer):
    """Answers each connection in a thread of its own."""

    daemon_threads = True


if __name__ == "__main__":
    server = make_server("127.0.0.1", 0, app, Server, Quiet)
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever).start()
