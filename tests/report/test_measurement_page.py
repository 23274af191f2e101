"""The page of `measure --html` in Chromium: no errors, no requests, memory over time of a run of six hours."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from heapwright.measure.meter import SERIES_POINTS, Run
from heapwright.metrics import NUMERIC
from heapwright.report.measurement_html import write_page

from .test_browser import opened_alone

pytestmark = pytest.mark.browser

HOURS = 6


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run that had as many points as a run of six hours has."""
    times = [HOURS * 3600 * i / SERIES_POINTS for i in range(SERIES_POINTS)]
    rss = [(50 + 20 * math.sin(i / 9)) * 2**20 for i in range(SERIES_POINTS)]
    series = {"t": times, "rss": rss, "heap": [v * 1.2 for v in rss], "vm": [v * 4 for v in rss]}
    metrics = dict.fromkeys(NUMERIC) | {"peak_rss_bytes": max(rss), "wall_s": HOURS * 3600.0}
    out = tmp_path_factory.mktemp("measurement") / "page.html"
    write_page({"default": [Run(metrics, 0, False, "", "poll", series=series)]}, {"default": ["a", "<b>"]}, out)
    return out


def test_the_page_is_small_and_opens_without_errors_or_requests(browser: Any, page: Path) -> None:
    assert page.stat().st_size < 200_000
    opened_alone(browser, page)
    text = browser.find_element("tag name", "body").text
    assert "hours since the start" in browser.page_source
    assert "a '<b>'" in text
    assert "peak resident memory" in text
