"""A load generator for heapwright's examples: numbered requests, one line each, and then a line of JSON.

    line_load.py PORT REQUESTS CONNECTIONS

It prints what `format = "json"` of [server.load_metrics] reads.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time

port, requests, connections = map(int, sys.argv[1:])
latencies: list[float] = []
errors: list[str] = []


def client(first: int) -> None:
    """Send every request whose number is `first` modulo the number of connections."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = connection.makefile("rb")
        for number in range(first, requests, connections):
            began = time.perf_counter()
            connection.sendall(b"%d\n" % number)
            if not answers.readline().endswith(b"\n"):
                errors.append("no answer")
                return
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
figures = {"operations": len(latencies), "throughput_per_s": len(latencies) / elapsed, **quantiles}
print(json.dumps(figures | {"load_errors": len(errors)}))
