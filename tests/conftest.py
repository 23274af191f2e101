"""Provides all tests with the native meter, test programs built once, and a summary of skips and times."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from heapwright.files import NATIVE
from tests import built_programs, needs, times

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "tests/programs"

# No deadline, because the machine may be slow and busy; fixed examples, so that a failure can be reproduced.
# The short form tries fewer.
hypothesis.settings.register_profile("long", deadline=None, derandomize=True, database=None)
hypothesis.settings.register_profile("short", hypothesis.settings.get_profile("long"), max_examples=40)
hypothesis.settings.load_profile("short")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--long`, which selects the long form of the tests too (make torture, two to three hours)."""
    parser.addoption("--long", action="store_true", help="the long form of the tests (make torture)")


LONG = pytest.StashKey[int]()  # how many tests the short form leaves to the long one


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LONG] = 0
    hypothesis.settings.load_profile("long" if config.getoption("--long") else "short")
    config.addinivalue_line("markers", "long: only in the long form (pytest --long, make torture)")
    # Signals that nohup, cron or a shell's & ignores would stay ignored in programs that the tests start and signal.
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGINT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps tests together that share a fixture, and deselects those marked `long`, except in the long form.

    With --dist loadgroup one process of pytest-xdist runs a group, so that a fixture of a module is made once.
    """
    for item in items:
        fixtures = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
        if any(one[-1].scope == "module" for one in fixtures if one) and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.split("::")[0]))
    if config.getoption("--long"):
        return
    long = [item for item in items if item.get_closest_marker("long")]
    items[:] = [item for item in items if not item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=long)
    config.stash[LONG] = len(long)


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
