"""The page: whole, safe, self-contained, small, and the same data can be had back from it."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from heapwright.errors import HeapwrightError
from heapwright.report.html import extract, write_report
from heapwright.study.view import StudyView

from .views import STATES, view

VOID = {"meta", "link", "br", "hr", "img", "input", "col", "path", "use", "rect", "line", "circle"}
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u2028{{ 7*7 }}"


class Page(HTMLParser):
    """Checks nesting and collects what a page consists of."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        identity = dict(attrs).get("id")
        if identity:
            self.ids.append(identity)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        identity = dict(attrs).get("id")
        if identity:
            self.ids.append(identity)

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)


def written(tmp_path: Path, *views: StudyView) -> str:
    out = tmp_path / "report.html"
    write_report(views, out)
    return out.read_text(encoding="utf-8")


@pytest.fixture(params=STATES)
def state(request: pytest.FixtureRequest) -> StudyView:
    make: Callable[[], StudyView] = STATES[request.param]
    return make()


def test_every_state_is_well_formed_and_says_its_claim(state: StudyView, tmp_path: Path) -> None:
    page = Page(written(tmp_path, state))
    assert len(page.ids) == len(set(page.ids)), "an id stands twice"
    assert state.claim in " ".join(page.text)
    for tag, attributes in page.tags:
        target = attributes.get("href") or ""
        if tag == "a" and target.startswith("#"):
            assert target[1:] in page.ids, f"{target} leads nowhere"


def test_nothing_is_loaded_from_anywhere(state: StudyView, tmp_path: Path) -> None:
    text = written(tmp_path, state)
    page = Page(text)
    (policy,) = [a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy
    for tag, attributes in page.tags:
        for name in ("src", "href", "srcset", "data", "action", "poster", "xlink:href"):
            value = attributes.get(name) or ""
            assert value == "" or value.startswith("#"), f"<{tag} {name}={value}>"
    assert not re.search(r"url\((?!#)|@import", text)


def test_what_people_write_stays_text(tmp_path: Path) -> None:
    hostile = view(
        command=[HOSTILE, "--x"],
        reproduce=["heapwright", "tune", "--", HOSTILE],
        claim=f"claim {HOSTILE}",
        path=f"{HOSTILE}.study",
        host={"cpu": HOSTILE},
        hazards=[HOSTILE],
        warnings=[HOSTILE],
        explanations={"mmap_threshold": HOSTILE},
    )
    evaluations = [dataclasses.replace(e, reason=HOSTILE, feasible=False) for e in hostile.evaluations[:5]]
    text = written(tmp_path, dataclasses.replace(hostile, evaluations=[*evaluations, *hostile.evaluations[5:]]))
    page = Page(text)
    assert sum(tag == "script" for tag, _ in page.tags) == 2  # the data, the behaviour
    assert not [t for t, a in page.tags if t == "img" or any(name.startswith("on") for name in a)]
    assert f"claim {HOSTILE}" in "".join(page.text)


def test_the_data_come_back(tmp_path: Path) -> None:
    full = view()
    written(tmp_path, full)
    data = extract(tmp_path / "report.html")
    assert data["schema_version"] == 1
    (study,) = data["studies"]
    assert study["claim"] == full.claim
    assert study["command"] == full.command
    assert study["picks"]["time"]["confirmed"]["cpu_s"]["ratio"] == 0.7
    assert len(study["evaluations"]) == len(full.evaluations)
    json.dumps(data, allow_nan=False)


def test_two_thousand_evaluations_stay_small(tmp_path: Path) -> None:
    large = view(2000)
    text = written(tmp_path, large)
    assert len(text.encode()) <= 400_000
    assert f"{len(large.evaluations)} settings" in text
    data = extract(tmp_path / "report.html")["studies"][0]
    shown = {e["number"] for e in data["evaluations"]}
    assert set(large.front) <= shown


def test_two_names_for_one_setting_are_one_section(tmp_path: Path) -> None:
    page = Page(written(tmp_path, view()))
    text = " ".join(page.text)
    assert "Time and balanced pick" in text
    assert "Balanced pick" not in text


def test_the_claims_pick_comes_first(tmp_path: Path) -> None:
    text = written(tmp_path, view())
    assert 0 < text.index("Time and balanced pick") < text.index("Memory pick")


def test_every_row_can_be_repeated(tmp_path: Path) -> None:
    full = view()
    text = written(tmp_path, full)
    for e in full.evaluations[-3:]:
        (value,) = e.config.env.values()
        assert f"env GLIBC_TUNABLES={value} heapwright measure -n 10 -- ./prog --fast &#39;a b&#39;" in text


def test_several_studies_on_one_page(tmp_path: Path) -> None:
    page = Page(written(tmp_path, view(), STATES["without gain"](), STATES["unfinished"]()))
    assert len(page.ids) == len(set(page.ids))
    assert sum(tag == "section" for tag, _ in page.tags) == 3


def test_a_report_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(HeapwrightError, match=r"cannot write the report .*no/report\.html: No such file or directory"):
        write_report([view()], tmp_path / "no/report.html")
    (tmp_path / "report.html").mkdir()
    with pytest.raises(HeapwrightError, match="cannot write the report"):
        write_report([view()], tmp_path / "report.html")
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read .*: No such file"),
        (b"<p>page</p>", "is not a heapwright report"),
        (b"\xff\xfe", "cannot read"),
    ],
)
def test_extract_of_something_else(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(HeapwrightError, match=message):
        extract(path)
