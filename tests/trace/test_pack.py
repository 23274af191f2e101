"""heapwright-trace: pack, dump and parse, on traces made up and recorded."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heapwright.errors import HeapwrightError, UsageError
from heapwright.trace.pack import native_program, pack
from tests import needs


def trace(*words: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs heapwright-trace."""
    done = subprocess.run([native_program("heapwright-trace"), *words], capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done


def parse(folder: Path, text: str, name: str = "t.hwt") -> Path:
    """A packed trace of events as text."""
    (folder / "events.txt").write_text(text)
    trace("parse", folder / "events.txt", folder / name)
    return folder / name


KINDS = (
    *("malloc", "calloc", "aligned", "realloc", "free", "free_sized", "usable_size", "touched"),
    *("thread_start", "thread_end", "fork", "phase", "resident", "ticks"),
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Traces that make sense, as text."""
    lines, live, made, time = [], [], 0, 0
    for _ in range(draw(st.integers(0, 60))):
        time += draw(st.integers(0, 2**40))
        head = f"{time} {draw(st.integers(0, 5))}"
        kind = draw(st.sampled_from(KINDS))
        size = draw(st.integers(0, 2**63))
        if kind in ("malloc", "calloc", "aligned"):
            power = f" {1 << draw(st.integers(0, 40))}" if kind == "aligned" else ""
            lines.append(f"{head} {kind} {made} {size}{power}")
            live.append(made)
            made += 1
        elif kind in ("thread_start", "thread_end"):
            lines.append(f"{head} {kind}")
        elif kind in ("fork", "phase", "resident", "ticks"):
            lines.append(f"{head} {kind} {size}")
        elif live:
            at = draw(st.integers(0, len(live) - 1))
            rest = f" {size}" if kind in ("realloc", "free_sized", "touched") else ""
            if kind == "free" and draw(st.booleans()):
                rest = f" {size}"
            lines.append(f"{head} {kind} {live[at]}{rest}")
            if kind.startswith("free"):
                live.pop(at)
    return "".join(f"{line}\n" for line in lines)


@given(text=texts())
@settings(max_examples=needs.examples(60))
def test_a_packed_trace_has_the_events_of_its_raw_file(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = parse(tmp_path_factory.mktemp("pack"), text)
    assert trace("dump", path).stdout == text


def test_packing_returns_the_counts_of_the_trace(tmp_path: Path) -> None:
    raw = parse(tmp_path, "0 0 malloc 0 100\n5 1 malloc 1 50\n9 1 free 0\n")
    packed, warning = pack(raw, tmp_path / "again.hwt")
    assert (packed.events, packed.allocations, packed.threads, packed.peak_live_bytes) == (3, 2, 2, 150)
    assert packed.bytes == (tmp_path / "again.hwt").stat().st_size
    assert not warning
    assert not packed.cut_short


def test_a_trace_cut_short_is_packed_with_a_warning(tmp_path: Path) -> None:
    whole = parse(tmp_path, "".join(f"{i * 100} 0 malloc {i} {i}\n" for i in range(5000)))
    cut = tmp_path / "cut.hwt"
    cut.write_bytes(whole.read_bytes()[:-20])
    packed, warning = pack(cut, tmp_path / "packed.hwt")
    assert packed.events == 5000
    assert packed.cut_short
    assert "end" in warning


def test_mutated_files_never_crash_it(tmp_path: Path) -> None:
    rng = random.Random(1)
    whole = parse(tmp_path, "".join(f"{i * 100} {i % 3} malloc {i} {i % 97}\n" for i in range(3000))).read_bytes()
    for number in range(60):
        changed = bytearray(whole)
        for _ in range(rng.choice((1, 1, 4, 40))):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        if number % 3 == 0:
            del changed[rng.randrange(len(changed)) :]
        (tmp_path / "mutated").write_bytes(changed)
        done = subprocess.run(
            [native_program("heapwright-trace"), "dump", tmp_path / "mutated"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (0, 1)
        assert done.stderr.count("\n") <= 1
        assert len(done.stdout.splitlines()) <= 3000


@pytest.mark.parametrize("content", [b"", b"x", b"HWPACK", b"HWPACK\x09\x00abc", b"#!/bin/sh\n" * 1000])
def test_a_file_that_is_no_trace_is_refused_in_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(HeapwrightError) as raised:
        pack(tmp_path / "t", tmp_path / "out")
    assert str(tmp_path / "t") in raised.value.message
    assert "\n" not in raised.value.message
    assert not (tmp_path / "out").exists()


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such trace"):
        pack(tmp_path / "none", tmp_path / "out")
    with pytest.raises(UsageError, match="is a directory"):
        pack(tmp_path, tmp_path / "out")


def test_an_output_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    raw = parse(tmp_path, "0 0 malloc 0 1\n")
    with pytest.raises(HeapwrightError, match="cannot be written"):
        pack(raw, tmp_path / "no/such/folder.hwt")


@pytest.mark.parametrize("verb", ["pack", "expand", "export-wl"])
def test_an_output_does_not_replace_a_pipe(verb: str, tmp_path: Path) -> None:
    """Nor a device: root would lose /dev/null."""
    raw, pipe = parse(tmp_path, "0 0 malloc 0 1\n"), tmp_path / "pipe"
    os.mkfifo(pipe)
    words: list[str | Path] = [native_program("heapwright-trace"), verb, raw, pipe]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith("pipe: cannot be written: File exists\n")
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("0 0 free 0", "frees an object that is not live"),
        ("0 0 malloc 1 10", "out of order"),
        ("0 0 malloc 0 10\n0 0 free 0\n0 0 free 0", ":3: "),
        ("0 0 aligned 0 10 3", "alignment"),
        ("0 0 mallok 0 10", "not a kind of event"),
    ],
)
def test_a_text_of_impossible_events_is_refused_in_one_line(text: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_text(text)
    done = trace("parse", tmp_path / "t", tmp_path / "out", status=1)
    assert what in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "t"]


def test_wrong_arguments_print_the_usage(tmp_path: Path) -> None:
    assert "usage" in trace(status=2).stderr
    assert "usage" in trace("nothing", status=2).stderr
    assert trace("pack", tmp_path, status=2).stderr.startswith("usage: heapwright-trace pack")
