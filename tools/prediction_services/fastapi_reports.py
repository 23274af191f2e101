"""A FastAPI application: each report is a table of texts, and some reports stay in a cache."""

from __future__ import annotations

import json
import random
from collections import OrderedDict

from fastapi import FastAPI, Response

CACHED = 300
app = FastAPI()
cache: OrderedDict[int, list[dict[str, object]]] = OrderedDict()


def report(number: int) -> Response:
    """Make the table, keep every third in the cache, and answer with its text."""
    draw = random.Random(number)
    rows = [
        {"row": row, "text": "x" * draw.randrange(20, 4000), "tags": [str(draw.random()) for _ in range(3)]}
        for row in range(draw.choice((20, 100, 700)))
    ]
    if number % 3 == 0:
        cache[number] = rows[: len(rows) // 4]
        if len(cache) > CACHED:
            cache.popitem(last=False)
    return Response(json.dumps(rows), media_type="application/json")


app.add_api_route("/report/{number}", report)
