"""Tests that the page is complete, safe, self-contained and small, and that its data can be extracted."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import random
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from heapwright.errors import FAILED, USAGE, HeapwrightError
from heapwright.interleaving.configuration import Config
from heapwright.report.facts import facts
from heapwright.report.html import extract, write_report
from heapwright.report.proxy import rank_text
from heapwright.study.options import Options
from heapwright.study.view import Agreement, Series, StudyView, Worker
from heapwright.workload.load_metrics import LoadMetrics
from heapwright.workload.model import LoadPhase, Server

from .conftest import ALL, PAGES, without_pictures, written_once
from .views import STATES, config, undrawn, view, with_requirements, without_gain

pytestmark = PAGES

VOID = {"meta", "link", "br", "hr", "img", "input", "col", "path", "use", "rect", "line", "circle"}
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u2028{{ 7*7 }}"


class Page(HTMLParser):
    """Checks nesting and collects the elements of a page."""

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
    return written_once(tmp_path / "report.html", *views)


def test_every_state_is_well_formed_and_says_its_claim(state: StudyView, tmp_path: Path) -> None:
    page = Page(written(tmp_path, state))
    assert len(page.ids) == len(set(page.ids)), "an id stands twice"
    badge = "Predicted by replays, not proven: "
    claim = state.claim.removeprefix(badge)
    assert (claim[:1].upper() + claim[1:] if claim != state.claim else claim) in "".join(page.text)
    assert badge not in "".join(page.text), "the line above the claim says it"
    for tag, attributes in page.tags:
        target = attributes.get("href") or ""
        if tag == "a" and target.startswith("#"):
            assert target[1:] in page.ids, f"{target} leads nowhere"


def test_the_page_loads_nothing(state: StudyView, tmp_path: Path) -> None:
    text = written(tmp_path, state)
    page = Page(text)
    (policy,) = [a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy
    assert "unsafe" not in policy
    assert not [t for t, a in page.tags if "style" in a], "the policy forbids style attributes"
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    for kind, content in (("style-src", style), ("script-src", script)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    for tag, attributes in page.tags:
        for name in ("src", "href", "srcset", "data", "action", "poster", "xlink:href"):
            value = attributes.get(name) or ""
            empty_icon = tag == "link" and value == "data:,"  # or a server would be asked for favicon.ico
            assert value == "" or value.startswith("#") or empty_icon, f"<{tag} {name}={value}>"
    assert not re.search(r"url\((?!#)|@import", text)


def test_html_in_a_users_text_is_escaped() -> None:
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
    page = Page(without_pictures(hostile))
    assert sum(tag == "script" for tag, _ in page.tags) == 2  # the data, the behaviour
    assert not [t for t, a in page.tags if t == "img" or any(name.startswith("on") for name in a)]
    assert f"claim {HOSTILE}" in "".join(page.text)


def test_hostile_values_stay_text_in_settings_pictures_and_data(tmp_path: Path) -> None:
    full = view()
    bad = config(7, mmap_threshold=HOSTILE)
    evaluations = [dataclasses.replace(e, config=bad) for e in full.evaluations]
    evaluations[:5] = [dataclasses.replace(e, reason=HOSTILE, feasible=False) for e in evaluations[:5]]
    pick = dataclasses.replace(full.picks["time"], config=bad)
    hostile = dataclasses.replace(
        full,
        evaluations=evaluations,
        picks={"time": pick},
        explanations={"mmap_threshold": HOSTILE},
        workload={"cwd": HOSTILE, "env": {"A": HOSTILE}, "input": [{"name": HOSTILE, "args": [HOSTILE]}]},
        options={**full.options, "method": HOSTILE},
    )
    text = written(tmp_path, hostile)
    page = Page(text)
    assert sum(tag == "script" for tag, _ in page.tags) == 2
    assert not [t for t, a in page.tags if t == "img" or any(name.startswith("on") for name in a)]
    (study,) = extract(tmp_path / "report.html")["studies"]
    assert study["evaluations"][0]["settings"] == {"mmap_threshold": HOSTILE}
    assert study["evaluations"][0]["reason"] == HOSTILE
    assert study["workload"]["cwd"] == HOSTILE


def test_the_data_come_back(tmp_path: Path) -> None:
    full = view()
    written(tmp_path, full)
    data = extract(tmp_path / "report.html")
    assert data["schema_version"] == 1
    (study,) = data["studies"]
    assert study["claim"] == full.claim
    assert study["command"] == full.command
    assert study["picks"]["time"]["confirmed"]["cpu_s"]["ratio"] == 0.7
    assert len(study["evaluations"]) == study["searched"] == len(full.evaluations)
    assert study["series"]["time"] == {
        "t": [0.0, 0.5, 1.0],
        "rss": [1e6, 9e6, 4e6],
        "heap": [2e6, 2e7, 2e7],
        "huge": [0.0, 2e6, 2e6],
    }
    assert "in huge pages" in (tmp_path / "report.html").read_text()
    assert "balanced" not in study["series"], "the same setting: once is enough"
    json.dumps(data, allow_nan=False)


def crowded(count: int) -> StudyView:
    """As large as a study gets: many settings each, a long front, memory over time at full length."""
    rng = random.Random(1)
    keys = ["mmap_threshold", "trim_threshold", "top_pad", "mmap_max", "tcache_count", "tcache_max", "mxfast"]
    found = view(count)
    evaluations = []
    for e in found.evaluations:
        at = config(e.config.id, **{k: str(rng.randrange(1 << 31)) for k in [*keys, "tcache_unsorted_limit"]})
        member = e.number % 8 == 0
        ratios = {"peak_rss_bytes": 0.9 + e.number / count, "cpu_s": 1.1 - e.number / count} if member else e.ratios
        evaluations.append(dataclasses.replace(e, config=at, on_front=member or e.on_front, ratios=ratios))
    t = [i / 7.123 for i in range(240)]
    series = Series(t, *([rng.uniform(4e8, 5e8) for _ in t] for _ in range(3)))
    front = [e.number for e in evaluations if e.on_front]
    series_of = dict.fromkeys(("default", "memory", "time", "balanced"), series)
    words = [f"--option-{i}=value" for i in range(100)]
    return dataclasses.replace(
        found, evaluations=evaluations, front=front, series=series_of, command=["./prog", *words]
    )


@pytest.mark.parametrize(("count", "most"), [(300, 400_000), (5000, 2_000_000)])
@pytest.mark.few(1)
def test_large_studies_stay_small_and_whole(count: int, most: int, tmp_path: Path) -> None:
    large = crowded(count)
    text = written(tmp_path, large)
    assert len(text.encode()) <= most
    page = Page(text)
    rows = re.findall(r'<tr id="s1-e(\d+)"', text)
    assert len(rows) > 50
    for pick in large.picks.values():
        assert f"s1-e{pick.searched.number}" in page.ids
    words = re.sub(r"<[^>]*>", "", text)
    said = re.search(rf"{count + 1} configurations; (\d+) of them are not listed here", words)
    assert said is not None
    assert int(said[1]) == count + 1 - len(rows)
    data = extract(tmp_path / "report.html")["studies"][0]
    assert data["searched"] == len(data["evaluations"]) == count + 1
    for found, e in zip(data["evaluations"], large.evaluations, strict=True):
        assert found["settings"] == e.config.settings
        assert found["number"] == e.number
        assert found["reason"] == e.reason
        assert found["ratios"] == pytest.approx(e.ratios, abs=1e-5)
        assert found["on_front"] == e.on_front


def test_the_replay_is_told_apart_from_the_program(tmp_path: Path) -> None:
    text = said(written(tmp_path, STATES["replayed"]()))
    for words in (
        "39 configurations were only replayed, not measured on the program.",
        "A run of the program took 1.20 s, a replay 100.0 ms, 2 in parallel: 24 replays in the time of one run.",
        "Recorded under exgen, the program makes the same calls (within 0.02%).",
        "Peak resident memory: rank correlation +0.93 over 11 configurations that were replayed and measured: replays"
        " rank as the program does.",
        "CPU time: 2 configurations that were replayed and measured: nothing to rank",
        "1.23 M calls of 2 threads; 4.0 KiB, recorded in 500.0 ms; the busiest of 3 processes, with 97% of",
    ):
        assert words in text, words
    (study,) = extract(tmp_path / "report.html")["studies"]
    assert [e["replayed"] for e in study["evaluations"]].count(True) == 39
    proxy = STATES["replayed"]().proxy
    assert proxy is not None
    why = dataclasses.replace(proxy, used=False, why="it allocates nothing", agreement=[])
    text = said(written(tmp_path, undrawn(proxy=why)))
    assert "The study used no replays. It searched on the program itself, because it allocates nothing." in text


def test_a_long_command_is_not_repeated_in_every_row(tmp_path: Path) -> None:
    text = written(tmp_path, ALL["workload file"]())
    assert text.count("--word-89") < 10
    assert "stands for the measured command" in text


def said(text: str) -> str:
    """Return the text of a page."""
    return re.sub(r"\s+", " ", "".join(Page(text).text))


def test_an_unfinished_study_says_how_to_go_on(tmp_path: Path) -> None:
    text = said(written(tmp_path, STATES["unfinished"]()))
    assert "Unfinished: nothing is proven yet" in text
    assert "The study stopped while searching. So far it has searched 61 configurations." in text
    assert "Paste this" not in text


def test_picks_of_an_unfinished_confirmation_are_no_claims() -> None:
    text = said(without_pictures(ALL["stopped while confirming"]()))
    assert "Their confirmation is not complete, so nothing here is proven" in text
    assert "the claim is about this" not in text
    assert "Paste this" not in text


def test_a_gain_that_was_not_confirmed_has_nothing_to_paste() -> None:
    text = said(without_pictures(ALL["nothing held up"]()))
    assert "Finished: nothing is proven" in text
    assert "Nothing to paste: the study searched 61 configurations, and none was proven better" in text
    assert "Paste this" not in text


def test_the_setting_of_a_program_in_an_image_is_for_the_image() -> None:
    one = view()
    pick = dataclasses.replace(one.picks["time"], config=Config(9001, "glibc", {}, {"HEAPWRIGHT_HUGE_PAGES": "never"}))
    found = view(picks={"time": pick}, host={**one.host, "image_platform": "x86_64-glibc"})
    text = said(without_pictures(found))
    assert "export LD_PRELOAD=/opt/heapwright/lib/libheapwright-no-huge-pages.so" in text
    assert "for every program that a shell in the image starts" in text
    assert "--format docker" in text
    assert "start from the same shell" not in text


def test_one_configuration_is_not_called_several() -> None:
    one = without_gain()
    one = dataclasses.replace(one, evaluations=one.evaluations[:1], picks={})
    text = said(without_pictures(one))
    assert "the study searched 1 configuration, and none was proven better" in text
    assert "1 configurations" not in text


def test_a_gain_with_a_price_says_so(tmp_path: Path) -> None:
    assert "Proven on fresh runs: a gain, and a loss in another metric" in said(written(tmp_path, view()))
    assert "a loss in another metric" not in said(without_pictures(STATES["single objective"]()))


def test_one_setting_under_three_names_is_said_once() -> None:
    text = said(without_pictures(ALL["one setting for all"]()))
    assert text.count("All three names stand for the same configuration") == 1
    assert text.count("Settings of this pick.") == 1


def test_a_setting_is_explained_with_its_size(tmp_path: Path) -> None:
    text = said(written(tmp_path, view()))
    assert "134217728128 MiB" in text  # two lines of one cell
    assert "Requests of at least this size get a mapping of their own. Default: 131072 B." in text
    assert "removed these settings, because the pick was not shown to be worse without them: mxfast=0." in text


def test_the_workload_is_described_in_words(tmp_path: Path) -> None:
    text = said(written(tmp_path, ALL["workload file"]()))
    for words in (
        "small (train): 'a b'; large (test)",
        "MODE='it'\"'\"'s'",
        "files, out.bin",
        "load: bench -q",
        "/srv/a b",
    ):
        assert words in text, words
    text = said(written(tmp_path, undrawn(options={"timeout": 0.0, "params": (), "budget_s": 90.0, "expert": False})))
    for words in ("10 × the default's time, at least 10 s", "all that are safe and apply here", "90.00 s", "no"):
        assert words in text, words


def test_a_load_of_phases_is_written_for_people(tmp_path: Path) -> None:
    server = Server(
        phase=[LoadPhase(["bench", "a b"]), LoadPhase(pause=1.5)], load_metrics=LoadMetrics("wrk", operations=7)
    )
    workload = {"command": ["./server"], "server": msgspec.to_builtins(server)}
    text = said(written(tmp_path, undrawn(workload=workload)))
    assert "phase: bench 'a b', then pause 1.5 s" in text
    assert "load_metrics: format = wrk, latency_unit = ms, operations = 7" in text


def test_the_page_says_what_was_not_measured(tmp_path: Path) -> None:
    assert "Not measured: energy." in said(written(tmp_path, view()))


def test_two_names_for_one_setting_are_one_section(tmp_path: Path) -> None:
    page = Page(written(tmp_path, view()))
    text = " ".join(page.text)
    assert "Time and balanced pick" in text
    assert "Both names stand for the same configuration" in text
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
    text = "".join(page.text)
    assert "malloc settings for 3 studies" in text
    assert "The studies side by side" in text
    assert text.count("Finished: nothing is proven") == text.count("Unfinished: nothing is proven yet") == 2
    pictures = [a for t, a in page.tags if t == "svg" and "studies" in (a.get("aria-labelledby") or "")]
    assert [p["class"] for p in pictures] == ["wide", "narrow"]
    assert len(page.ids) == len(set(page.ids))
    assert sum(tag == "section" for tag, _ in page.tags) == 3


def test_a_report_is_written_whole(tmp_path: Path) -> None:
    write_report([undrawn()], tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == written_once(tmp_path / "other.html", undrawn())


def test_the_facts_of_a_study_have_readable_names() -> None:
    named = dict(facts(view(options=msgspec.to_builtins(Options()))))
    assert not set(named) & {"massif_by", "search_only", "runtime", "requires", "axes", "replicates", "pairs_min"}
    assert named["removes settings without effect"] == "yes"
    assert "axes of the landscape" not in named
    swept = dict(facts(view(options=msgspec.to_builtins(Options(axes=("k:1:8:1",))))))
    assert (swept["axes of the landscape"], swept["runs of each point"]) == ("k:1:8:1", "1")


@pytest.mark.long
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
        (b"\xff\xfe", "is not a heapwright report"),
    ],
)
def test_extract_refuses_a_file_that_is_no_report(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(HeapwrightError, match=message) as caught:
        extract(path)
    assert caught.value.status == (USAGE if content is None else FAILED)


def test_the_cluster_s_workers_are_listed(tmp_path: Path) -> None:
    busy = Worker("tcp://10.0.0.7:4711", "node7<b>", 12, 60, 45.0, 50.0, lost=True, refused="")
    other = Worker("tcp://10.0.0.8:4711", "node8", 0, 0, 0.0, 50.0, lost=False, refused="it has no program z3")
    text = said(written(tmp_path, undrawn(workers=[busy, other])))
    assert "2 workers; each block" in text
    assert "node7<b>tcp://10.0.0.7:4711601245.00 s90%lost" in text
    assert "0%refused: it has no program z3" in text
    (study,) = extract(tmp_path / "report.html")["studies"]
    assert study["workers"][0]["busy_s"] == 45.0


@pytest.mark.parametrize("verdict", get_args(get_type_hints(Agreement)["verdict"]))
def test_every_verdict_on_a_replay_has_words(verdict: Any) -> None:
    assert "configurations that were replayed and measured: " in rank_text(
        Agreement("cpu_s", [(0.1, 0.1)] * 2, None, verdict)
    )


def test_the_page_says_what_there_was_no_time_for() -> None:
    found = view()
    hasty = {name: dataclasses.replace(pick, dropped=[], minified=False) for name, pick in found.picks.items()}
    text = said(without_pictures(dataclasses.replace(found, picks=hasty)))
    assert "There was no time to test whether each setting has an effect" in text
    assert "No setting could be removed" not in text


def test_each_requirement_has_a_row() -> None:
    text = re.sub(r"<[^>]+>", " ", without_pictures(with_requirements()))
    rows = " ".join(text.split())
    assert "throughput &gt;= 0.98x −1.0% to +0.5% met" in rows
    assert "99th percentile latency &lt;= 1.05x +9.0% to +12.0% not met" in rows
    assert "errors of the load &lt;= 0 not measured not known" in rows
