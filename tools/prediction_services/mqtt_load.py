"""Publishes retained messages and deletes seven of eight: mqtt_load.py PORT MESSAGES PREFIX."""

from __future__ import annotations

import json
import random
import socket
import struct
import sys
import time

CONNECT, PUBLISH_RETAINED, PING, DISCONNECT = 0x10, 0x31, 0xC0, 0xE0
BATCH = 200  # messages


def packet(kind: int, body: bytes) -> bytes:
    """An MQTT 3.1.1 packet: its kind, the length of its body in groups of seven bits, and the body."""
    length, rest = b"", len(body)
    while True:
        rest, digit = divmod(rest, 128)
        length += bytes([digit | (128 if rest else 0)])
        if not rest:
            return bytes([kind]) + length + body


def text(word: str) -> bytes:
    """A string with its length before it."""
    return struct.pack(">H", len(word)) + word.encode()


port, messages, prefix = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
draw = random.Random(prefix)
topics = [f"{prefix}/{number % 97}/{number}" for number in range(messages)]
sent = [packet(PUBLISH_RETAINED, text(topic) + b"x" * draw.choice((40, 300, 900, 2500))) for topic in topics]
sent += [packet(PUBLISH_RETAINED, text(topic)) for number, topic in enumerate(topics) if number % 8]  # deletes it
began = time.perf_counter()
with socket.create_connection(("127.0.0.1", port)) as connection:
    connection.sendall(packet(CONNECT, text("MQTT") + b"\x04\x02\x00\x00" + text("load")))
    connection.recv(4)
    for first in range(0, len(sent), BATCH):
        connection.sendall(b"".join(sent[first : first + BATCH]))
    connection.sendall(packet(PING, b""))
    connection.recv(2)
    connection.sendall(packet(DISCONNECT, b""))
print(json.dumps({"operations": len(sent), "throughput_per_s": len(sent) / (time.perf_counter() - began)}))
