"""Tests which rows of usual advice are measured for which program."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from heapwright.allocators.registry import Allocator
from heapwright.allocators.space_spec import AllocatorSpec, SpaceFile
from heapwright.interleaving.budget import Budget
from heapwright.interleaving.configuration import Config
from heapwright.study.options import Options
from heapwright.tuning.confirm import fitting_rows
from heapwright.tuning.references import references
from heapwright.workload.model import Input

from .conftest import Tuning
from .fakes import Settings, World


def allocator(name: str) -> Allocator:
    return Allocator(name, "1", f"/lib/{name}.so", False, "", SpaceFile(AllocatorSpec(name)))


@pytest.fixture
def rows() -> Callable[..., dict[str, dict[str, str]]]:
    """The rows as name → settings, on a machine with these allocators."""

    def go(
        threads: bool,
        own: bool = False,
        base: Mapping[str, str] | None = None,
        here: tuple[str, ...] = ("glibc", "jemalloc"),
    ) -> dict[str, dict[str, str]]:
        present = {n: allocator(n) for n in here}

        def works(found: Allocator) -> Allocator:
            return dataclasses.replace(found, preload="libc.so.6") if own and found.name == "glibc" else found

        def config(a: Allocator, settings: dict[str, str]) -> Config:
            return Config(2, a.name, settings, {"X": a.name})

        found = references(present, base or {}, threads, works, config)
        return {name: {"allocator": c.allocator, **c.settings} for name, c in found.items()}

    return go


def test_each_kind_of_program_has_its_advice(rows: Callable[..., dict[str, dict[str, str]]]) -> None:
    arenas = {f"MALLOC_ARENA_MAX={n}": {"allocator": "glibc", "arena_max": str(n)} for n in (1, 2)}
    jemalloc = {"jemalloc": {"allocator": "jemalloc"}}
    assert rows(threads=True) == arenas | jemalloc
    assert rows(threads=False) == jemalloc
    assert rows(threads=True, own=True) == {"glibc": {"allocator": "glibc"}}
    assert rows(threads=True, here=("glibc",)) == arenas
    assert rows(threads=True, here=("musl", "exgen")) == {}


@pytest.mark.parametrize("name", ["MALLOC_ARENA_MAX", "GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_CONF"])
def test_a_user_who_has_set_malloc_gets_no_usual_advice(
    name: str, rows: Callable[..., dict[str, dict[str, str]]]
) -> None:
    assert rows(threads=True, base={name: "1"}) == {}


def advice(monkeypatch: pytest.MonkeyPatch, config: Callable[[Any], Config]) -> None:
    """Puts one row of advice beside the picks of the toy program."""
    monkeypatch.setattr("heapwright.tuning.pipeline.usual_advice", lambda session: {"advice": config(session)})


def test_advice_is_confirmed_beside_the_picks(tuning: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same blocks, so that both have the same partners; its figures are in JSON, terminal and report."""

    def effect(settings: Settings, _input: str) -> Mapping[str, float]:
        return {"cpu_s": {"0": 0.8, "7": 0.9}.get(settings.get("cache", ""), 1.0)}

    advice(monkeypatch, lambda j: j.store.config("toy", {"cache": "7"}, {"TOY": "toy.cache=7"}))
    options = {"method": "sobol", "evaluations": 16, "pairs_min": 10, "pairs_max": 10}
    study = tuning(World(effect=effect, noise=0.005), options=options)
    view = study.go()
    row = view.references["advice"]
    assert row.confirmed["cpu_s"].verdict == "better"
    assert row.confirmed["cpu_s"].ratio == pytest.approx(0.9, abs=0.01)
    assert row.claim.startswith("CPU time 10.")
    blocks = {r.block for r in study.runs("confirm") if r.config == row.config.id}
    assert blocks == {r.block for r in study.runs("confirm") if r.config == view.picks["time"].config.id}
    assert view.picks["time"].config.settings == {"cache": "0"}, "the search did better"


def test_advice_that_beats_the_search_stands_for_the_study(
    tuning: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with glibc in place of redis's own malloc, a gain that a small budget had missed."""

    def effect(settings: Settings, _input: str) -> Mapping[str, float]:
        return {"peak_rss_bytes": 0.92 if settings.get("cache") == "7" else 1.0}

    advice(monkeypatch, lambda j: j.store.config("toy", {"cache": "7"}, {"TOY": "toy.cache=7"}))
    options = {"method": "sobol", "evaluations": 4, "pairs_min": 10, "pairs_max": 10}
    view = tuning(World(effect=effect, noise=0.002), options=options).go()
    assert view.claim.startswith("With toy's cache=7: peak resident memory 8.")
    assert view.picks["memory"].searched.number == 0


@pytest.mark.parametrize(
    ("runs", "picks", "beside", "pairs"),
    [
        (math.inf, 2, 2, 10),  # tests: 4 rows x 2 objectives
        (60, 2, 2, 10),
        (54, 2, 2, 10),
        (53, 2, 1, 10),
        (39, 2, 1, 9),  # three rows are six tests, which need eight pairs; 9.75 are over a fifth more
        (38, 1, 1, 10),
        (29, 1, 1, 9),
        (28, 1, 0, 10),
        (17, 1, 0, 8),  # a row's two tests need seven pairs
        (16, 1, 0, 8),
        (14, 1, 0, 7),  # the last chance of a proof needs no reserve
        (13, None, None, None),
    ],
)
def test_with_little_time_rows_go(runs: float, picks: int | None, beside: int | None, pairs: int | None) -> None:
    """Several rows have more pairs than a proof needs; the most important pick stays."""
    budget = Budget(0.0 if runs == math.inf else runs * 2.0)
    blocks: Any = SimpleNamespace(budget=budget, seconds_of=lambda configs: 2.0 * len(configs))
    default, *configs = [Config(number, "toy", {}, {}) for number in range(1, 6)]
    found = fitting_rows(default, configs[:2], configs[2:], blocks, [Input("default")], Options(pairs_min=10))
    if picks is None:
        assert found is None
        return
    assert found is not None
    assert (len(found.picks), len(found.references), found.pairs) == (picks, beside, pairs)
    assert found.picks[0] is configs[0]
