"""A small web service for heapwright's examples: threads, JSON and byte buffers, and a cache of some answers.

    http_server.py PORT

Each request for /report/N makes a table of N rows, keeps it as JSON in the cache for a while, and answers with it.
/trim calls glibc's malloc_trim.
"""

from __future__ import annotations

import ctypes
import json
import random
import sys
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CACHED = 200
cache: deque[bytes] = deque(maxlen=CACHED)


def report(rows: int, seed: int) -> bytes:
    """Return a table of this many rows as JSON; the same seed gives the same table."""
    draw = random.Random(seed)
    parts = [bytes(draw.randrange(200, 6000)) for _ in range(rows)]
    table = [{"row": number, "size": len(part), "text": "x" * (len(part) // 8)} for number, part in enumerate(parts)]
    return json.dumps(table).encode()


class Handler(BaseHTTPRequestHandler):
    """Answers /report/N."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # header and body in one packet
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Answer a request."""
        number = self.path.removeprefix("/report/")
        known = number.isdecimal() or self.path == "/trim"
        if self.path == "/trim":
            body = b"%d\n" % ctypes.CDLL(None).malloc_trim(0)
        else:
            body = report(100 + int(number) % 400, int(number)) if number.isdecimal() else b"no such page"
            cache.append(body)
        self.send_response(200 if known else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: object) -> None:
        """Write nothing."""


class Server(ThreadingHTTPServer):
    """Answers each connection in a thread of its own."""

    request_queue_size = 128

    def handle_error(self, *_about: object) -> None:
        """Say nothing of a client that has left."""


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
