"""`heapwright info`, as installed."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from heapwright.report.trace import histogram, live_bytes_picture, show_info, split_lines
from heapwright.trace.info import Bin, Curve, Split, read_info
from tests.trace.recording import ends_of_huge_pages, record_told
from tests.trace.test_pack import parse
from tests.trace.test_replay import heapwright, random_text

MIB = 1 << 20

BY_HAND = """\
0 0 malloc 0 100
1000 0 calloc 1 20
2000 0 realloc 0 300
3000 1 thread_start
3000 1 free 1
4000 0 aligned 2 4097 4096
10000 0 free 2
"""


def info(trace: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(heapwright("info", trace, "--json", "-").stdout)
    return found


def test_figures_of_a_small_trace_are_those_counted_by_hand(tmp_path: Path) -> None:
    found = info(parse(tmp_path, BY_HAND))
    assert found["schema_version"] == 1
    assert (found["events"], found["threads"], found["allocations"], found["frees"]) == (7, 2, 3, 2)
    assert (found["peak_live_bytes"], found["peak_event"], found["peak_time_s"]) == (4397, 6, 4e-6)
    assert (found["end_live_bytes"], found["never_freed"]) == (300, {"count": 1, "bytes": 300})
    assert found["remote_frees"]["count"] == 1
    assert found["realloc_chains"]["objects"] == 1
    assert found["alignments"] == [{"alignment": 4096, "count": 1}]
    bound = found["lower_bound"]
    assert bound["peak_bytes"] == 304 + 4112
    assert bound["peak_page_bytes"] == 8192
    # 112 for 1 µs, 144 for 1, 336 for 1, 304 for 1, 4416 for 6.
    assert math.isclose(bound["mean_bytes"], (112 + 144 + 336 + 304 + 6 * 4416) / 10)
    assert math.isclose(bound["mean_page_bytes"], (4 * 4096 + 6 * 8192) / 10)
    assert math.isclose(found["bytes_per_event"] * 7, found["file_bytes"], rel_tol=1e-6)


def test_histograms_and_curve_agree_with_the_totals(tmp_path: Path) -> None:
    found = info(parse(tmp_path, random_text(3, 5000, 4)))
    requests = found["allocations"] + found["reallocs"]
    assert sum(b["count"] for b in found["sizes"]) == requests
    assert sum(b["count"] for b in found["lifetimes_s"]) == found["frees"]
    assert sum(b["count"] for b in found["lifetimes_allocations"]) == found["frees"]
    curve = found["curve"]
    assert max(curve["peak_bytes"]) == found["peak_live_bytes"]
    assert curve["live_bytes"][-1] == found["end_live_bytes"]
    assert curve["event"][-1] == found["events"]
    assert found["lower_bound"]["peak_bytes"] >= found["peak_live_bytes"]


def test_a_real_program_is_within_its_bound(tmp_path: Path) -> None:
    record_told(tmp_path, "perl", "-e", 'my %h; $h{$_} = "x" x 100 for 1..30000;')
    found, _ = read_info(tmp_path / "t.hwt")
    assert found.command[0].endswith("perl")
    assert found.allocations > 30000
    assert found.peak_live_bytes > 30000 * 100
    assert found.lower_bound.peak_page_bytes <= (found.peak_resident_bytes or 0)


def test_the_picture_fits_a_terminal(tmp_path: Path) -> None:
    record_told(tmp_path, "perl", "-e", "my @a = map { 'x' x $_ } 1..3000;")
    out = heapwright("info", tmp_path / "t.hwt").stdout
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    for word in ("live bytes over time", "lower bound", "sizes", "lifetimes", "█"):
        assert word in out


def test_an_empty_trace_and_one_without_times_are_described(tmp_path: Path) -> None:
    assert "0 allocations" in heapwright("info", parse(tmp_path, "")).stdout
    out = heapwright("info", parse(tmp_path, "0 0 malloc 0 10\n0 0 malloc 1 10\n0 0 free 0\n")).stdout
    assert "no times" in out


def test_a_title_is_shown_without_the_empty_words_behind_it(tmp_path: Path) -> None:
    """puma writes a title over the words of its command, and fills the rest with zero bytes."""
    found, _ = read_info(parse(tmp_path, BY_HAND))
    titled = msgspec.structs.replace(found, synthetic=False, command=["puma: cluster worker 0: 12 [web]", "", "", ""])
    out = io.StringIO()
    show_info(titled, "t.hwt", Console(file=out, width=80))
    words = msgspec.structs.replace(titled, command=["redis-server", "--save", ""])
    show_info(words, "u.hwt", Console(file=out, width=80))
    assert "u.hwt: redis-server --save '' on " in out.getvalue()
    assert out.getvalue().startswith("t.hwt: 'puma: cluster worker 0: 12 [web]' on ")


def test_a_long_command_and_a_long_warning_are_shown_in_80_columns(tmp_path: Path) -> None:
    found, _ = read_info(parse(tmp_path, BY_HAND))
    why = "the reader left out 8 impossible events, such as a free of an unknown address"
    loss = msgspec.structs.replace(found.loss, events=8, why=why)
    long = msgspec.structs.replace(
        found, synthetic=False, command=["php", "x" * 100], allocator="glibc 2.36", loss=loss
    )
    out = io.StringIO()
    show_info(long, "t.hwt", Console(file=out, width=80))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) == len(lines[0]) == 80
    assert lines[0].endswith("xxx… on glibc 2.36")
    assert why in " ".join(out.getvalue().split())


def test_a_cut_trace_is_told(tmp_path: Path) -> None:
    trace = parse(tmp_path, random_text(5, 4000, 2))
    whole = trace.read_bytes()
    trace.write_bytes(whole[: len(whole) - 30])
    found = info(trace)
    assert found["loss"]["cut_short"]
    assert "cut short" in heapwright("info", trace).stdout


def test_the_curve_and_the_histogram_are_drawn_to_scale() -> None:
    curve = Curve(3, [1.0, 2.0, 10.0], [10, 20, 30], [50, 100, 0], [50, 100, 100])
    lines = live_bytes_picture(curve, 10.0)
    assert len(lines) == 10
    # Full between 2 s and 10 s: nothing happens there.
    assert lines[0].endswith("█")
    bars = histogram([Bin(0, 1, 5, 0), Bin(4, 8, 10, 60)], str)
    assert bars[1].count("█") == 2 * bars[0].count("█")
    many = [Bin(2.0**n, 2.0 ** (n + 1), 1, 1) for n in range(20)]
    assert len(histogram(many, str)) == 10


@pytest.mark.parametrize("options", [(), ("--after", "0.001")])
def test_divides_resident_memory_into_parts(
    options: tuple[str, ...], tmp_path: Path, program: Callable[..., Path]
) -> None:
    """The recorder's own table of live objects, which a window has, is no part."""
    recorded = record_told(tmp_path, program("resident_parts"), options=options)
    found = info(tmp_path / recorded[0]["trace"])
    for when in ("resident_at_peak", "resident_at_end"):
        split = found[when]
        parts = ("live_bytes", "free_bytes", "own_bytes", "files_bytes", "forked_bytes")
        assert sum(split[part] for part in parts) == split["resident_bytes"]
        assert abs(split["own_bytes"] - 30 * MIB) < 1.5 * MIB
        assert split["forked_bytes"] == 0
    end = found["resident_at_end"]
    assert abs(end["live_bytes"] - 30000 * 1000 - 10 * MIB) < MIB + ends_of_huge_pages()
    assert abs(end["free_bytes"] - 30000 * 1024) < 2 * MIB
    assert "free inside malloc or added to blocks" in heapwright("info", tmp_path / recorded[0]["trace"]).stdout


