"""Opens the report of a hostile study in a browser: its texts run no code, make no requests and stay plain text."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heapwright.metrics import METRICS
from heapwright.report.embedded_data import report_data, unpack_study
from heapwright.report.html import extract, render_report, write_report
from heapwright.report.watch import watching
from heapwright.study.view import StudyView
from tests.report.conftest import ALL
from tests.report.test_browser import opened_at
from tests.report.views import undrawn

from .hostile import HEAPWRIGHT

STATES = ("proven", "workload file", "replayed", "swept", "unfinished", "three objectives")
# Texts that break out of an element, an attribute in either quote, a script, a comment, CDATA, a
# style or a URL; ends that only some parsers recognise; and text that reverses its direction.
WAYS = (
    "</script><script>hit()</script>",
    "<script>hit()</script>",
    "<img src=x onerror=hit()>",
    '"><img src=x onerror=hit()><"',
    "'><svg onload=hit()>",
    "--><img src=x onerror=hit()>",
    "]]><img src=x onerror=hit()>",
    "</title><img src=x onerror=hit()>",
    "</style><img src=x onerror=hit()>",
    "</textarea></svg><iframe src=javascript:hit()>",
    '" onmouseover="hit()" autofocus onfocus="hit()" x="',
    "{{ 7*7 }}{% raw %}",
    "<!--<script>",
    "<link rel=stylesheet href=http://127.0.0.1:9/x><base href=http://127.0.0.1:9/>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
    "<form action=http://127.0.0.1:9/><input name=q>",
    "<a href=javascript:hit()>x</a>",
    "\u2028hit()\u2029",
    "\u202e\x1b[2J\x00\ufffe",
    "&lt;script&gt;hit()&lt;/script&gt;",
    "${hit()}`${hit()}`",
)
PAYLOAD = " ".join(WAYS)
# Texts that only our code writes and that never come from outside: names of metrics, phases,
# verdicts, figures.
KEPT = {*METRICS, "memory", "time", "balanced", "done", "confirm", "search", "default", "holds", "flat", "few", "fails"}
KEPT |= {"better", "worse", "same", "unproven", "unclear", "log2", "linear", "names", "train", "test", "smooth"}


def made_hostile(value: Any, payload: str) -> Any:
    """The same JSON value with the payload appended to every text and to every foreign key of an object."""
    if isinstance(value, str):
        return value if value in KEPT or value.replace(".", "").isdigit() else value + payload
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: made_hostile(getattr(value, f.name), payload) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **changed)
    if isinstance(value, dict):
        return {made_hostile(k, payload) if k not in _FIELDS else k: made_hostile(v, payload) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(made_hostile(v, payload) for v in value)
    return value


# Keys of objects that our code chooses.
_FIELDS = {
    *("allocator", "objectives", "method", "warm_start", "evaluations", "budget_s", "seed", "margin", "pairs_min"),
    *("pairs_max", "params", "expert", "meter", "callgrind", "massif", "timeout", "cpu", "memory_bytes", "machine"),
    *("libc", "page_bytes", "thp", "aslr", "governor", "max_map_count", "os", "python", "cwd", "input", "env", "stdin"),
    *("setup", "cleanup", "success", "output", "server", "name", "split", "args", "command", "events", "threads"),
    *("bytes", "share", "processes", "executable", "elapsed_s", "warning", "kernel", "cores", "proxy", "replicates"),
    *("compare", "files", "load", "ready", "ready_port", "stop", "axes", "preset"),
}


def view_of(state: str, payload: str = PAYLOAD) -> StudyView:
    found: StudyView = made_hostile(ALL[state](), payload)
    return found


COUNT = """
const count = {};
for (const e of document.querySelectorAll("*")) count[e.tagName] = (count[e.tagName] || 0) + 1;
const handlers = [...document.querySelectorAll("*")].filter(
  e => [...e.attributes].some(a => /^on/i.test(a.name) || /^\\s*javascript:/i.test(a.value) && a.name !== "data-tip"));
