"""The page in a real browser: no errors, no requests, nothing cut off, readable on a phone and in the dark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heapwright.report.html import write_report

from .views import STATES

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("no chromium and chromedriver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    running = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield running
    running.quit()


@pytest.fixture(scope="module", params=STATES)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report([STATES[request.param]()], path)
    return path


def opened(browser: Any, page: Path, width: int, dark: bool = False) -> None:
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get_log("performance")
    browser.get(page.as_uri())


def test_it_opens_without_errors_or_requests(browser: Any, page: Path) -> None:
    opened(browser, page, 1280)
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert asked == [page.as_uri()]


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_sticks_out(width: int, browser: Any, page: Path) -> None:
    opened(browser, page, width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_stands_out_from_its_ground(dark: bool, browser: Any, page: Path) -> None:
    """WCAG AA: 4.5 to 1 for everything that is read, plots included."""
    opened(browser, page, 1280, dark)
    low = browser.execute_script(CONTRAST)
    assert low == []


def test_a_point_leads_to_its_row(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report([STATES["proven"]()], path)
    opened(browser, path, 1280)
    point = browser.find_element("css selector", "svg .pt[id$='e60']")
    browser.execute_script("arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))", point)
    row = browser.find_element("id", "s1-e60")
    assert row.is_displayed()
    assert "hit" in row.get_attribute("class")


def test_plots_have_size_and_names(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report([STATES["proven"]()], path)
    opened(browser, path, 1280)
    pictures = browser.find_elements("css selector", "figure > svg")
    assert [p.get_attribute("aria-label") for p in pictures] == [
        "Confirmed changes",
        "Pareto front",
        "Memory over time",
    ]
    for picture in pictures:
        assert picture.size["width"] > 500
        assert picture.size["height"] > 100
        assert picture.find_elements("css selector", "text, use, path")


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
