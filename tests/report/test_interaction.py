"""Tests a reader's actions on the page: pointing, filtering, copying, keyboard, printing; and a study of thousands."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from .conftest import PAGES, written_once
from .test_browser import opened
from .views import view

pytestmark = [pytest.mark.browser, PAGES]

ROWS = "return document.querySelectorAll('table.sortable tbody tr:not([hidden])').length"


def keys(browser: Any, *names: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser).send_keys(*names).perform()


def test_a_point_shows_its_values_when_pointed_at(browser: Any, proven_page: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    opened(browser, proven_page, 1280)
    dot = browser.find_element("css selector", "svg.wide .pt[id$='-e60']")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", dot)
    ActionChains(browser).move_to_element(dot).perform()
    tip = browser.find_element("id", "tip")
    assert tip.is_displayed()
    assert tip.text.startswith("#60: mmap_max=128")
    box, frame = tip.rect, browser.execute_script("return [innerWidth, innerHeight, scrollY]")
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= frame[0]
    assert box["y"] + box["height"] <= frame[1] + frame[2]


def test_the_arrow_keys_move_between_points(browser: Any, proven_page: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    opened(browser, proven_page, 1280)
    browser.execute_script("document.querySelector('svg.wide[aria-labelledby*=search]').focus()")
    keys(browser, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    second = browser.execute_script("return document.querySelectorAll('svg.wide[aria-labelledby*=search] .pt')[1].id")
    assert browser.execute_script("return document.querySelector('.pt.on').id") == second
    assert browser.find_element("id", "tip").is_displayed()
    keys(browser, Keys.ENTER)
    row = browser.switch_to.active_element
    assert row.get_attribute("id") == "s1-e" + second.rpartition("-e")[2]
    assert not browser.find_element("id", "tip").is_displayed()


def test_the_filter_of_the_table_takes_words_and_excluded_words(browser: Any, proven_page: Path) -> None:
    opened(browser, proven_page, 1280)
    keys(browser, "/")
    field = browser.switch_to.active_element
    assert field.get_attribute("type") == "search"
    assert browser.execute_script(ROWS) == 61
    field.send_keys("front -mmap_max")
    assert browser.execute_script(ROWS) == 1
    assert browser.find_element("css selector", "[data-count]").text == "1 of 61"
    field.clear()
    field.send_keys("sigsegv")
    assert browser.execute_script(ROWS) == 1
    field.clear()
    field.send_keys("x\b")
    assert browser.execute_script(ROWS) == 61


def test_the_button_copies_the_lines_to_paste(browser: Any, proven_page: Path) -> None:
    opened(browser, proven_page, 1280)
    granted = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    browser.execute_cdp_cmd("Browser.grantPermissions", granted)
    button = browser.find_element("css selector", "[data-copy='s1-pastebox']")
    button.click()
    text = browser.execute_async_script(
        "const done = arguments[0]; setTimeout(() => navigator.clipboard.readText().then(done, done), 50)"
    )
    assert text.splitlines() == [
        "export GLIBC_TUNABLES=glibc.malloc.mmap_threshold=134217728",
        "# to undo: unset GLIBC_TUNABLES",
    ]
    assert button.text == "Copied"


def test_printing_opens_what_is_folded(browser: Any, proven_page: Path) -> None:
    opened(browser, proven_page, 1280)
    found = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": False, "preferCSSPageSize": True})
    pdf = base64.b64decode(found["data"])
    assert pdf.startswith(b"%PDF")
    assert pdf.count(b"/Type /Page\n") >= 4
    closed = "return document.querySelectorAll('section details:not([open]):not(td details)').length"
    assert browser.execute_script(closed) == 0


@pytest.mark.long
def test_thousands_of_settings_can_all_be_found(browser: Any, tmp_path: Path) -> None:
    """The page lists as many evaluations as its size permits; the script adds the others on demand."""
    path = tmp_path / "report.html"
    written_once(path, view(5000))
    opened(browser, path, 1280)
    assert browser.execute_script(ROWS) < 1000
    keys(browser, "/")
    browser.switch_to.active_element.send_keys(f"top_pad={4096 * 4321}")
    assert browser.execute_script(ROWS) == 1
    row = browser.find_element("id", "s1-e4321")
    assert row.is_displayed()
    same = view(5000).evaluations[4320].ratios["cpu_s"]
    assert float(row.find_elements("css selector", "td")[1].text.rstrip("%").replace("−", "-")) == pytest.approx(
        100 * (same - 1), abs=0.051
    )
    assert browser.get_log("browser") == []