const outside = document.querySelectorAll("[src],[srcset],form,base,object,embed").length;
return [count, handlers.length, window.__hits || 0, outside];
"""
HIT = "window.__hits = 0; window.hit = () => { window.__hits += 1; }; window.alert = window.hit;"


@pytest.fixture
def spied(browser: Any) -> Iterator[Any]:
    """The browser, with a function that all hostile code calls."""
    made = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": HIT})
    yield browser
    browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", made)


def looked_at(browser: Any, address: str) -> tuple[dict[str, int], list[str]]:
    """Uses every control of a page; returns the number of elements by tag, and the requests that the page made."""
    opened_at(browser, address, 1280)
    browser.execute_script(
        "document.querySelectorAll('details').forEach(d => d.open = true);"
        "document.querySelectorAll('button, th button, .pt, [data-copy]').forEach("
        "  e => e.dispatchEvent(new MouseEvent('click', {bubbles: true})));"
        "document.querySelectorAll('svg .pt, td, code').forEach("
        "  e => e.dispatchEvent(new PointerEvent('pointermove', {bubbles: true})));"
        "document.querySelectorAll('[data-filter]').forEach("
        "  i => { i.value = '<img src=x onerror=hit()>'; i.dispatchEvent(new Event('input', {bubbles: true})); });"
        "document.querySelectorAll('*').forEach(e => e.focus && e.focus());"
    )
    count, handlers, hits, outside = browser.execute_script(COUNT)
    assert hits == 0, "a script of the study's ran"
    assert handlers == 0, "an attribute of the study's is a handler"
    assert outside == 0
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    said = [e["message"] for e in browser.get_log("browser")]
    assert not [x for x in said if "Content Security Policy" in x], "only the policy held it"
    return count, asked


@pytest.mark.browser
@pytest.mark.parametrize("state", STATES)
@pytest.mark.long
def test_hostile_data_in_a_report_run_and_request_nothing(state: str, spied: Any, tmp_path: Path) -> None:
    """The page has the same elements as that of a study with harmless texts, and no hostile handler or request."""
    plain, hostile = tmp_path / "plain.html", tmp_path / "hostile.html"
    # Harmless texts have the same length and number of words, so that both pages cut and fold the
    # same texts.
    write_report([view_of(state, "".join("x" if not c.isspace() else " " for c in PAYLOAD))], plain)
    write_report([view_of(state)], hostile)
    before, asked = looked_at(spied, plain.as_uri())
    assert asked == [plain.as_uri()]
    after, asked = looked_at(spied, hostile.as_uri())
    assert asked == [hostile.as_uri()]
    changed = {tag for tag in {*before, *after} if before.get(tag) != after.get(tag)}
    assert changed <= {"SPAN", "tspan", "text", "P", "LI", "DT", "DD"}, (changed, before, after)


@pytest.mark.browser
@pytest.mark.long
def test_two_studies_and_a_live_page(spied: Any, tmp_path: Path) -> None:
    both = tmp_path / "both.html"
    write_report([view_of("proven"), view_of("workload file")], both)
    _, asked = looked_at(spied, both.as_uri())
    assert asked == [both.as_uri()]
    study = tmp_path / "s.study"
    study.touch()
    with watching([study], 0, 0.1, lambda _path: view_of("proven")) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}/"
            _, asked = looked_at(spied, address)
            assert {a.removeprefix(address) for a in asked} <= {"", "state", "favicon.ico"}
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("state", STATES)
@pytest.mark.few(1)
def test_the_data_come_back_as_they_were(state: str, tmp_path: Path) -> None:
    view = view_of(state)
    page = tmp_path / "r.html"
    write_report([view], page)
    text = page.read_text(encoding="utf-8")
    assert text.count("</script>") == render_report([undrawn()]).count("</script>"), "a script has ended early"
    expected = json.loads(json.dumps(unpack_study(report_data(view))))
    assert extract(page)["studies"] == [expected]
    done = subprocess.run([HEAPWRIGHT, "report", "--extract", page], capture_output=True, check=True)
    assert json.loads(done.stdout)["studies"] == [expected]
    assert b"\x1b" not in done.stdout
