"""Tests the live report: the server's answers and refusals, and how a page in a browser takes over updates."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heapwright.errors import UsageError
from heapwright.report import watch
from heapwright.study.view import StudyView

from .test_browser import opened_at
from .views import unfinished, view


class Studies:
    """A running study: its file changes, and so does its view."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = unfinished()
        self.read = 0
        path.write_bytes(b"0")

    def load(self, _: Path) -> StudyView:
        self.read += 1
        return self.now

    def goes_on(self, now: StudyView) -> None:
        self.now = now
        self.path.write_bytes(self.path.read_bytes() + b"0")


@pytest.fixture
def studies(tmp_path: Path) -> Studies:
    return Studies(tmp_path / "a.study")


@pytest.fixture
def served(studies: Studies) -> Iterator[int]:
    """Return the port of a server that renders its page again on every request."""
    with watch.watching([studies.path], 0, 0.0, studies.load) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def ask(port: int, path: str, method: str = "GET", host: str = "") -> tuple[int, str, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, answer


def test_the_page_and_its_state(served: int, studies: Studies) -> None:
    status, page, answer = ask(served, "/")
    assert status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["Cache-Control"] == "no-store"
    assert studies.now.claim[:30] in page
    _, state, _ = ask(served, "/state")
    assert f'data-state="{state}"' in page
    assert ask(served, "/")[1] == page
    assert studies.read == 1, "nothing changed, so nothing was made anew"
    studies.goes_on(view())
    assert ask(served, "/state")[1] != state
    assert studies.now.claim[:30] in ask(served, "/")[1]
    assert studies.read == 2


def test_the_page_is_not_made_more_often_than_asked(studies: Studies) -> None:
    page = watch._Page([studies.path], 3600.0, studies.load)
    before = page.text()
    studies.goes_on(view())
    assert page.text() == before
    assert page.state() in before


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "evil.example:80"])
def test_other_names_are_refused(host: str, served: int, studies: Studies) -> None:
    status, text, _ = ask(served, "/", host=host)
    assert status == 421
    assert "study" not in text
    assert studies.read == 0


def test_the_host_name_localhost_is_served(served: int) -> None:
    assert ask(served, "/state", host=f"localhost:{served}")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_methods_that_change_something_are_refused(method: str, served: int, studies: Studies) -> None:
    assert ask(served, "/", method)[0] == 501
    assert studies.path.read_bytes() == b"0"


def test_other_paths_are_not_served(served: int) -> None:
    assert ask(served, "/../../etc/passwd")[0] == 404
    assert ask(served, "/a.study")[0] == 404
    assert ask(served, "/state", "HEAD")[1] == ""


def test_a_fault_is_one_line_and_the_server_goes_on(
    served: int, studies: Studies, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(studies, "now", None)
        for path in ("/", "/"):
            status, text, _ = ask(served, path)
            assert status == 500
            assert text.startswith("cannot make the report: TypeError: ")
            assert text.count("\n") == 1
    assert ask(served, "/")[0] == 200


def test_only_loopback_listens(studies: Studies) -> None:
    with watch.watching([studies.path], 0, 1.0, studies.load) as server:
        assert server.server_address[0] == "127.0.0.1"
        with pytest.raises(UsageError, match=r"cannot listen on 127\.0\.0\.1:\d+: Address already in use"):
            watch.watching([studies.path], server.server_port, 1.0, studies.load)


@pytest.mark.browser
@pytest.mark.long
def test_news_come_without_a_jump(browser: Any, served: int, studies: Studies) -> None:
    """An update keeps open sections, typed text and scroll position; the claim is new; no request leaves."""
    from selenium.webdriver.support.ui import WebDriverWait

    opened_at(browser, f"http://127.0.0.1:{served}/", 1280)
    browser.execute_script(
        "document.querySelector('details.tried').open = true; const f = document.querySelector('[data-filter]');"
        "f.value = 'top_pad=40960'; f.dispatchEvent(new Event('input', {bubbles: true})); f.focus();"
        "window.stays = 'the same document'; scrollTo(0, 900)"
    )
    studies.goes_on(view())
    # Found and read in one step: the page takes the element away in the middle of it.
    said = "return document.querySelector('.claim').textContent.includes(arguments[0])"
    WebDriverWait(browser, 60).until(lambda b: b.execute_script(said, view().claim[:30]))
    assert browser.execute_script("return window.stays") == "the same document"
    assert browser.execute_script("return document.querySelector('details.tried').open")
    assert browser.execute_script("return document.activeElement.matches('[data-filter]')")
    shown = browser.execute_script("return document.querySelectorAll('table.sortable tbody tr:not([hidden])').length")
    assert shown == 1
    assert browser.execute_script("return scrollY") == 900
    assert [e["message"] for e in browser.get_log("browser")] == []


@pytest.mark.browser
@pytest.mark.long
def test_a_page_whose_server_ended_says_so(browser: Any, studies: Studies) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    with watch.watching([studies.path], 0, 0.0, studies.load) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        opened_at(browser, f"http://127.0.0.1:{server.server_port}/", 1280)
        server.shutdown()
        thread.join()
    WebDriverWait(browser, 30).until(lambda b: "has ended" in b.find_element("id", "live").text)
