"""Provides all tests with the native meter, test programs built once, and a summary of skips and times."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from heapwright.files import NATIVE
from tests import built_programs, needs, times

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "tests/programs"

# No deadline, because the machine may be slow and busy; fixed examples, so that a failure can be
# reproduced. The short form tries fewer.
hypothesis.settings.register_profile("long", deadline=None, derandomize=True, database=None)
hypothesis.settings.register_profile("short", hypothesis.settings.get_profile("long"), max_examples=40)
hypothesis.settings.load_profile("short")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--long`, which selects the long form of the tests too (make torture, two to three hours)."""
    parser.addoption("--long", action="store_true", help="the long form of the tests (make torture)")


PAGES = "pages"  # the group of tests that render pages or open them in the browser: one browser for all of them
LONG = pytest.StashKey[int]()  # how many tests the short form leaves to the long one


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LONG] = 0
    hypothesis.settings.load_profile("long" if config.getoption("--long") else "short")
    config.addinivalue_line("markers", "long: only in the long form (pytest --long, make torture)")
    config.addinivalue_line("markers", "longer: in both forms; the long one does more of it (needs.repeats)")
    config.addinivalue_line("markers", "few(n): the short form runs n of the test's cases, the long form all of them")
    # Signals that nohup, cron or a shell's & ignores would stay ignored in programs that the tests
    # start and signal.
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGINT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)  # before -m selects by mark
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps tests together that share a fixture, and deselects those that only the long form runs.

    In the long form the cases that `few` leaves out of the short form are marked `long`: `-m long` selects them too.
    With --dist loadgroup one process of pytest-xdist runs a group, so that a fixture of a module or a package is made
    once.
    """
    with_browser = {item.path for item in items if "browser" in getattr(item, "fixturenames", ())}
    for item in items:
        group = _group_of(item, with_browser)
        if group and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(group))
    left_out = _beyond_few(items)
    if config.getoption("--long"):
        for item in items:
            if item.nodeid in left_out:
                item.add_marker("long")
        return
    long = [item for item in items if item.get_closest_marker("long") or item.nodeid in left_out]
    deselected = {item.nodeid for item in long}
    items[:] = [item for item in items if item.nodeid not in deselected]
    config.hook.pytest_deselected(items=long)
    config.stash[LONG] = len(long)


def _group_of(item: pytest.Item, with_browser: Collection[Path]) -> str:
    """The group of a test that uses the browser or a fixture of its module or package; else nothing.

    Args:
        item: the test.
        with_browser: the files with tests that use the browser: their modules' fixtures are made beside it.
    """
    fixtures = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
    scopes = {one[-1].scope for one in fixtures if one}
    if "browser" in getattr(item, "fixturenames", ()) or ("module" in scopes and item.path in with_browser):
        return PAGES
    shared = item.path.parent if "package" in scopes else item.path if "module" in scopes else None
    return str(shared.relative_to(item.config.rootpath)) if shared else ""


def _beyond_few(items: list[pytest.Item]) -> set[str]:
    """The names of the cases that tests marked `few` leave out. Those that stay are spread over the cases."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("few") and not item.get_closest_marker("long"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out = set[str]()
    for of_test in cases.values():
        mark = of_test[0].get_closest_marker("few")
        assert mark is not None
        few = min(mark.args[0], len(of_test))
        kept = {of_test[n * len(of_test) // few].nodeid for n in range(few)}
        left_out.update(item.nodeid for item in of_test if item.nodeid not in kept)
    return left_out


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Reports the count of long tests from a pytest-xdist worker; it is the same in all workers."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["long"] = session.config.stash[LONG]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes over the count of long tests from a worker."""
    node.config.stash[LONG] = getattr(node, "workeroutput", {}).get("long", node.config.stash[LONG])


BUSY = pytest.StashKey[float]()  # the processor time in seconds before the test


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds to each phase's report the processor time that it took."""
    report = yield
    now = times.processor_time()
    report.user_properties = [(times.CPU, now - item.config.stash.get(BUSY, now))]
    item.config.stash[BUSY] = now
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints where the time went, and one line that counts the skipped tests by reason."""
    stats = terminalreporter.stats
    for line in times.summary(one for kind in stats.values() for one in kind if isinstance(one, pytest.TestReport)):
        terminalreporter.write_line(line)
    skipped = stats.get("skipped", [])
    reasons = [report.longrepr[2] if isinstance(report.longrepr, tuple) else "" for report in skipped]
    terminalreporter.write_line(needs.summary(reasons, terminalreporter.config.stash[LONG]))


@pytest.fixture(scope="session")
def meter() -> Path:
    """The native meter: $HEAPWRIGHT_METER, the one built for tests, or the installed one."""
    candidates = [
        Path(os.environ.get("HEAPWRIGHT_METER", "")),
        ROOT / "build/native/native/meter/heapwright-meter",
        NATIVE / "heapwright-meter",
    ]
    return next(path for path in candidates if path.is_file())


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Builds tests/programs/NAME.c or NAME.cpp, with more compiler options if given, unless it is built already."""
    folder = tmp_path_factory.mktemp("programs")
    return lambda name, *options: built_programs.build(PROGRAMS, name, options, folder)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium; skips where there is none."""
    chromium, driver = needs.command("chromium"), needs.command("chromedriver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    running = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield running
    running.quit()
