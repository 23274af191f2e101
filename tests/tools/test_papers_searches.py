"""tools/papers_searches.py: the best of a search, and the table of what Massif says of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import heapwright
from tests.tools.loading import load_tool

HEAPWRIGHT = str(Path(sys.executable).with_name("heapwright"))
PROGRAM = ["sort", "-n", "--buffer-size=1M"]


def test_the_best_of_a_search_is_its_smallest_peak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = load_tool("papers_searches", monkeypatch)
    (tmp_path / "numbers").write_text("\n".join(map(str, range(20000))))
    for words in (
        ["record", "-q", "-o", "sort.hwt", "--stdin", "numbers", "--", *PROGRAM],
        ["tune", "-q", "--trace", "sort.hwt", "--preset", "landscape2025", "--method", "random", "--budget", "6",
         "--study", "s.study"],
    ):  # fmt: skip
        subprocess.run([HEAPWRIGHT, *words], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    best = tool.best_of(tmp_path / "s.study")
    runs = heapwright.open_study(tmp_path / "s.study").runs()
    peaks = {run.evaluation: run.metrics[tool.PEAK] for run in runs if tool.PEAK in run.metrics}
    assert best.evaluations == 6
    assert best.saved == pytest.approx(max(0.0, peaks[0] - min(peaks.values())), abs=1)
    assert bool(best.env) == (best.saved > 0)


def test_rows_compare_the_confirmed_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = load_tool("papers_searches", monkeypatch)
    good, none = tool.Best({"GLIBC_TUNABLES": "glibc.malloc.mmap_max=8"}, 5.0, 9, 0), tool.Best({}, 0.0, 9, 0)
    found = {
        "cmaes": [(-0.01, -0.02 - number / 1000, good) for number in range(8)],
        "random": [(0.0, 0.0, none)] * 8,
    }
    cmaes, random = tool._rows("z3", found, "random")
    assert cmaes[:3] == ["z3", "cmaes", "8"]
    assert cmaes[3] == "-1.00% ±0.00% [-1.00%, -1.00%]"
    assert cmaes[5:7] == ["8 of 8", "1.00"]
    assert cmaes[7].endswith("*"), "the samples do not overlap"
    assert cmaes[8] == "-2.70%: `mmap_max=8`"
    assert random[5:] == ["0 of 8", "", "", "+0.00%: `none`"]


def test_massif_runs_each_setting_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = load_tool("papers_searches", monkeypatch)
    made: list[dict[str, str]] = []

    def run(_: Any, env: dict[str, str]) -> Any:
        made.append(env)
        return SimpleNamespace(failure="", run=SimpleNamespace(metrics={tool.PEAK: 10.0 * len(env)}))

    monkeypatch.setattr(tool, "Executor", lambda *_: SimpleNamespace(run=run))
    program = SimpleNamespace(train=["input"])
    massif = tool.Massif(program, tmp_path / "peaks.json")
    massif.measure([{}, {"A": "1"}, {}, {"A": "1", "B": "2"}, {"A": "1"}], 3)
    assert len(made) == 3
    again = tool.Massif(program, tmp_path / "peaks.json")
    assert [again.peak(env) for env in ({}, {"A": "1"}, {"A": "1", "B": "2"})] == [0.0, 10.0, 20.0]
    assert len(made) == 3
