"""`heapwright cut`: spans of time of a trace."""

from __future__ import annotations

import json
import random
import statistics
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heapwright.cli.main import main
from heapwright.trace.info import read_info
from heapwright.trace.replay import make_ready
from tests.trace.test_pack import parse
from tests.trace.test_sample import Lines, drawn, lines_of, program

MICROSECOND = 1024  # nanoseconds: the resolution of a packed trace


def part_of(trace: Path, after: int, length: int | None = None) -> Path:
    """Cuts a span, given in nanoseconds of the trace."""
    part = trace.with_name("part.hwt")
    span = [] if length is None else ["--for", f"{length / 1e9:.9f}s"]
    assert main(["cut", str(trace), "--after", f"{after / 1e9:.9f}s", *span, "-o", str(part), "-q"]) == 0
    return part


def sizes_at(lines: Lines, time: int) -> list[int]:
    """The sizes of the objects that are live after all events up to a time."""
    live: dict[str, int] = {}
    for at, _, kind, *rest in lines:
        if int(at) > time:
            break
        if kind in ("malloc", "calloc", "aligned", "realloc"):
            live[rest[0]] = int(rest[1])
        elif kind.startswith("free"):
            del live[rest[0]]
    return sorted(live.values())


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6), after=st.integers(1, 398), length=st.integers(1, 400))
def test_a_span_has_the_live_objects_of_the_trace(
    tmp_path_factory: pytest.TempPathFactory, seed: int, after: int, length: int
) -> None:
    whole = parse(tmp_path_factory.mktemp("cut"), program(seed, 400))
    begin = after * MICROSECOND
    found, expected = lines_of(part_of(whole, begin, length * MICROSECOND)), lines_of(whole)
    mark = next(i for i, line in enumerate(found) if line[2] == "phase")
    assert sizes_at(found[:mark], 0) == sizes_at(expected, begin - 1)
    for at in (0, length // 3, length):
        if after + at < 400:
            assert sizes_at(found, at * MICROSECOND) == sizes_at(expected, begin + at * MICROSECOND)
    within = [line[2] for line in expected if begin <= int(line[0]) <= begin + length * MICROSECOND]
    assert [line[2] for line in found[mark + 1 :] if line[2] != "end"] == within


def test_a_span_is_a_recorded_window(tmp_path: Path) -> None:
    """It has the threads, objects and readings of its time, numbered anew, and can be replayed and cut again."""
    text = """
        0 0 thread_start
        1024 0 malloc 0 100
        2048 1 aligned 1 200 64
        3072 1 thread_end
        4096 0 realloc 0 150
        5120 2 calloc 2 300
        6144 2 free 1
        7168 2 files 5000
        7168 2 resident 90000
        8192 3 malloc 3 400
        9216 3 free 0
        10240 0 free 2
    """
    part = part_of(parse(tmp_path, text), 5120, 4096)
    assert lines_of(part) == [
        ["0", "0", "malloc", "0", "150"],
        ["0", "1", "aligned", "1", "200", "64"],
        ["0", "1", "thread_end"],
        ["0", "0", "phase", "0"],
        ["0", "2", "calloc", "2", "300"],
        ["1024", "2", "free", "1"],
        ["2048", "2", "files", "5000"],
        ["2048", "2", "resident", "90000"],
        ["3072", "3", "malloc", "3", "400"],
        ["4096", "3", "free", "0"],
        ["4096", "0", "end"],
    ]
    info = read_info(part)[0]
    assert (info.phases, info.end_known, info.loss.cut_short) == (["window"], True, False)
    with make_ready(part) as ready:
        assert ready.operations.peak_live_bytes == 850
    again = lines_of(part_of(part.rename(tmp_path / "first.hwt"), 2048))
    assert again[0][2:] == ["malloc", "0", "150"]
    assert again[-1] == ["2048", "0", "end"]


def test_a_span_of_a_sample_has_the_share_of_the_requests(tmp_path: Path) -> None:
    """The ticks that a thread reports later, or that began before the span, count by their share of the time."""
    whole = parse(tmp_path, program(3, 20000, threads=4))
    truth = read_info(part_of(whole, 5000 * MICROSECOND, 8000 * MICROSECOND))[0]
    requests, live = [], []
    for seed in range(8):
        part = part_of(drawn(whole, 64, seed), 5000 * MICROSECOND, 8000 * MICROSECOND)
        found = read_info(part)[0]
        assert found.sample is not None
        assert found.sample.rate == 64
        reported = sum(int(line[3]) for line in lines_of(part) if line[2] == "ticks")
        requests.append(reported / 8000)
        live.append(found.mean_live_bytes / truth.mean_live_bytes)
    assert statistics.mean(requests) == pytest.approx(1, abs=0.01)
    assert abs(statistics.mean(live) - 1) < 4 * statistics.stdev(live) / len(live) ** 0.5


def test_objects_of_a_sample_that_have_shrunk_keep_their_weight(tmp_path: Path) -> None:
    """The chance of an object is that of its largest size."""
    rng = random.Random(1)
    lines = [f"{i * MICROSECOND} 0 malloc {i} 20000" for i in range(1000)]
    lines += [f"{(1000 + i) * MICROSECOND} 0 realloc {i} {rng.randrange(20, 40)}" for i in range(1000)]
    lines += [f"{(2000 + i) * MICROSECOND} 0 free {i}" for i in range(1000)]
    whole = parse(tmp_path, "".join(f"{line}\n" for line in lines))
    counts = []
    for seed in range(8):
        part = part_of(drawn(whole, 64, seed), 1999 * MICROSECOND)
        counts.append(read_info(part)[1]["frees"] / 1000)
    assert abs(statistics.mean(counts) - 1) < 4 * statistics.stdev(counts) / len(counts) ** 0.5


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--after", "1h"], "lasts 0.000204 s, so there is nothing after 3600 s"),
        (["--after", "soon"], "soon"),
        (["--for", "0"], "0"),
    ],
)
def test_a_span_that_is_not_there_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    whole = parse(tmp_path, program(1, 200))
    assert main(["cut", str(whole), *words, "-o", str(tmp_path / "part.hwt")]) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert error.count("heapwright: ") == 1
    assert not (tmp_path / "part.hwt").exists()


def test_json_of_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = parse(tmp_path, program(1, 200))
    words = ["cut", str(whole), "--after", "0.0001", "--for", "0.00005", "-o", str(tmp_path / "part.hwt")]
    assert main([*words, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["trace"] == str(tmp_path / "part.hwt")
    assert (found["after_s"], found["for_s"], found["sample"]) == (1e-4, 5e-5, 0)
    assert found["events"] > found["requests"] > 40
    assert main(words) == 0
    assert "events of 3 threads" in capsys.readouterr().out
