"""Tests that the meter's last words are shown once, and that nothing else on stderr is lost or late."""

from __future__ import annotations

import io

import pytest

from heapwright.measure.stderr_relay import StderrRelay

LAST = b"heapwright-meter: command not found: x\n"
WAITS = b"heapwright-meter: the command has ended; waiting for processes that it left running: 7\n"


@pytest.mark.parametrize(
    ("chunks", "at_once", "failed"),
    [
        ([LAST], b"", b""),
        ([b"a\nb\n", LAST], b"a\nb\n", b"a\nb\n"),
        ([b"a\n" + LAST], b"a\n", b"a\n"),
        ([b"Error: no image"], b"", b""),
        ([LAST, b"more"], LAST + b"more", LAST + b"more"),
        ([b"an ", b"Error: here\n"], b"an Error: here\n", b"an Error: here\n"),
        ([WAITS], WAITS, WAITS),
        ([], b"", b""),
    ],
)
def test_only_the_last_words_of_a_failure_are_held_back(chunks: list[bytes], at_once: bytes, failed: bytes) -> None:
    for fails in (True, False):
        out = io.BytesIO()
        relay = StderrRelay(out)
        for chunk in chunks:
            relay.write(chunk)
        assert out.getvalue() == at_once
        relay.end(fails)
        assert out.getvalue() == (failed if fails else b"".join(chunks))
