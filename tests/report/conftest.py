"""Provides report pages of every state, and a browser."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from heapwright.report import sections
from heapwright.report.html import render_report
from heapwright.study.claim import pick_claim, study_claim
from heapwright.study.view import PICK_NAMES, Pick, PickName, StudyView
from tests import conftest, needs

from .views import OBJECTIVES, STATES, confirmation, evaluation, view

# One process of pytest-xdist runs all tests of pages, so that each page is rendered once.
PAGES = pytest.mark.xdist_group(conftest.PAGES)
PICTURES = dict(sections._PLOTS)
_DRAWN: dict[tuple[str, str, str], str] = {}
_RENDERED: dict[str, str] = {}


def drawn_once(name: str, view: StudyView, anchor: str = "s1") -> str:
    """Return one of the PICTURES of a view; each is drawn once, because all of a page take a second or two."""
    key = name, anchor, repr(view)
    if key not in _DRAWN:
        _DRAWN[key] = PICTURES[name](view, anchor)
    return _DRAWN[key]


def written_once(path: Path, *views: StudyView) -> str:
    """Write a report and return its text; each page is rendered once, of pictures that are drawn once."""
    key = repr(views)
    if key not in _RENDERED:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sections, "_PLOTS", {name: partial(drawn_once, name) for name in PICTURES})
            _RENDERED[key] = render_report(views)
    path.write_text(_RENDERED[key], encoding="utf-8")
    return _RENDERED[key]


def without_pictures(view: StudyView) -> str:
    """Return a page without its pictures, for a test of its texts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sections, "_PLOTS", dict.fromkeys(PICTURES, lambda *_: ""))
        return render_report([view])


def one_setting_for_all() -> StudyView:
    """All picks are the same configuration."""
    time = view().picks["time"]
    picks: dict[PickName, Pick] = {n: dataclasses.replace(time, name=n) for n in PICK_NAMES}
    series = view().series["default"]
    return view(picks=picks, series={"default": series, **dict.fromkeys(PICK_NAMES, series)})


def nothing_held_up() -> StudyView:
    """A configuration was good in the search but not in fresh runs."""
    pick = view().picks["time"]
    confirmed = {
        "peak_rss_bytes": confirmation("peak_rss_bytes", 1.001, "same", 0.9),
        "cpu_s": confirmation("cpu_s", 0.995, "unproven", 0.4),
    }
    claim = pick_claim(confirmed, OBJECTIVES, 1, 0.005)
    picks: dict[PickName, Pick] = {"time": dataclasses.replace(pick, confirmed=confirmed, claim=claim, dropped=[])}
    return view(picks=picks, claim=study_claim(picks, OBJECTIVES, True))


def stopped_while_confirming() -> StudyView:
    """Picks are known, a few pairs are done."""
    return view(phase="confirm", claim=study_claim(view().picks, OBJECTIVES, False))


def far_out() -> StudyView:
    """Configurations a hundred times worse than the default, and one constant objective."""
    found = view()
    worse = [evaluation(e.number, e.config, 1.0, math.exp(i % 9)) for i, e in enumerate(found.evaluations[:40])]
    return dataclasses.replace(found, evaluations=[*worse, *found.evaluations[40:]])


def three_objectives() -> StudyView:
    """Three objectives, of which the picture shows two."""
    objectives = [*OBJECTIVES, "wall_s"]
    found = view(objectives=objectives)
    searched = [dataclasses.replace(e, ratios=e.ratios and {**e.ratios, "wall_s": 1.01}) for e in found.evaluations]
    return dataclasses.replace(found, evaluations=searched)


def workload_file() -> StudyView:
    """A workload with several inputs, a server, and a command too long to repeat."""
    workload = {
        "command": ["./server"],
        "cwd": "/srv/a b",
        "success": [0, 143],
        "env": {"MODE": "it's"},
        "output": {"compare": "files", "files": ["out.bin"], "command": []},
        "input": [{"name": "small", "split": "train", "args": ["a b"]}, {"name": "large", "split": "test", "args": []}],
        "server": {"load": ["bench", "-q"], "ready": [], "ready_port": 6379, "stop": "SIGTERM"},
    }
    hazards = ["One thing.", "Another thing."]
    return view(workload=workload, command=["./server", *(f"--word-{i}" for i in range(90))], hazards=hazards)


ALL: dict[str, Callable[[], StudyView]] = {
    **STATES,
    "one setting for all": one_setting_for_all,
    "nothing held up": nothing_held_up,
    "stopped while confirming": stopped_while_confirming,
    "far out": far_out,
    "three objectives": three_objectives,
    "workload file": workload_file,
}


# The short form has the states that differ most from each other.
_SHORT = {"proven", "replayed", "unfinished", "nothing yet", "workload file"}
_PARAMETERS = [needs.long_unless(name in _SHORT, name, id=name) for name in ALL]


@pytest.fixture(params=_PARAMETERS)
def state(request: pytest.FixtureRequest) -> StudyView:
    """A view of each state."""
    return ALL[request.param]()


@pytest.fixture(scope="module", params=_PARAMETERS)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A written report of each state."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    written_once(path, ALL[request.param]())
    return path


@pytest.fixture(scope="module")
def proven_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a finished study with a proven gain."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    written_once(path, view())
    return path
