"""Tests the page in Chromium: no errors, no requests, nothing cut off, readable on a phone and in dark mode."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heapwright.report.html import write_report
from tests import needs

from .conftest import ALL, PAGES

pytestmark = [pytest.mark.browser, PAGES]


def opened(browser: Any, page: Path, width: int, dark: bool = False) -> None:
    opened_at(browser, page.as_uri(), width, dark)


def opened_at(browser: Any, address: str, width: int, dark: bool = False) -> None:
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for log in ("performance", "browser"):  # of the page before
        browser.get_log(log)
    browser.get(address)


def opened_alone(browser: Any, page: Path) -> None:
    """Opens a page, and checks that it logs no error and requests nothing but itself."""
    opened(browser, page, 1280)
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert asked == [page.as_uri()]


def test_the_page_opens_without_errors_or_requests(browser: Any, page: Path) -> None:
    opened_alone(browser, page)


@pytest.mark.parametrize("width", [360, needs.long(768), needs.long(1280)])
def test_no_element_is_wider_than_the_page(width: int, browser: Any, page: Path) -> None:
    opened(browser, page, width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_stands_out_from_its_ground(dark: bool, browser: Any, page: Path) -> None:
    """All text, also in plots, has the contrast of WCAG AA: 4.5 to 1."""
    opened(browser, page, 1280, dark)
    low = browser.execute_script(CONTRAST)
    assert low == []


@pytest.mark.long
def test_a_point_leads_to_its_row(browser: Any, proven_page: Path) -> None:
    opened(browser, proven_page, 1280)
    point = browser.find_element("css selector", "svg.wide .pt[id$='-e60']")
    browser.execute_script("arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))", point)
    row = browser.find_element("id", "s1-e60")
    assert row.is_displayed()
    assert "hit" in row.get_attribute("class")


def test_a_pick_leads_to_where_it_comes_from(browser: Any, proven_page: Path) -> None:
    opened(browser, proven_page, 1280)
    link = browser.find_element("link text", "#59")
    browser.execute_script("arguments[0].click()", link)
    assert browser.find_element("id", "s1-e59").is_displayed()


def test_the_table_sorts_by_what_was_clicked(browser: Any, proven_page: Path) -> None:
    opened(browser, proven_page, 1280)
    browser.execute_script("document.querySelector('details.tried').open = true")

    def column(n: int) -> list[str]:
        found: list[str] = browser.execute_script(
            "const rows = [...document.querySelectorAll('table.sortable tbody tr')];"
            "return rows.map(row => row.cells[arguments[0]].textContent)",
            n,
        )
        return found

    assert [int(x) for x in column(0)] == list(range(1, 62))
    heads = browser.find_elements("css selector", "table.sortable thead button")
    heads[2].click()  # CPU time
    cpu = column(2)
    assert cpu[0] == "−30.0%"
    assert cpu[-1] == "n/a"
    numbers = [float(x.rstrip("%").replace("−", "-")) for x in cpu[:-1]]
    assert numbers == sorted(numbers)
    heads[2].click()
    assert float(column(2)[0].rstrip("%")) == max(numbers)
    assert column(2)[-1] == "n/a"
    heads[0].click()
    assert [int(x) for x in column(0)] == list(range(1, 62))


@pytest.mark.parametrize(("width", "kind"), [(1280, "wide"), (360, "narrow")])
def test_plots_have_size_and_names(width: int, kind: str, browser: Any, proven_page: Path) -> None:
    opened(browser, proven_page, width)
    pictures = [p for p in browser.find_elements("css selector", "figure > svg") if p.is_displayed()]
    assert {p.get_attribute("class") for p in pictures} == {kind}
    names = [browser.execute_script(NAMED, p, "aria-labelledby") for p in pictures]
    assert names == ["Confirmed changes", "Effect of each setting", "Pareto front", *COURSE]
    for picture in pictures:
        assert picture.get_attribute("role") == "img"
        assert len(browser.execute_script(NAMED, picture, "aria-describedby")) > 40
        assert picture.size["width"] > min(500, width - 60)
        assert picture.size["height"] > 100


@pytest.mark.parametrize("width", [360, 700, 900, 1280])
def test_letters_in_plots_can_be_read(width: int, browser: Any, proven_page: Path) -> None:
    """Letters have at least ten pixels, and none lies outside the picture."""
    opened(browser, proven_page, width)
    assert browser.execute_script(SMALL_OR_CUT) == []


def test_the_claim_and_what_to_paste_are_on_the_first_screen(browser: Any, proven_page: Path) -> None:
    opened(browser, proven_page, 360)
    for selector in (".claim", "#s1-pastebox"):
        box = browser.find_element("css selector", selector).rect
        assert box["y"] + box["height"] < 900


def test_without_scripts_everything_can_be_read(browser: Any, proven_page: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        opened(browser, proven_page, 1280)
        text = browser.find_element("css selector", "body").text
        assert "With glibc's mmap_threshold=134217728" in text
        assert "export GLIBC_TUNABLES" in text
        assert not [b for b in browser.find_elements("css selector", "button") if b.is_displayed()]
        browser.find_element("css selector", "details.tried > summary").click()
        assert browser.find_element("id", "s1-e30").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.mark.long
def test_hostile_text_on_the_page_does_nothing(browser: Any, tmp_path: Path) -> None:
    bad = "</script><script>document.title='got'</script><img src=x onerror=\"document.title='got'\">"
    path = tmp_path / "report.html"
    write_report([ALL["proven"](), ALL["workload file"]()], path)
    text = path.read_text(encoding="utf-8").replace("A CPU", bad)  # as if nothing had been escaped
    path.write_text(text, encoding="utf-8")
    opened(browser, path, 1280)
    assert "got" not in browser.title
    assert "Content Security Policy" in " ".join(e["message"] for e in browser.get_log("browser"))


COURSE = ["Progress of the search", "Memory over time"]
NAMED = "return document.getElementById(arguments[0].getAttribute(arguments[1])).textContent"

SMALL_OR_CUT = """
const found = [];
for (const svg of document.querySelectorAll("figure > svg")) {
  const frame = svg.getBoundingClientRect();
  if (!frame.width) continue;
  const scale = frame.width / svg.viewBox.baseVal.width;
  for (const text of svg.querySelectorAll("text")) {
    const box = text.getBoundingClientRect(), size = parseFloat(getComputedStyle(text).fontSize) * scale;
    const out = Math.max(
      frame.left - box.left, box.right - frame.right, frame.top - box.top, box.bottom - frame.bottom);
    if (size < 10 || out > 2) found.push(`${text.textContent}: ${size.toFixed(1)} px, ${out.toFixed(1)} out`);
  }
}
return found;
"""

CONTRAST = """
const rgb = text => (text.match(/[\\d.]+/g) || []).map(Number);
const over = (a, b) => a.slice(0, 3).map((c, i) => c * (a[3] ?? 1) + b[i] * (1 - (a[3] ?? 1)));
const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const ground = element => { const stack = [];
  for (let e = element; e; e = e.parentElement) stack.push(rgb(getComputedStyle(e).backgroundColor));
  return stack.reverse().reduce((below, c) => c.length ? over(c, below) : below, [255, 255, 255]); };
const low = [];
for (const element of document.querySelectorAll("body *")) {
  const own = [...element.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  if (!own || element.closest("script, style, title, desc, .skip") || !element.getClientRects().length) continue;
  const style = getComputedStyle(element), svg = element.closest("svg");
  const colour = rgb(svg ? style.fill : style.color);
  if (!colour.length) continue;
  const back = ground(element), front = over(colour, back);
  const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) low.push(`${element.tagName} ${element.textContent.trim().slice(0, 30)} ${ratio.toFixed(2)}`);
}
return low;
"""
