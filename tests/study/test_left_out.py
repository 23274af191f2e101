"""Tests the sentences on allocators without a search, and on picks that minify reduced to the default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from heapwright.interleaving.configuration import Config
from heapwright.study.claim import NOTHING
from heapwright.study.left_out import USELESS_ALONE, became_default, not_searched
from heapwright.study.meta import StudyMeta

from .conftest import Tuning
from .fakes import World


def test_names_with_one_reason_share_a_sentence() -> None:
    found = {"a": "no time", "b": "it fails", "c": "no time", "d": "no time"}
    assert not_searched(found) == ["a, c and d are not searched: no time", "b is not searched: it fails"]
    assert not_searched({"a": "why"}, past=True) == ["a was not searched: why"]
    assert not_searched({"a": USELESS_ALONE}) == [f"a is not searched further: {USELESS_ALONE}"]
    assert not_searched({}) == []


def test_picks_that_became_the_default() -> None:
    plan = {"proof": 1.0}
    meta = StudyMeta(phase="done", plan=plan, searched={"memory": 2, "time": 3, "balanced": 4}, picks={"time": 3})
    assert became_default(meta) == "No setting of the memory and balanced picks had an effect, so they were dropped."
    none = msgspec.structs.replace(meta, picks={}, unconfirmed=["time", "memory"], references={"jemalloc": 5})
    runs = "the confirmation's runs were for the usual advice"
    assert became_default(none) == f"No setting of the balanced pick had an effect, so it was dropped; {runs}."
    others: tuple[dict[str, Any], ...] = (
        {"picks": meta.searched},
        {"phase": "confirm"},
        {"plan": {"proof": 0.0}},
        {"searched": {}},
    )
    for changes in others:
        assert became_default(msgspec.structs.replace(meta, **changes)) == "", changes


def test_a_study_without_a_pick_says_why(tuning: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch) -> None:
    """The search chooses a lucky setting, minify removes it, and the rows of advice are confirmed all the same."""

    def advice(session: Any) -> dict[str, Config]:
        return {"advice": session.config_cache.config(session.allocators[0].space(True, True), {"cache": "1"})}

    monkeypatch.setattr("heapwright.tuning.pipeline.usual_advice", advice)
    options = {"method": "sobol", "evaluations": 20, "pairs_min": 8, "pairs_max": 8, "objectives": ("cpu_s",)}
    study = tuning(World(noise=0.02), options=options)
    view = study.go()
    assert (view.picks, view.claim) == ({}, NOTHING)
    (sentence,) = (text for text in view.warnings if text.startswith("No setting of"))
    assert sentence == (
        "No setting of the time pick had an effect, so it was dropped; the confirmation's runs were for the usual"
        " advice."
    )
