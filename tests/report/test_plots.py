"""Tests the pictures: their content, labels that do not overlap, colours independent of the page around."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from heapwright.report import diagnosis_html
from heapwright.report.memory_plot import memory_svg
from heapwright.report.plots import count_outside_picture, limits, search_svg, thinned
from heapwright.study.view import StudyView

from .conftest import ALL, PAGES, PICTURES, drawn_once
from .views import STATES, view

pytestmark = PAGES


def all_drawn(state: StudyView) -> list[str]:
    """All pictures of a state."""
    return [drawn_once(name, state) for name in PICTURES]


def test_every_state_is_drawn_twice_or_not_at_all(state: StudyView) -> None:
    for text in all_drawn(state):
        assert len(re.findall(r'<svg [^>]*class="wide"', text)) == len(re.findall(r'<svg [^>]*class="narrow"', text))
        assert text == "" or text.count("<svg ") == text.count("</svg>") == text.count("</desc>") == 2


def test_colours_come_from_the_page(state: StudyView) -> None:
    for text in all_drawn(state):
        assert not re.findall(r"#0102\w\w", text), "a sentinel is left"
        assert set(re.findall(r'(?:fill|stroke)="([^"]*)"', text)) <= {
            "none",
            "currentColor",
            *(f"var(--{name})" for name in ("faint", "default", "memory", "time", "balanced", "front", "dominated")),
            *(f"var(--{name})" for name in ("good", "goodbg", "muted", "bad", *(f"a{i}" for i in range(1, 7)))),
        }
        assert "style" not in text
        assert "font-family" not in text


def test_the_search_marks_the_default_and_names_the_picks() -> None:
    text = drawn_once("search", view())
    for name in ("default", "memory pick", "time and balanced pick", "better in both"):
        assert text.count(f">{name}</text>") == 2, name
    assert 'id="s1-search-wide-e60" class="pt"><title>#60: mmap_max=128\n' in text
    assert "The memory pick: peak resident memory −3.0% [−4.0, −2.0]" in text


def test_one_objective_is_drawn_over_the_course_of_the_search() -> None:
    text = search_svg(STATES["single objective"](), "s1")
    assert "best so far" in text
    assert "The search in its order" in text


def test_confirmed_changes_are_written_out() -> None:
    text = drawn_once("forest", view())
    assert ">−30.0% [−31.0, −29.0] better</text>" in text
    assert ">+5.0% [+4.0, +6.0] worse</text>" in text


def test_memory_is_named_and_described() -> None:
    text = drawn_once("memory", view())
    for name in ("resident memory, MiB", "mapped heap, MiB", "seconds since the start", "time and balanced pick"):
        assert f">{name}</text>" in text
    assert "default: at most 8.6 MiB resident and 19.1 MiB of mapped heap," in text
    assert "ended after 1.00 s." in text


def test_memory_of_an_exiting_process_is_not_drawn() -> None:
    full = view()
    ran = dataclasses.replace(
        full.series["default"], t=[0.0, 1.0, 2.0], rss=[5.0, 7.0, 6.0], heap=[1.0, 2.0, 1.0], huge=[]
    )
    gone = dataclasses.replace(ran, t=[*ran.t, 2.1, 2.2], rss=[*ran.rss, 0.0, 0.0], heap=[*ran.heap, 0.0, 0.0])
    stays = dataclasses.replace(gone, rss=[*ran.rss, 6.0, 6.0], heap=[*ran.heap, 1.0, 1.0])
    drawn = [memory_svg(dataclasses.replace(full, series={"default": s}), "s1") for s in (gone, stays)]
    assert drawn[0] == drawn[1]


def test_a_run_without_samples_is_left_out() -> None:
    full = view()
    empty = dataclasses.replace(full.series["time"], t=[], rss=[], heap=[], vm=[])
    text = memory_svg(dataclasses.replace(full, series={**full.series, "time": empty}), "s1")
    assert "memory pick" in text
    assert "time and balanced pick" not in text


def test_far_worse_settings_do_not_squash_the_picture() -> None:
    assert count_outside_picture(view()) == 0
    far = ALL["far out"]()
    hidden = count_outside_picture(far)
    assert 20 < hidden < 40
    points = re.findall(r'id="s1-search-wide-e\d+"', search_svg(far, "s1"))
    assert len(points) == len([e for e in far.evaluations if e.feasible]) - hidden


@pytest.mark.parametrize(
    ("core", "others", "low", "high"),
    [
        ([], [], 0.0, 0.0),
        ([-30.0, 5.0], [10.0, 900.0], -30.0, 10.0),
        ([-30.0], [-40.0], -40.0, 0.0),  # better values are never cut off
    ],
)
def test_limits_hold_what_matters(core: list[float], others: list[float], low: float, high: float) -> None:
    found = limits(core, others)
    assert low - 6 < found[0] < low
    assert high < found[1] < high + 6


def test_thinning_is_even_and_keeps_to_its_number() -> None:
    found = view(100).evaluations
    assert thinned(found, 1000) == found
    few = thinned(found, 10)
    assert len(few) <= 10
    steps = {b.number - a.number for a, b in itertools.pairwise(few)}
    assert len(steps) == 1


def test_a_plane_is_shaded_by_change() -> None:
    text = drawn_once("heat", STATES["swept"]())
    words = re.sub(r"<[^>]*>", " ", text)
    assert (
        "CPU time over top_pad and mmap_max, from −10.0% to +13.0% compared with the default; 1 point failed" in words
    )
    assert len(set(re.findall(r'opacity="([\d.]+)"', text))) >= 4
    assert {"best", "failed"} <= set(words.split())
    assert drawn_once("heat", view()) == ""


def test_allocators_are_told_apart() -> None:
    """Each allocator has its own marker in the legend and among the points."""
    names = ("glibc", "jemalloc", "mimalloc3")
    full = view(30)
    mixed = [
        dataclasses.replace(e, config=dataclasses.replace(e.config, allocator=names[i % 3]))
        for i, e in enumerate(full.evaluations)
    ]
    text = search_svg(dataclasses.replace(full, evaluations=mixed), "s1").partition('class="narrow"')[0]
    marks: dict[tuple[str, bool], set[str]] = {}
    for number, mark in re.findall(r'id="s1-search-wide-e(\d+)" class="pt">.*?href="#([^"]+)"', text, re.DOTALL):
        e = mixed[int(number) - 1]
        marks.setdefault((e.config.allocator, e.on_front), set()).add(mark)
    assert all(len(found) == 1 for found in marks.values())
    assert len({min(found) for found in marks.values()}) == len(marks) >= 4
    assert set(names) <= set(re.findall(r">([\w]+)</text>", text))


def test_pairs_and_removals_are_written_out() -> None:
    words = re.sub(r"<[^>]*>", " ", drawn_once("pairs", view()))
    assert "0 of 3 pairs lower" in words
    assert "pair 1: 95.4 MiB →" in words
    words = re.sub(r"<[^>]*>", " ", drawn_once("worth", view()))
    assert "mmap_threshold: CPU time" in words
    assert "+40.0% [+35.0, +45.0] kept" in words
    assert "dropped" in words


def test_the_same_study_draws_the_same_bytes() -> None:
    assert search_svg(view(), "s1") == drawn_once("search", view())


def test_matplotlib_keeps_its_files_in_our_cache(tmp_path: Path) -> None:
    code = "import os; from heapwright.report.matplotlib_cache import load_matplotlib as load; mpl = load('svg')"
    code += "; print(mpl.get_cachedir(), mpl.get_configdir(), os.environ.get('MPLCONFIGDIR'))"
    env = {k: v for k, v in os.environ.items() if k not in ("MPLCONFIGDIR", "XDG_CACHE_HOME")}
    for more, folder, variable in (
        ({}, tmp_path / ".cache/heapwright/matplotlib", "None"),
        ({"XDG_CACHE_HOME": str(tmp_path / "x")}, tmp_path / "x/heapwright/matplotlib", "None"),
        ({"MPLCONFIGDIR": str(tmp_path / "mine")}, tmp_path / "mine", str(tmp_path / "mine")),
    ):
        words = [sys.executable, "-c", code]
        done = subprocess.run(words, env={**env, "HOME": str(tmp_path), **more}, capture_output=True, text=True)
        assert done.stdout.split() == [str(folder), str(folder), variable], done.stderr


def test_a_name_with_dollars_is_drawn_as_it_is() -> None:
    """A dollar sign begins no formula: `load_matplotlib` turns formulas off."""
    bars = [(diagnosis_html._label(name), [("live", 1 << 20)]) for name in ("a$b", "c$d$")]
    text = diagnosis_html._stacked(bars, {"live": "live"}, "processes", "Memory by process")
    assert "\\$" not in text
    assert all(text.count(name) > 1 for name in ("a$b", "c$d$"))
