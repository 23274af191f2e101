"""A load generator for heapwright's examples: a fixed number of requests from several connections, then a line of JSON.

    http_load.py PORT REQUESTS CONNECTIONS

It prints what `format = "json"` of [server.load_metrics] reads.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time

port, requests, connections = map(int, sys.argv[1:])
latencies: list[float] = []
errors: list[str] = []


def client(first: int) -> None:
    """Send every request whose number is `first` modulo the number of connections."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    for number in range(first, requests, connections):
        began = time.perf_counter()
        try:
            connection.request("GET", f"/report/{number}")
            answer = connection.getresponse()
            answer.read()
            if answer.status != http.HTTPStatus.OK:
                errors.append(str(answer.status))
        except (OSError, http.client.HTTPException) as error:
            errors.append(str(error))
            connection.close()
        latencies.append(1000 * (time.perf_counter() - began))


began = time.perf_counter()
threads = [threading.Thread(target=client, args=(first,)) for first in range(connections)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
elapsed = time.perf_counter() - began
latencies.sort()
quantiles = {f"p{q}_ms": latencies[min(len(latencies) - 1, len(latencies) * q // 100)] for q in (50, 95, 99)}
print(
    json.dumps(
        {
            "operations": len(latencies),
            "throughput_per_s": len(latencies) / elapsed,
            **quantiles,
            "load_errors": len(errors),
        }
    )
)
