"""Sweeps on a program that is not there, and what is said of landscapes whose shape is known."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heapwright.allocators.registry import Allocator
from heapwright.cli.landscape import parse_ranges, parse_size
from heapwright.errors import HeapwrightError, UsageError
from heapwright.report.html import write_report
from heapwright.report.landscape import csv_text, landscape_json, lines
from heapwright.report.progress import Silent
from heapwright.study.axes import axis_of, axis_text
from heapwright.study.journey import Journey
from heapwright.study.landscape import Sweep, plane
from heapwright.study.load import load_view
from heapwright.study.open import open_or_begin
from heapwright.study.store import read_study
from heapwright.study.terrain import Terrain, neighbours, smoothness, terrain_of
from heapwright.workload.model import Input, Workload, WorkloadFile

from ..allocators.spaces import number
from .fakes import Settings, World, install, toy_allocator

TOY = toy_allocator(
    number("size", 1, 1024, unit="B", default="128, growing"),
    number("count", 1, 8, scale="linear"),
    gates=("static",),
)


def valley(settings: Settings, _input: str) -> Mapping[str, float]:
    """Best at 16; the count matters little."""
    size = float(settings.get("size", 128))
    count = float(settings.get("count", 4))
    return {"peak_rss_bytes": math.exp(0.05 * (abs(math.log2(size / 16)) - 3) + 0.002 * (count - 4))}


class Sweeping:
    """`landscape` without its command line."""

    def __init__(self, path: Path, world: World, axes: tuple[str, ...], allocator: Allocator = TOY) -> None:
        self.path, self.world, self.axes, self.allocator = path, world, axes, allocator

    def go(self, journey: type[Journey] = Sweep, **options: Any) -> None:
        inputs = (Input("default"),)
        workload = Workload(WorkloadFile(command=["true"], input=list(inputs)), self.path.parent, inputs)
        given = {"allocator": "toy", "axes": self.axes, **options}
        store, opts = open_or_begin(self.path, workload, [self.allocator], given, ["heapwright"])
        with store:
            journey(store, workload, [self.allocator], opts, Silent()).run()

    def terrain(self, metric: str = "") -> Terrain:
        with read_study(self.path) as store:
            return terrain_of(store, metric)


@pytest.fixture
def sweeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(world: World, *axes: str) -> Sweeping:
        install(world, monkeypatch)
        return Sweeping(tmp_path / "l.study", world, axes)

    return make


# sweeping


def test_a_curve_is_what_was_planted(sweeping: Any) -> None:
    sweep = sweeping(World(effect=valley), "size:1:1024:1")
    sweep.go()
    terrain = sweep.terrain()
    assert [p.values[0] for p in terrain.places] == [str(1 << k) for k in range(11)]
    for place in terrain.places:
        assert place.ratio == pytest.approx(valley({"size": place.values[0]}, "")["peak_rss_bytes"])
    assert terrain.best is not None
    assert terrain.best.values == ("16",)
    assert terrain.gains
    assert terrain.axes[0].default == 128
    assert terrain.smoothness.verdict.endswith("smooth")
    text = "\n".join(lines(terrain, 80))
    assert "best: size=16 B: 82.1 MiB, −13.9%" in text


def test_a_plane_has_every_pair(sweeping: Any) -> None:
    sweep = sweeping(World(effect=valley), "count:1:8:1", "size:1:1024:2")
    sweep.go()
    terrain = sweep.terrain()
    assert len(terrain.places) == 8 * 6
    assert terrain.places[7].values == ("2", "4")
    assert all(p.ratio is not None for p in terrain.places)
    assert terrain.best is not None
    assert terrain.best.values == ("1", "16")
    with read_study(sweep.path) as store:
        found = landscape_json(store, terrain)
        table = csv_text(store, terrain).splitlines()
    assert found["best"]["settings"] == {"count": "1", "size": "16"}
    assert found["best"]["env"] == {"TOY": "toy.count=1:toy.size=16"}
    assert table[0].startswith("count,size,block,input,failure,peak_rss_bytes,")
    assert len(table) == 1 + 48 + 10  # a default beside every five


def test_every_place_is_measured_as_often_as_asked_and_more_go_on(sweeping: Any) -> None:
    sweep = sweeping(World(effect=valley, noise=0.01), "size:1:1024:1")
    sweep.go(replicates=2)
    before = list(sweep.world.made)
    assert {p.runs for p in sweep.terrain().places} == {2}
    coarse = sweep.terrain().error
    sweep.go(replicates=8)
    assert sweep.world.made[: len(before)] == before
    assert {p.runs for p in sweep.terrain().places} == {8}
    assert sweep.terrain().error < coarse
    assert sweep.terrain().error == pytest.approx(math.sqrt(2) * 0.01 / math.sqrt(8), rel=0.35)


def test_interrupted_it_ends_as_undisturbed(sweeping: Any, tmp_path: Path) -> None:
    whole = sweeping(World(effect=valley, noise=0.01), "size:1:1024:1")
    whole.path = tmp_path / "whole.study"
    whole.go(replicates=2)
    cut = sweeping(World(effect=valley, noise=0.01), "size:1:1024:1")
    for _ in range(100):
        cut.world.interrupt_after = len(cut.world.made) + 5
        try:
            cut.go(replicates=2)
            break
        except KeyboardInterrupt:
            pass
    assert cut.world.made == whole.world.made
    assert cut.terrain() == whole.terrain()


def test_drift_does_not_look_like_shape(sweeping: Any) -> None:
    """The machine becomes a tenth slower over the sweep: within a block, and in random order, that cancels."""
    world = World(noise=0.001, drift=lambda n: n / 10_000)
    sweep = sweeping(world, "size:1:1024:0.5")
    sweep.go(replicates=4)
    ratios = [p.ratio for p in sweep.terrain("cpu_s").places]
    assert max(abs(math.log(r or 0.0)) for r in ratios) < 0.005


def test_what_fails_is_a_gap(sweeping: Any) -> None:
    world = World(effect=valley, fails=lambda s: "killed by SIGSEGV" if s.get("size") in ("8", "16") else "")
    sweep = sweeping(world, "size:1:1024:1")
    sweep.go()
    terrain = sweep.terrain()
    failed = [p for p in terrain.places if p.failure]
    assert [(p.values, p.ratio) for p in failed] == [(("8",), None), (("16",), None)]
    assert terrain.best is not None
    assert terrain.best.values == ("32",)
    assert "2 places failed, for example size=8 B: killed by SIGSEGV" in "\n".join(lines(terrain, 80))


def test_noise_alone_is_no_gain(sweeping: Any) -> None:
    sweep = sweeping(World(noise=0.01), "size:1:1024:0.5")
    sweep.go(replicates=3)
    terrain = sweep.terrain()
    assert not terrain.gains
    assert "no gain" in "\n".join(lines(terrain, 80))
    assert terrain.smoothness.verdict.startswith("flat")


def test_a_landscape_and_a_study_are_not_mixed(sweeping: Any) -> None:
    sweep = sweeping(World(effect=valley), "size:1:1024:2")
    sweep.go()
    with pytest.raises(HeapwrightError, match="is a landscape"):
        sweep.go(journey=Journey)
    sweep.axes = ("size:1:1024:1",)
    with pytest.raises(HeapwrightError, match="was begun with axes size:1:1024:2, not size:1:1024:1"):
        sweep.go()


@pytest.mark.parametrize("axes", [("size:1:1024:1",), ("size:1:1024:2", "count:1:8:1")])
def test_the_report_shows_it_and_claims_nothing(axes: tuple[str, ...], sweeping: Any, tmp_path: Path) -> None:
    sweep = sweeping(World(effect=valley), *axes)
    sweep.go()
    view = load_view(sweep.path)
    assert view.claim.startswith("A landscape of peak resident memory over size")
    assert view.claim.endswith("below the default; seen in the sweep, not confirmed.")
    assert (view.picks, len(view.evaluations)) == ({}, len(sweep.terrain().places))
    write_report([view], tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "Swept, not searched" in page
    assert "The landscape</h2>" in page
    assert "The search</h2>" not in page
    assert "autocorrelation of neighbours" in page


# axes


def test_an_axis_has_the_papers_places() -> None:
    """Every half power of two: 51 to 2^25, 71 to 2^35, less the one that rounds to another."""
    spec = number("size", 1, 1024)
    assert len(axis_of(spec, axis_text(spec, 1, 1 << 25, None)).values) == 50
    assert len(axis_of(spec, axis_text(spec, 1, 1 << 35, None)).values) == 70
    assert axis_of(spec, "size:1:16:0.5").values == ("1", "2", "3", "4", "6", "8", "11", "16")


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [(8, 8, "is empty"), (9, 8, "is empty"), (0, 8, "a log axis begins at 1")],
)
def test_ranges_that_make_no_sense(low: int, high: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        axis_text(number("size", 1, 1024), low, high, None)


def test_too_many_places_are_refused() -> None:
    with pytest.raises(UsageError, match="size: 30000 values are too many"):
        plane(TOY, ["size:1:1073741824:0.001"])
    with pytest.raises(UsageError, match="places are too many"):
        plane(TOY, ["size:1:1073741824:0.005", "count:1:8:1"])


@pytest.mark.parametrize(("text", "size"), [("512", 512), ("32k", 32768), ("2^35", 1 << 35), ("x", None), ("", None)])
def test_sizes(text: str, size: int | None) -> None:
    assert parse_size(text) == size


def test_ranges_are_of_what_is_swept() -> None:
    assert parse_ranges(["a=1:2K"], ["a"]) == {"a": (1, 2048)}
    with pytest.raises(UsageError, match="'b' is not swept"):
        parse_ranges(["b=1:2"], ["a"])
    with pytest.raises(UsageError, match="is not P=LOW:HIGH"):
        parse_ranges(["a=1"], ["a"])


# smoothness


@given(st.lists(st.integers(1, 6), min_size=1, max_size=3))
def test_neighbours_are_one_step_apart(shape: list[int]) -> None:
    pairs = list(neighbours(shape))
    assert len(pairs) == len(set(pairs))
    expected = sum(math.prod(n - (i == k) for i, n in enumerate(shape)) for k in range(len(shape)))
    assert len(pairs) == expected
    size = math.prod(shape)
    assert all(0 <= a < b < size for a, b in pairs)


def test_a_slope_is_smooth_and_chance_is_not() -> None:
    rng = random.Random(1)
    slope = smoothness([k / 100 for k in range(50)], [50], 0.001)
    assert slope.verdict == "smooth"
    assert slope.autocorrelation == pytest.approx(1, abs=0.1)
    assert slope.step == pytest.approx(0.01)
    rugged = smoothness([rng.gauss(0, 0.1) for _ in range(400)], [20, 20], 0.001)
    assert rugged.verdict == "rugged"
    assert rugged.autocorrelation == pytest.approx(0, abs=0.15)


def test_of_pure_noise_the_step_is_the_noise_step() -> None:
    rng = random.Random(2)
    found = smoothness([rng.gauss(0, 0.02) for _ in range(2000)], [2000], 0.02)
    assert found.step == pytest.approx(found.noise_step, rel=0.05)
    assert found.verdict == "flat as far as the noise lets see"


def test_nothing_to_say_of_a_point_and_of_a_plain() -> None:
    assert smoothness([0.0, None], [2], 0.0).verdict == "too few places"
    assert smoothness([0.1] * 9, [3, 3], 0.0).verdict == "flat"
