"""Stores values of up to 8 KB in memcached over four connections: memcached_load.py PORT VALUES."""

from __future__ import annotations

import json
import random
import socket
import sys
import threading
import time

port, values = map(int, sys.argv[1:])
CONNECTIONS = 4


def store(first: int) -> None:
    """Store each fourth value, and wait until memcached has read the last."""
    draw = random.Random(first)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for key in range(first, values, CONNECTIONS):
            size = int(2 ** draw.uniform(4, 13))
            connection.sendall(f"set k{key} 0 0 {size} noreply\r\n{'v' * size}\r\n".encode())
        connection.sendall(b"version\r\n")
        connection.recv(100)


began = time.perf_counter()
threads = [threading.Thread(target=store, args=(first,)) for first in range(CONNECTIONS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps({"operations": values, "throughput_per_s": values / (time.perf_counter() - began)}))
