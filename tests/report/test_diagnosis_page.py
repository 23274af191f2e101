"""The page of a diagnosis in Chromium: no errors, no requests, nothing cut off, readable in light and dark mode."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from heapwright.diagnose.diagnosis import diagnose, sum_processes
from heapwright.report.diagnosis_html import write_page

from .test_browser import CONTRAST, opened, opened_alone

pytestmark = pytest.mark.browser

THREADS = """
import sys, threading
def fill():
    blocks = [bytes(1000) for _ in range(20000)]
    del blocks[::2]
    wait.wait()
wait = threading.Event()
for _ in range(5):
    threading.Thread(target=fill, daemon=True).start()
blocks = [bytes(1000) for _ in range(50000)]
del blocks[::2]
print(1, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module", params=["one", "several"])
def diagnosis_page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = tmp_path_factory.mktemp("diagnosis") / "page.html"
    words = [sys.executable, "-c", THREADS]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.read(1)
        found = diagnose(process.pid)
        if request.param == "one":
            write_page(found, [], "process <b>1</b>", page)
        else:
            each = [found, diagnose(os.getpid())]
            write_page(sum_processes(each), each, "two processes", page)
        process.stdin.close()
    return page


@pytest.mark.few(1)
def test_the_page_opens_without_errors_or_requests(browser: Any, diagnosis_page: Path) -> None:
    opened_alone(browser, diagnosis_page)
    assert len(browser.find_elements("css selector", "svg.wide")) == 2
    page = diagnosis_page.read_text()
    assert ("by process" in page) == bool(re.search(r"\d+ python", page))


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.few(1)
def test_no_element_is_wider_than_the_page(width: int, browser: Any, diagnosis_page: Path) -> None:
    opened(browser, diagnosis_page, width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_stands_out_from_its_ground(dark: bool, browser: Any, diagnosis_page: Path) -> None:
    opened(browser, diagnosis_page, 1280, dark)
    assert browser.execute_script(CONTRAST) == []
