"""A Flask application: each report is a table of texts and a block of bytes; some reports stay in a cache."""

from __future__ import annotations

import json
import random
import threading
from collections import deque

from flask import Flask

app = Flask(__name__)
cache: deque[bytes] = deque(maxlen=400)
lock = threading.Lock()


def report(number: int) -> str:
    """Make the table, keep a part of each fifth as bytes, and answer with its text."""
    draw = random.Random(number)
    rows = [{"row": row, "text": f"{draw.getrandbits(128):032x}"} for row in range(draw.choice((5, 50, 400, 2500)))]
    packed = bytearray(b"".join(str(row["text"]).encode() * 20 for row in rows))
    if number % 5 == 0:
        with lock:
            cache.append(bytes(packed[: len(packed) // 4]))
    return json.dumps(rows)


app.add_url_rule("/report/<int:number>", view_func=report)
