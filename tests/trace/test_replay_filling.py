"""Replays of blocks that the program fills while it has others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trace.test_pack import parse
from tests.trace.test_replay import MIB, heapwright, replay


def test_a_replay_fills_a_block_when_the_program_did(tmp_path: Path) -> None:
    told = [
        f"0 0 malloc 0 {64 * MIB}",
        f"1 0 touched_so_far 0 {4 * MIB}",  # until now
        f"2 0 malloc 1 {32 * MIB}",
        "3 0 free 1",
        f"4 0 touched_so_far 0 {32 * MIB}",
        f"5 0 malloc 2 {16 * MIB}",
        "6 0 free 2",
        f"9 0 free 0 {64 * MIB}",
    ]
    found = replay(parse(tmp_path, "\n".join(told) + "\n"))
    assert 79 * MIB < found["summary"]["peak_rss_bytes"]["median"] < 88 * MIB  # not 96
    assert found["events"] == 6


def test_a_doubled_block_is_never_whole_beside_the_old_one(
    tmp_path: Path, program: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    heapwright("record", "-o", "t.hwt", "--", program("doubling"))
    peak = replay(Path("t.hwt"), "--allocator", "glibc")["summary"]["peak_rss_bytes"]["median"]
    assert 32 * MIB < peak < 40 * MIB  # 48 MiB if each block were touched as a whole when it is new
