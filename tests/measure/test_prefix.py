"""Tests runs that end at the end of their prefix: after a time, or at a printed text."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heapwright.measure.meter import MeterOptions, Run, run_metered
from heapwright.measure.prefix import Prefix, PrefixEnd

SLEEPS = "import sys, time\nx = bytearray(16 << 20)\nprint('begin', flush=True)\n{}\ntime.sleep(60)"


@pytest.fixture(autouse=True)
def _meter(meter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEAPWRIGHT_METER", str(meter))


def run(code: str, prefix: Prefix) -> Run:
    return run_metered([sys.executable, "-c", code], MeterOptions(), prefix=prefix)


@given(st.lists(st.binary(max_size=5)), st.binary(min_size=1, max_size=4), st.lists(st.binary(max_size=5)))
def test_the_text_is_found_wherever_the_stream_is_cut(before: list[bytes], text: bytes, after: list[bytes]) -> None:
    """The prefix ends with the first occurrence of the text."""
    mark = "".join(chr(ord("a") + byte % 26) for byte in text)
    chunks = [*before, *(letter.encode() for letter in mark), *after]
    end = PrefixEnd(Prefix(output=mark))
    got = b"".join(end.read("stdout", chunk) for chunk in chunks)
    whole = b"".join(chunks)
    assert got == whole[: whole.find(mark.encode()) + len(mark)]
    assert end.reached


def test_the_text_does_not_begin_in_another_stream() -> None:
    end = PrefixEnd(Prefix(output="ready"))
    assert end.read("stdout", b"rea") == b"rea"
    assert end.read("stderr", b"dy") == b"dy"
    assert not end.reached


def test_a_run_ends_after_the_time() -> None:
    began = time.monotonic()
    found = run(SLEEPS.format(""), Prefix(seconds=1.0))
    assert found.cut
    assert not found.timed_out
    assert time.monotonic() - began < 30
    assert (found.metrics["peak_rss_bytes"] or 0) > 16 << 20
    assert (found.metrics["wall_s"] or 0) == pytest.approx(1.0, abs=0.9)


def test_a_run_that_has_closed_its_streams_ends_too() -> None:
    found = run(SLEEPS.format("import os; os.close(1); os.close(2)"), Prefix(seconds=1.0))
    assert found.cut
    assert (found.metrics["wall_s"] or 0) < 30


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_run_ends_at_the_text(stream: str) -> None:
    code = SLEEPS.format(f"print('iteration 100 of', 'many', file=sys.{stream}, flush=True)")
    found = run(code, Prefix(output="iteration 100"))
    assert found.cut
    assert (found.metrics["wall_s"] or 0) < 30
    whole = hashlib.sha256(b"begin\niteration 100").hexdigest()
    assert found.output_sha256 == (whole if stream == "stdout" else ""), "the output as far as the prefix goes"


def test_the_children_of_a_run_end_with_its_prefix() -> None:
    code = SLEEPS.format("import subprocess; subprocess.Popen(['sleep', '61.75']); print('ready', flush=True)")
    assert run(code, Prefix(output="ready")).cut
    assert subprocess.run(["pgrep", "-f", "^sleep 61.75"], check=False, stdout=subprocess.DEVNULL).returncode == 1


def test_a_run_that_ends_before_is_whole() -> None:
    found = run("raise SystemExit(3)", Prefix(seconds=60.0))
    assert (found.cut, found.exit_code) == (False, 3)


def test_a_prefix_of_a_time_compares_memory_only() -> None:
    timed, marked = Prefix(seconds=2), Prefix(output="x")
    assert [timed.compares(m) for m in ("peak_rss_bytes", "cpu_s", "minor_faults")] == [True, False, False]
    assert all(marked.compares(m) for m in ("peak_rss_bytes", "cpu_s", "minor_faults"))
