"""A process without huge pages is one more coordinate where the system gives them unasked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from heapwright.allocators.huge_pages import LIBRARY, VARIABLE, with_library
from heapwright.allocators.registry import Allocator
from heapwright.allocators.space_spec import AllocatorSpec, ParamSpec, SpaceFile
from heapwright.report.apply import FORMATS, render_config
from heapwright.study.local_environment import all_spaces, local_environment
from heapwright.study.store import read_study
from heapwright.study.view import StudyView

from ..allocators.spaces import number
from .conftest import Tuning
from .fakes import Settings, World

COLD = {"pages": 64, "first_touch_s": 0.004, "again_s": 0.0002, "slow_pages": 60, "cold": True}
OPTIONS: dict[str, Any] = {
    "method": "nsga2", "evaluations": 20, "pairs_min": 8, "pairs_max": 8, "objectives": ("peak_rss_bytes",)
}  # fmt: skip


def effect(settings: Settings, _input: str) -> dict[str, float]:
    """Memory is 30% smaller without huge pages; the heap has 64 MiB of them otherwise."""
    return {"peak_rss_bytes": 0.7} if settings.get("huge_pages") == "never" else {}


@pytest.fixture
def study(tuning: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch) -> Callable[..., StudyView]:
    """Tune the program with a state of transparent huge pages; `study.tuning` is the last one."""

    def go(thp: str, touch: dict[str, Any] | None = None, huge_bytes: float = 0.0) -> StudyView:
        world = World(effect=effect, noise=0.0005, extra={"huge_bytes": huge_bytes, "system_thp_faults": 9.0})
        go.tuning = tuning(world, options=OPTIONS)  # type: ignore[attr-defined]
        monkeypatch.setattr("heapwright.tuning.runtimes.thp_state", lambda: thp)
        monkeypatch.setattr("heapwright.study.open.thp_state", lambda: thp)
        monkeypatch.setattr("heapwright.study.open.measure_cold_pages", lambda: touch)
        view: StudyView = go.tuning.go()  # type: ignore[attr-defined]
        return view

    return go


def test_the_process_goes_without_where_that_pays(study: Callable[..., StudyView]) -> None:
    view = study("always")
    pick = view.picks["memory"]
    assert pick.config.settings == {"process.huge_pages": "never"}
    assert pick.config.env == {VARIABLE: "never"}
    assert "30.0% lower" in pick.claim
    assert "system_thp_faults" not in pick.confirmed, "other programs count too"
    assert view.runtimes["process"]["sentence"] == (
        "The process can go without transparent huge pages, which are 'always' here: its settings are searched too"
        " (huge_pages)."
    )
    assert any(text.startswith("process.huge_pages=never (memory") for text in view.hazards)
    with read_study(study.tuning.path) as store:  # type: ignore[attr-defined]
        spaces = all_spaces(store.meta)
    env, _ = local_environment(pick.config.env, pick.config.settings, pick.config.allocator, spaces, {"A": "b"})
    assert env == {VARIABLE: "never"}, "what 'heapwright run' obeys"


def test_every_format_forbids_them_without_heapwright(study: Callable[..., StudyView]) -> None:
    config = study("always").picks["memory"].config
    for fmt in FORMATS:
        text = render_config(config, fmt, ["true"], "The claim.")
        assert LIBRARY in text, fmt
        assert VARIABLE not in text, fmt
    assert with_library(config.env).keys() == {"LD_PRELOAD"}


@pytest.mark.parametrize("thp", ["madvise", "never", ""])
def test_forbidding_huge_pages_is_searched_only_where_the_system_gives_them(
    study: Callable[..., StudyView], thp: str
) -> None:
    view = study(thp)
    assert "process" not in view.runtimes
    assert not any("process." in key for e in view.evaluations for key in e.config.settings)


def test_a_claim_says_whether_pages_were_cold_if_there_were_huge_pages(study: Callable[..., StudyView]) -> None:
    cold = study("always", COLD, huge_bytes=64 << 20)
    said = "Huge pages were cold before the runs: the first touch of one took 4 ms, the next 0.2 ms"
    assert said in cold.picks["memory"].claim
    assert said in cold.claim
    assert cold.host["huge_pages_cold"] is True
    assert cold.host["huge_page_touch"].startswith(said)


def test_without_huge_pages_a_claim_says_nothing_of_them(study: Callable[..., StudyView]) -> None:
    assert "Huge pages" not in study("always", COLD).claim


def huge_allocator(name: str) -> Allocator:
    """An allocator of which one setting asks for huge pages, among many that do nothing."""
    spec = AllocatorSpec(name, env="TOY", pair="toy.{key}={value}", join=":", needs={"TOY": f"toy.is={name}"})
    pages = ParamSpec(
        "pages",
        "explained",
        type="enum",
        values=["ask", "forbid"],
        try_first={"madvise": "ask", "always": "forbid"},
        hazard="Huge pages can raise resident memory.",
    )
    return Allocator(
        name, None, None, False, "", SpaceFile(spec, [], [*(number(f"k{i}", 1, 64) for i in range(9)), pages])
    )


@pytest.mark.parametrize(
    ("thp", "peak", "method", "tried"),
    [
        ("madvise", 64 << 20, "auto", "ask"),
        ("always", 64 << 20, "auto", "forbid"),
        ("never", 64 << 20, "auto", ""),
        ("madvise", 8 << 20, "auto", ""),
        ("madvise", 64 << 20, "default", ""),  # it searches nothing: the control of experiments
    ],
)
@pytest.mark.parametrize("single", [True, False])
def test_a_large_heap_tries_huge_pages_first(
    tuning: Callable[..., Tuning],
    monkeypatch: pytest.MonkeyPatch,
    thp: str,
    peak: int,
    method: str,
    tried: str,
    single: bool,
) -> None:
    world = World(extra={"peak_rss_bytes": float(peak)})
    others = () if single else (huge_allocator("other"),)
    study = tuning(world, allocator=huge_allocator("first"), others=others, options=OPTIONS)
    monkeypatch.setattr("heapwright.tuning.huge_pages.thp_state", lambda: thp)
    view = study.go(objectives=("cpu_s",), evaluations=6, method=method)
    first = {r.config for r in study.runs("search") if r.block == 0}
    settings = [e.config.settings for e in view.evaluations if e.config.id in first]
    alone = [s["pages"] for s in settings if s.keys() == {"pages"}]
    assert alone == ([tried] * len(alone) if tried else [])
    assert bool(alone) == bool(tried)
