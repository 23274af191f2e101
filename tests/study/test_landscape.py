"""Tests sweeps of a simulated program, and the verdicts on landscapes of known shape."""

from __future__ import annotations

import contextlib
import math
import random
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heapwright.allocators.registry import Allocator
from heapwright.cli.landscape import parse_ranges, parse_size
from heapwright.errors import HeapwrightError, UsageError
from heapwright.interleaving.progress import Progress
from heapwright.report.html import write_report
from heapwright.report.landscape import landscape_lines
from heapwright.report.progress import SilentProgress
from heapwright.study.landscape_axes import axis_of, axis_text
from heapwright.study.landscape_export import landscape_csv, landscape_json
from heapwright.study.landscape_judge import landscape_result_of, neighbours, smoothness
from heapwright.study.landscape_result import LandscapeResult
from heapwright.study.load import load_view
from heapwright.study.open import open_or_begin
from heapwright.study.store import read_study
from heapwright.tuning.landscape import grid_space, sweep, with_repeats
from heapwright.tuning.pipeline import tune_study
from heapwright.tuning.session import Session
from heapwright.workload.model import Input, Workload, WorkloadFile

from ..allocators.spaces import number
from .conftest import Notes
from .fakes import BASE, Settings, World, install, toy_allocator

TOY = toy_allocator(
    number("size", 1, 1024, unit="B", default="128, growing"),
    number("count", 1, 8, scale="linear"),
    gates=("static",),
)


def valley(settings: Settings, _input: str) -> Mapping[str, float]:
    """The best size is 16; the count has little effect."""
    size = float(settings.get("size", 128))
    count = float(settings.get("count", 4))
    return {"peak_rss_bytes": math.exp(0.05 * (abs(math.log2(size / 16)) - 3) + 0.002 * (count - 4))}


class Sweeping:
    """`landscape` without its command line."""

    def __init__(self, path: Path, world: World, axes: tuple[str, ...], allocator: Allocator = TOY) -> None:
        self.path, self.world, self.axes, self.allocator = path, world, axes, allocator

    def go(
        self,
        run: Callable[[Session], None] | None = None,
        metric: str = "",
        progress: Progress | None = None,
        **options: Any,
    ) -> None:
        inputs = (Input("default"),)
        workload = Workload(WorkloadFile(command=["true"], input=list(inputs)), self.path.parent, inputs)
        given = {"allocator": "toy", "axes": self.axes, **options}
        store, opts = open_or_begin(self.path, workload, [self.allocator], given, ["heapwright"])
        with store:
            session = Session(store, workload, [self.allocator], opts, progress or SilentProgress())
            run(session) if run else sweep(session, metric)

    def landscape(self, metric: str = "") -> LandscapeResult:
        with read_study(self.path) as store:
            return landscape_result_of(store, metric)


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
    landscape = sweep.landscape()
    assert [p.values[0] for p in landscape.points] == [str(1 << k) for k in range(11)]
    for point in landscape.points:
        assert point.ratio == pytest.approx(valley({"size": point.values[0]}, "")["peak_rss_bytes"])
    assert landscape.best is not None
    assert landscape.best.values == ("16",)
    assert landscape.gains
    assert landscape.axes[0].default == 128
    assert landscape.smoothness.verdict.endswith("smooth")
    text = " ".join(" ".join(landscape_lines(landscape, 80)).split())
    assert "best: size=16 B: 82.1 MiB, −13.9% [−13.9, −13.9] in 8 fresh pairs with the default" in text


def test_the_plan_is_that_of_the_sweep(sweeping: Any) -> None:
    """11 points, 8 of them twice, in 4 blocks with the default; then 8 blocks of the default and the two ends."""
    sweep = sweeping(World(effect=valley), "size:1:1024:1")
    notes = Notes()
    sweep.go(progress=notes)
    (plan,) = [text for text in notes.notes if "takes about" in text]
    assert ": 23 runs of 11 points and the default, then 24 runs of the default, the lowest and the" in plan
    with read_study(sweep.path) as store:
        assert (len(store.runs("landscape")), len(store.runs("ends.%"))) == (23, 24)
    again = Notes()
    sweep.go(progress=again)
    assert not [text for text in again.notes if "takes about" in text], "all runs are stored"


