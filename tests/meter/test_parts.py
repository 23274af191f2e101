"""Tests memory by kind of mapping (`--parts`), with every back end, on programs whose memory is known to the MiB."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .harness import MIB, SMALL, Meter

PARTS = ("--parts", "--interval-ms", "2")


def test_anonymous_memory_is_no_programs_and_no_files(any_meter: Meter) -> None:
    found = any_meter.behave("share", "1", "32", "0", options=PARTS)["parts"]
    rss, pss = found["rss"], found["pss"]
    assert found["processes"] == 2
    assert 96 * MIB <= pss["heap"] + pss["other"] <= 96 * MIB + SMALL
    assert 128 * MIB <= rss["heap"] + rss["other"] <= 128 * MIB + SMALL
    for parts in (rss, pss):
        assert parts["program"] + parts["files"] + parts["stacks"] <= 2 * SMALL
    assert Path(found["busiest"]) == any_meter.program.resolve()
    assert sum(pss.values()) / 3 <= found["busiest_pss"] <= sum(pss.values())
    assert found["busiest"] in found["busiest_files"]
    assert any(Path(file).name == "libc.so.6" for file in found["busiest_files"])


def test_heap_and_files_are_told_apart(any_meter: Meter, program: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(64 * MIB))
    holders = program("holders")
    files = any_meter.run(holders, str(tmp_path / "data"), options=PARTS).ledger["parts"]["rss"]
    assert 64 * MIB <= files["files"] <= 64 * MIB + SMALL
    assert files["heap"] + files["other"] <= SMALL
    heap = any_meter.run(holders, options=PARTS).ledger["parts"]["rss"]
    assert 63 * MIB <= heap["heap"] <= 64 * MIB + SMALL
    assert 16 * MIB <= heap["other"] <= 16 * MIB + SMALL
    assert heap["files"] <= SMALL


def test_memory_is_not_divided_unless_asked(any_meter: Meter) -> None:
    assert "parts" not in any_meter.behave("steps", options=("--pss",))
