"""Tests that a signal ends the command though other code swallows its KeyboardInterrupt."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator

import pytest

from heapwright.cli import main as command
from heapwright.errors import INTERRUPTED
from heapwright.interruption import ending_signals, raise_if_interrupted
from heapwright.measure.meter import MeterOptions, run_metered

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def _usual_handlers() -> Iterator[None]:
    """Set the handlers of a command at a terminal: the tests may run in the background of a shell, or under nohup."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def in_an_import(number: signal.Signals) -> None:
    with contextlib.suppress(BaseException):
        signal.raise_signal(number)


def in_a_finalizer(number: signal.Signals) -> None:
    class Library:
        def __del__(self) -> None:
            signal.raise_signal(number)

    Library()


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("swallow", [in_an_import, in_a_finalizer])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_no_run_of_a_program_begins_after_the_signal(
    swallow: Callable[[signal.Signals], None], number: signal.Signals
) -> None:
    with ending_signals() as received:
        run_metered(["true"], MeterOptions())
        swallow(number)
        assert received == [number]
        for _ in range(2):  # also if it is swallowed again
            with pytest.raises(KeyboardInterrupt):
                run_metered(["true"], MeterOptions())
    run_metered(["true"], MeterOptions())  # the next command of this process


@pytest.mark.parametrize("number", SIGNALS)
def test_the_exit_status_is_that_of_the_signal(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    def verb(_words: list[str]) -> int:
        in_an_import(number)
        raise_if_interrupted()
        return 0

    monkeypatch.setattr(command, "_run", verb)
    assert command.main([]) == 128 + number
    assert INTERRUPTED == 128 + signal.SIGINT


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending_signals() as received:
            signal.raise_signal(signal.SIGHUP)
            assert received == []
            raise_if_interrupted()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
