"""Tests that the export of a study has every run, in order, with the generation that proposed it."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping

import pytest

from heapwright.cli.main import main
from heapwright.study.export import evaluation_runs, study_csv
from heapwright.study.store import read_study

from .conftest import Tuning
from .fakes import Settings, World

OPTIONS = {"allocator": "toy", "method": "random", "evaluations": 12, "pairs_min": 6, "pairs_max": 6}


def effect(settings: Settings, _input: str) -> Mapping[str, float]:
    return {"cpu_s": 0.8 if settings.get("cache") else 1.0}


def test_every_run_is_a_line(tuning: Callable[..., Tuning]) -> None:
    study = tuning(World(effect=effect, fails=lambda s: "it crashed" if s.get("pad") else ""), options=OPTIONS)
    view = study.go()
    with read_study(study.path) as store:
        found = evaluation_runs(store)
    assert [f.order for f in found] == list(range(1, len(study.runs()) + 1))
    assert [(f.stage, f.block, f.failure) for f in found] == [(r.phase, r.block, r.failure) for r in study.runs()]
    assert [f.study_s for f in found] == sorted(f.study_s for f in found)
    by_number = {e.number: e for e in view.evaluations}
    for f in found:
        if f.evaluation and f.stage == "search":
            assert f.settings == by_number[f.evaluation].config.settings
            assert f.feasible == (not f.settings.get("pad"))
            assert ("cpu_s" in f.ratios) == f.feasible
    searched = [f for f in found if f.stage == "search" and f.evaluation]
    generations = [f.generation or 0 for f in searched]
    assert min(generations) == 1
    assert max(generations) == 3  # 12 points in batches of five
    lines = list(csv.DictReader(io.StringIO(study_csv({"one": found}))))
    assert [int(line["order"]) for line in lines] == [f.order for f in found]
    assert {line["set.cache"] for line in lines} == {"", *(f.settings.get("cache", "") for f in found)}
    for line, f in zip(lines, found, strict=True):
        assert line["cpu_s"] == (repr(f.metrics["cpu_s"]) if f.feasible else "")
    two = list(csv.DictReader(io.StringIO(study_csv({"one": found, "two": found}))))
    assert [line["study"] for line in two] == ["one"] * len(found) + ["two"] * len(found)


def test_a_ratio_to_zero_is_infinite_and_an_empty_cell(tuning: Callable[..., Tuning]) -> None:
    def zero(settings: Settings, _input: str) -> Mapping[str, float]:
        return {"peak_rss_bytes": 1.0 if settings.get("cache") else 0.0}

    study = tuning(World(effect=zero), options={**OPTIONS, "search_only": True})
    study.go()
    with read_study(study.path) as store:
        found = [f for f in evaluation_runs(store) if f.stage == "search"]
    assert {f.ratios["peak_rss_bytes"] for f in found if f.settings.get("cache")} == {math.inf}
    assert {f.ratios["peak_rss_bytes"] for f in found if not f.settings.get("cache")} == {1.0}
    lines = list(csv.DictReader(io.StringIO(study_csv({"one": found}))))
    assert {line["ratio.peak_rss_bytes"] for line in lines} == {"", "1.0"}


def test_a_dash_means_stdout(
    tuning: Callable[..., Tuning], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tuning(World(effect=effect), options=OPTIONS)
    study.go()
    monkeypatch.chdir(study.path.parent)
    capsys.readouterr()
    assert main(["report", str(study.path), "--csv", "-"]) == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(lines) == len(study.runs())
    assert not (study.path.parent / "-").exists()
