"""tools/papers_transfer.py: its problems, the runs that it keeps, and the row of a pick."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tools.loading import load_tool

PEAK = "massif_peak_bytes"


def test_problems_are_reproducible_and_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = load_tool("papers_transfer", monkeypatch)
    texts = [tool.problem(number) for number in range(1, 51)]
    assert texts == [tool.problem(number) for number in range(1, 51)]
    assert len(set(texts)) == 50
    assert tool.PRODUCT in tool.problem(tool.SEARCHED)
    assert not any(tool.PRODUCT in text for text in texts), "each has a product of its own"


def test_a_run_with_other_output_counts_as_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = load_tool("papers_transfer", monkeypatch)
    made: list[dict[str, str]] = []

    class Fake:
        """An executor whose output depends on the variable WRONG."""

        def __init__(self, *_: Any) -> None:
            pass

        def run(self, _: Any, env: dict[str, str]) -> Any:
            made.append(env)
            failure = "exit status 1" if "FAIL" in env else ""
            metrics = {PEAK: 4096.0 * (1 + len(env))}
            return SimpleNamespace(
                failure=failure, digest="b" if "WRONG" in env else "a", run=SimpleNamespace(metrics=metrics)
            )

    monkeypatch.setattr(tool, "Executor", Fake)
    monkeypatch.setattr(tool, "from_command", lambda _: SimpleNamespace(train=["input"]))
    transfer = tool.Transfer(tmp_path, "massif")
    assert transfer.run(1, {"GOOD": "1"}) == {PEAK: 8192.0}
    assert transfer.run(1, {"WRONG": "1"}) == {}
    assert transfer.run(1, {"FAIL": "1"}) == {}
    again = tool.Transfer(tmp_path, "massif")
    assert again.run(1, {"GOOD": "1"}) == {PEAK: 8192.0}
    assert len(made) == 4, "three settings and the defaults, each once"


def test_cells_count_the_problems_on_which_the_gain_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = load_tool("papers_transfer", monkeypatch)
    default = {PEAK: 1000.0}
    found = [{PEAK: 900.0}, {PEAK: 990.0}, {PEAK: 1000.0}, {PEAK: 1100.0}, {}]
    changes = [tool.change(default, figures, PEAK) for figures in found]
    assert tool.cells(changes) == ["-0.50%", "[-10.00%, +10.00%]", "2", "1", "1", "1"]
    assert tool.cells([None, None]) == ["n/a", "n/a", "0", "0", "0", "2"]
