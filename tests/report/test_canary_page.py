"""The page of a canary in Chromium: no errors, no requests, and small for a week of readings."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from heapwright.canary.blocks import CPU, MEMORY, RatioSeries
from heapwright.canary.judge import judge_number
from heapwright.canary.readings import Header
from heapwright.canary.run import CanaryState
from heapwright.report.canary_html import write_page

from .test_browser import opened_alone

pytestmark = pytest.mark.browser

WEEK = 7 * 24 * 60  # blocks of a minute


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = random.Random(1)
    header = Header(["<b>1"], ["2"], 5.0, False)
    blocks = {}
    for name, size in ((MEMORY, 200 * 2**20), (CPU, 0.4)):
        found = RatioSeries([60.0 * i for i in range(WEEK)])
        found.control = [size * rng.uniform(0.98, 1.02) for _ in range(WEEK)]
        found.treatment = [size * rng.uniform(0.93, 0.97) for _ in range(WEEK)]
        blocks[name] = found
    results = {name: judge_number(found, 0.01) for name, found in blocks.items()}
    out = tmp_path_factory.mktemp("canary") / "page.html"
    write_page(CanaryState(header, results, blocks, 12 * WEEK, 60.0 * WEEK, (0, 1), [], 0.0, 60.0 * WEEK), out)
    return out


@pytest.mark.long
def test_the_page_is_small_and_opens_without_errors_or_requests(browser: Any, page: Path) -> None:
    assert page.stat().st_size < 300_000
    opened_alone(browser, page)
    text = browser.find_element("tag name", "body").text
    assert "2 beside <b>1" in text
    assert "Memory lower in the treatment" in text
    assert "Restarts: 0 of control, 1 of treatment" in text