def test_a_plane_has_every_pair(sweeping: Any) -> None:
    sweep = sweeping(World(effect=valley), "count:1:8:1", "size:1:1024:2")
    sweep.go()
    landscape = sweep.landscape()
    assert len(landscape.points) == 8 * 6
    assert landscape.points[7].values == ("2", "4")
    assert all(p.ratio is not None for p in landscape.points)
    assert landscape.best is not None
    assert landscape.best.values == ("1", "16")
    with read_study(sweep.path) as store:
        found = landscape_json(store, landscape)
        table = landscape_csv(store, landscape).splitlines()
    assert found["best"]["settings"] == {"count": "1", "size": "16"}
    assert found["best"]["env"] == {"TOY": "toy.count=1:toy.size=16"}
    assert table[0].startswith("count,size,block,input,failure,peak_rss_bytes,")
    assert len(table) == 1 + 48 + 10 + 8 + 2  # eight points twice; a default beside every five
    assert [found["places_repeated"], sum(p["runs"] == 2 for p in found["places"])] == [8, 8]
    assert found["best"]["confirmed"]["verdict"] == "better"
    assert found["best"]["confirmed"]["ratio"] == pytest.approx(found["best"]["ratio"])
    assert (found["differs"], found["highest_to_lowest"]["pairs"]) == (True, 8)


def test_every_point_is_measured_as_often_as_asked_and_more_go_on(sweeping: Any) -> None:
    sweep = sweeping(World(effect=valley, noise=0.01), "size:1:1024:1")
    sweep.go(replicates=2)
    before = list(sweep.world.made)
    assert sorted(p.runs for p in sweep.landscape().points) == [2] * 3 + [3] * 8  # the first time, eight points twice
    coarse = sweep.landscape().error
    sweep.go(replicates=8)
    assert sweep.world.made[: len(before)] == before
    assert sorted(p.runs for p in sweep.landscape().points) == [8] * 3 + [9] * 8
    assert sweep.landscape().error < coarse
    assert sweep.landscape().error == pytest.approx(math.sqrt(2) * 0.01 / math.sqrt(8), rel=0.35)


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
    assert cut.landscape() == whole.landscape()


def test_drift_does_not_look_like_shape(sweeping: Any) -> None:
    """The machine becomes a tenth slower over the sweep: within a block, and in random order, that cancels."""
    world = World(noise=0.001, drift=lambda n: n / 10_000)
    sweep = sweeping(world, "size:1:1024:0.5")
    sweep.go(replicates=4)
    ratios = [p.ratio for p in sweep.landscape("cpu_s").points]
    assert max(abs(math.log(r or 0.0)) for r in ratios) < 0.005


def test_a_point_that_fails_is_a_gap(sweeping: Any) -> None:
    world = World(effect=valley, fails=lambda s: "killed by SIGSEGV" if s.get("size") in ("8", "16") else "")
    sweep = sweeping(world, "size:1:1024:1")
    sweep.go()
    landscape = sweep.landscape()
    failed = [p for p in landscape.points if p.failure]
    assert [(p.values, p.ratio) for p in failed] == [(("8",), None), (("16",), None)]
    assert landscape.best is not None
    assert landscape.best.values == ("32",)
    assert "2 points failed, for example size=8 B: killed by SIGSEGV" in "\n".join(landscape_lines(landscape, 80))


def test_noise_alone_is_no_gain(sweeping: Any) -> None:
    sweep = sweeping(World(noise=0.01), "size:1:1024:0.5")
    sweep.go(replicates=3)
    landscape = sweep.landscape()
    assert not landscape.gains
    assert "no point is shown to be better than the default" in "\n".join(landscape_lines(landscape, 80))
    assert landscape.smoothness.verdict.startswith("flat")


def test_a_landscape_and_a_study_are_not_mixed(sweeping: Any) -> None:
    sweep = sweeping(World(effect=valley), "size:1:1024:2")
    sweep.go()
    with pytest.raises(HeapwrightError, match="is a landscape"):
        sweep.go(run=tune_study)
    sweep.axes = ("size:1:1024:1",)
    with pytest.raises(HeapwrightError, match="was begun with axes size:1:1024:2, not size:1:1024:1"):
        sweep.go()