def test_headers_and_padding_are_not_called_free() -> None:
    """glibc's blocks of 8 bytes take 32: of a program that frees nothing, three quarters of malloc's memory."""
    split = Split(1.0, 33 * MIB, 8 * MIB, 0, 0, 24 * MIB, MIB, 25 * MIB)
    assert "+ 24.0 MiB free inside malloc or added to blocks" in split_lines(split)
    unknown = msgspec.structs.replace(split, free_bytes=None, own_bytes=None)
    assert "+ 25.0 MiB free inside malloc or added to blocks, or of the program's own" in split_lines(unknown)


@pytest.mark.parametrize("options", [(), ("--sample", "16")], ids=["whole", "sample"])
@pytest.mark.parametrize("words", [(), ("realloc",)])
def test_a_block_that_is_being_freed_is_not_the_programs_own(
    words: tuple[str, ...], options: tuple[str, ...], tmp_path: Path, program: Callable[..., Path]
) -> None:
    (recorded,) = record_told(tmp_path, program("blocks_in_turn"), *words, options=options)
    split = info(tmp_path / recorded["trace"])["resident_at_peak"]
    assert split["resident_bytes"] > 40 * MIB
    assert (split["own_bytes"] or 0) < MIB  # None: the reading does not tell it
    assert split["live_bytes"] + (split["free_bytes"] or 0) > 39 * MIB


def test_a_reading_of_the_peak_after_the_blocks_were_freed_is_said_to_be_late(
    tmp_path: Path, program: Callable[..., Path]
) -> None:
    (recorded,) = record_told(tmp_path, program("tiny_blocks", "-DBLOCKS=50000"))
    found, _ = read_info(tmp_path / recorded["trace"])
    live = found.peak_live_bytes
    split = Split((found.peak_time_s or 0.0) + 1.0, 2 * live, 100, 0, 0, 2 * live - 100, 0, 2 * live - 100)

    def lines(peak: Split, untouched: int = 0) -> str:
        blocks = {**found.large_blocks, "untouched_at_peak_bytes": untouched}
        out = io.StringIO()
        made = msgspec.structs.replace(found, resident_at_peak=peak, large_blocks=blocks)
        show_info(made, "t.hwt", Console(file=out, width=80))
        return out.getvalue()

    late = "read after most blocks were freed"
    assert late in lines(split)
    assert late not in lines(msgspec.structs.replace(split, live_bytes=live))
    assert late not in lines(msgspec.structs.replace(split, time_s=0.0))
    assert late not in lines(split, untouched=live - 100), "the blocks were never resident"
    other = msgspec.structs.replace(split, resident_bytes=22 * live, free_or_own_bytes=22 * live - 100)
    unknown = msgspec.structs.replace(other, free_bytes=None, own_bytes=None)
    assert late not in lines(unknown), "memory that is not malloc's made the peak"
    assert late in lines(msgspec.structs.replace(other, free_bytes=live, own_bytes=21 * live - 100))
    assert late not in lines(msgspec.structs.replace(other, free_bytes=live // 10, own_bytes=21 * live))


def test_tells_what_came_with_the_fork(tmp_path: Path, program: Callable[..., Path]) -> None:
    recorded = record_told(tmp_path, program("resident_parts"), "fork")
    child = next(info(tmp_path / one["trace"]) for one in recorded if one["events"] < 60000)
    split = child["resident_at_peak"]
    assert abs(split["live_bytes"] - 20 * MIB) < MIB
    assert abs(split["forked_bytes"] - 60000 * 1008 - 30 * MIB) < 2 * MIB
    assert split["free_or_own_bytes"] < 2 * MIB
