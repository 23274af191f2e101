"""A server for tests: keeps the lines that it receives, and logs the settings that it was started with.

tiny_server.py PORT LOG            serves until SIGTERM
tiny_server.py PORT LOG load N     sends N lines, and logs its settings in LOG
"""

import os
import socket
import sys

port, log = int(sys.argv[1]), sys.argv[2]
who = sys.argv[3] if len(sys.argv) > 3 else "serve"
with open(log, "a") as file:  # noqa: PTH123 (pathlib would take longer to import than all else)
    file.write(f"{who} {os.environ.get('GLIBC_TUNABLES', '-')} {os.environ.get('WHO', '-')}\n")
if who == "load":
    for _ in range(int(sys.argv[4])):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"x" * 1000)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)
else:
    kept = []
    with socket.create_server(("127.0.0.1", port)) as server:
        while True:
            connection, _ = server.accept()
            with connection:
                while data := connection.recv(65536):
                    kept.append(data)