@pytest.mark.parametrize("axes", [("size:1:1024:2", "count:1:8:1"), ("size:1:1024:1",)])
@pytest.mark.few(1)
def test_the_report_shows_it_and_claims_nothing(axes: tuple[str, ...], sweeping: Any, tmp_path: Path) -> None:
    sweep = sweeping(World(effect=valley), *axes)
    sweep.go()
    view = load_view(sweep.path)
    assert view.claim.startswith("A landscape of peak resident memory over size")
    assert view.claim.endswith("] in 8 fresh pairs.")
    assert (view.picks, len(view.evaluations)) == ({}, len(sweep.landscape().points))
    write_report([view], tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "A landscape: for inspection" in page
    assert "The landscape</h2>" in page
    assert "The search</h2>" not in page
    assert "autocorrelation of neighbours" in page


# axes


def test_an_axis_has_the_papers_points() -> None:
    """Every half power of two: 51 to 2^25, 71 to 2^35, less the one that rounds to another."""
    spec = number("size", 1, 1024)
    assert len(axis_of(spec, axis_text(spec, 1, 1 << 25, None)).values) == 50
    assert len(axis_of(spec, axis_text(spec, 1, 1 << 35, None)).values) == 70
    assert axis_of(spec, "size:1:16:0.5").values == ("1", "2", "3", "4", "6", "8", "11", "16")


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [(8, 8, "is empty: LOW must be below HIGH"), (9, 8, "is empty"), (0, 8, "a log axis begins at 1")],
)
def test_ranges_that_make_no_sense(low: int, high: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        axis_text(number("size", 1, 1024), low, high, None)


def test_too_many_points_are_refused() -> None:
    with pytest.raises(UsageError, match="size: 30000 values are too many"):
        grid_space(TOY, ["size:1:1073741824:0.001"])
    with pytest.raises(UsageError, match="points are too many"):
        grid_space(TOY, ["size:1:1073741824:0.005", "count:1:8:1"])


@pytest.mark.parametrize(("text", "size"), [("512", 512), ("32k", 32768), ("2^35", 1 << 35), ("x", None), ("", None)])
def test_sizes_are_read_with_their_units(text: str, size: int | None) -> None:
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
    slope = smoothness([k / 100 for k in range(50)], [50], 0.001, [0.001] * 8, True)
    assert slope.verdict == "smooth"
    assert slope.autocorrelation == pytest.approx(1, abs=0.1)
    assert slope.step == pytest.approx(0.01)
    rugged = smoothness([rng.gauss(0, 0.1) for _ in range(400)], [20, 20], 0.001, [0.001] * 8, True)
    assert rugged.verdict == "rugged"
    assert rugged.autocorrelation == pytest.approx(0, abs=0.15)


def test_of_pure_noise_the_step_is_the_noise_step() -> None:
    rng = random.Random(2)
    found = smoothness([rng.gauss(0, 0.02) for _ in range(2000)], [2000], 0.02, [], False)
    assert found.step == pytest.approx(found.noise_step, rel=0.05)
    assert found.verdict == "flat within the noise"


def test_few_points_and_a_plain_have_no_smoothness() -> None:
    assert smoothness([0.0, None], [2], 0.0, [], None).verdict == "too few points"
    assert smoothness([0.1] * 9, [3, 3], 0.0, [], True).verdict == "flat"
    assert smoothness([0.1, 0.2, 0.3], [3], 0.0, [], None).verdict.startswith("not judged")


def test_rugged_is_only_what_repeats_show() -> None:
    """Neighbours that differ no more than two runs of one point may be noise around any shape."""
    rng = random.Random(3)
    logs = [rng.gauss(0, 0.02) + (0.3 if k == 7 else 0) for k in range(40)]
    repeats = [abs(rng.gauss(0, 0.02 * math.sqrt(2))) for _ in range(8)]
    assert smoothness(logs, [40], 0.02, repeats, True).verdict.startswith("uneven")
    assert smoothness(logs, [40], 0.02, [r / 20 for r in repeats], True).verdict == "rugged"


def test_an_uneven_landscape_names_the_reason() -> None:
    """A cliff in six points has one large step of five: the points are too few, and the noise is not the reason."""
    quiet = [0.003] * 8
    cliff = smoothness([0.0, 0.001, 0.0, 0.42, 0.421, 0.42], [6], 0.002, quiet, True)
    assert cliff.verdict == "uneven: points differ, too few points to tell how"
    rng = random.Random(3)
    logs = [rng.gauss(0, 0.02) for _ in range(40)]
    noisy = smoothness(logs, [40], 0.02, [abs(rng.gauss(0, 0.028)) for _ in range(10)], True)
    assert noisy.verdict == "uneven: points differ, the noise hides how"
    spike = smoothness([0.0] * 20 + [0.5] + [0.0] * 20, [41], 0.002, quiet, True)
    assert spike.verdict == "uneven: points differ, but few neighbours do"
    once = smoothness([0.0, 0.5, 0.0, 0.5], [4], 0.002, [], True)
    assert once.verdict.endswith("too few points ran twice to tell how")


def test_noise_does_not_make_a_slope_rugged() -> None:
    """The observed autocorrelation falls below one half; that of the points without noise is near one."""
    rng = random.Random(4)
    logs = [0.06 * k / 100 + rng.gauss(0, 0.02) for k in range(100)]
    found = smoothness(logs, [100], 0.02, [abs(rng.gauss(0, 0.028)) for _ in range(10)], True)
    assert found.autocorrelation is not None
    assert found.autocorrelation < 0.5
    assert found.verdict in ("smooth", "fairly smooth")


# repeats


@given(st.integers(0, 300))
def test_repeats_are_spread_over_the_pass(points: int) -> None:
    blocks = with_repeats(range(points))
    found = [(point, at) for at, block in enumerate(blocks) for point in block]
    assert all(len(set(block)) == len(block) <= 5 for block in blocks)
    assert {point for point, _ in found} == set(range(points))
    if points:
        repeats = len(found) - points
        assert repeats >= max(8, points / 10)
        assert repeats <= max(16, points / 10 + 1)
    if points >= 10:
        first = dict(reversed(found))
        again = [(point, at) for point, at in found if at > first[point]]
        assert all(abs(at - first[point] - len(blocks) / 2) <= 1 for point, at in again)


def test_the_best_point_is_measured_again_beside_the_default(sweeping: Any) -> None:
    sweep = sweeping(World(effect=valley), "size:1:1024:1")
    sweep.go()
    made = len(sweep.world.made)
    assert {"size": "16"} in [settings for _, settings, _ in sweep.world.made[-24:]]
    sweep.go()
    assert len(sweep.world.made) == made
    with read_study(sweep.path) as store:
        fresh = store.runs("ends.peak_rss_bytes")
        lowest, highest = (
            next(r.config for r in fresh if store.config_by_id(r.config).settings == {"size": s})
            for s in ("16", "1024")
        )
    assert sorted((r.block, r.config) for r in fresh) == sorted((b, c) for b in range(8) for c in (1, lowest, highest))


def test_the_luckiest_run_is_not_called_best(sweeping: Any) -> None:
    """One run of one point was lucky: the sweep shows a gain, fresh runs do not."""
    world = World(effect=lucky_once())
    sweep = sweeping(world, "size:1:1024:1")
    sweep.go()
    landscape = sweep.landscape()
    assert landscape.best is not None
    assert landscape.best.values == ("16",)
    assert landscape.best.ratio == pytest.approx(0.9)
    assert not landscape.gains
    assert not landscape.differs
    assert landscape.smoothness.verdict == "flat within the noise"
    text = " ".join("\n".join(landscape_lines(landscape, 80)).split())
    assert (
        f"no point is shown to be better than the default: the lowest of the sweep, size={landscape.best.values[0]}"
        in text
    )
    assert "had −10.0% there and +0.0% [+0.0, +0.0] in 8 fresh pairs" in text
    assert "rugged" not in text


def lucky_once() -> Any:
    """An effect that one point has only during the sweep."""
    left = [2]

    def effect(settings: Settings, _input: str) -> Mapping[str, float]:
        lucky = settings.get("size") == "16" and left[0] > 0
        left[0] -= lucky
        return {"peak_rss_bytes": 0.9} if lucky else {}

    return effect


def test_another_metric_has_its_own_ends(sweeping: Any) -> None:
    def effect(settings: Settings, _input: str) -> Mapping[str, float]:
        return {**valley(settings, ""), "cpu_s": 1.5 if settings.get("size") == "2" else 1.0}

    sweep = sweeping(World(effect=effect), "size:1:1024:1")
    sweep.go()
    assert (sweep.landscape("cpu_s").gain, sweep.landscape("cpu_s").smoothness.verdict[:10]) == (None, "not judged")
    made = len(sweep.world.made)
    sweep.go(metric="cpu_s")
    assert len(sweep.world.made) == made + 24
    assert sweep.landscape("cpu_s").differs
    assert sweep.landscape().gains


def test_a_sweep_of_an_older_heapwright_is_refused(sweeping: Any) -> None:
    sweep = sweeping(World(effect=valley), "size:1:1024:2")
    sweep.go()
    with contextlib.closing(sqlite3.connect(sweep.path)) as db, db:
        db.execute("DELETE FROM meta WHERE key = 'repeats'")
    with pytest.raises(HeapwrightError, match="measured no point twice"):
        sweep.go()


def test_a_page_less_is_no_gain(sweeping: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One point has a page less of address space than the default, in every run."""
    peak = 1e8
    monkeypatch.setitem(BASE, "peak_heap_bytes", peak)

    def effect(settings: Settings, _input: str) -> Mapping[str, float]:
        return {"peak_heap_bytes": 1 - 4096 / peak if settings.get("size") == "16" else 1.0}

    world = World(effect=effect)
    sweep = sweeping(world, "size:1:1024:1")
    sweep.go(objectives=("peak_heap_bytes",), margin=0.0)
    landscape = sweep.landscape("peak_heap_bytes")
    assert landscape.best is not None
    assert landscape.best.values == ("16",)
    assert not landscape.gains
    assert landscape.smoothness.noise_step > 0
    assert {pad for _, _, pad in world.made} == {0}, "address space is measured without padding"
