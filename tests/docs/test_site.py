"""The documentation site: it has every page, loads nothing from elsewhere, and its search finds pages."""

from __future__ import annotations

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .commands import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    words = [str(w) for w in (Path(sys.executable).parent / "mkdocs", "build", "--quiet", "--site-dir", folder)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module", params=["from files", "from a server"])
def start(request: pytest.FixtureRequest, site: Path) -> Iterator[str]:
    """The address of the first page, in the file system or from a server."""
    if request.param == "from files":
        yield (site / "index.html").as_uri()
        return
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/index.html"
    server.shutdown()
    thread.join()
    server.server_close()


def test_every_page_is_there_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(p.relative_to(site).with_suffix("") for p in site.rglob("*.html"))
    for page in (ROOT / "docs").rglob("*.md"):
        assert page.relative_to(ROOT / "docs").with_suffix("") in pages
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=[\"']?(https?:[^\"' >]+)", page.read_text()
        )
        assert not loaded


@pytest.mark.browser
@pytest.mark.parametrize(
    ("words", "page"), [("superblock", "glossary.html"), ("quarantine", "threat-model.html"), ("zzzznothing", "")]
)
@pytest.mark.few(1)
def test_the_search_finds_pages(browser: Any, start: str, words: str, page: str) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    browser.get("about:blank")
    browser.get(f"{start}?q={words}")  # opens the search with these words
    results = "return [...document.querySelectorAll('.md-search-result__link')].map(link => link.href)"
    told = "return document.querySelector('.md-search-result__meta').textContent.trim()"
    # The text before the search has ended is one of these two.
    WebDriverWait(browser, 60).until(
        lambda b: b.execute_script(told) not in ("", "Initializing search", "Type to start searching")
    )
    found = browser.execute_script(results)
    assert [link for link in found if f"/{page}" in link] if page else found == []
    if page:
        (mark, *_) = browser.find_elements("css selector", ".md-search-result__item mark")
        assert words[:5] in mark.get_attribute("textContent").lower()
