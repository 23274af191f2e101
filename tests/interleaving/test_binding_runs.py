"""Tests the run in which the loader tells which allocator became the program's malloc."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from heapwright.interleaving import binding_runs
from heapwright.interleaving.binding_runs import run_until_bound, run_with_bindings
from heapwright.measure.streams import Stopped
from heapwright.workload.execute import Outcome
from heapwright.workload.model import Input

from .fakes import outcome

LINE = "1: binding file ./program [0] to /lib/libone.so [0]: normal symbol `malloc'\n"
FOUND = [{("./program", "/lib/libone.so")}]


class Loader:
    """Stands for an executor of a program whose loader writes a binding and which then does `go_on`."""

    def __init__(self, go_on: Callable[[threading.Event | None], None] = lambda _stop: None) -> None:
        self.go_on = go_on
        self.env: Mapping[str, str] = {}

    def run(self, _input: Input, env: Mapping[str, str], pad: int, stop: threading.Event | None, /) -> Outcome:
        assert pad == 0
        self.env = env
        Path(f"{env['LD_DEBUG_OUTPUT']}.1").write_text(LINE)
        self.go_on(stop)
        return outcome()


def test_the_run_has_our_variables_and_those_of_the_configuration() -> None:
    loader = Loader()
    made, found = run_with_bindings(loader, Input("default"), {"A": "1"})
    assert (made.failure, found) == ("", FOUND)
    assert (loader.env["A"], loader.env["LD_DEBUG"]) == ("1", "bindings")
    assert not Path(loader.env["LD_DEBUG_OUTPUT"]).parent.exists(), "the folder is temporary"


def test_a_short_run_goes_on_to_its_end() -> None:
    made, found = run_until_bound(Loader(), Input("default"), {}, lambda _: True)
    assert made is not None
    assert found == FOUND


def test_a_long_run_is_stopped_once_its_bindings_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding_runs, "_ENOUGH_S", 0.0)
    monkeypatch.setattr(binding_runs, "_LOOK_S", 0.005)
    asked: list[object] = []

    def enough(found: object) -> bool:
        asked.append(found)
        return len(asked) > 1

    def wait(stop: threading.Event | None) -> None:
        assert stop is not None
        assert stop.wait(10)
        raise Stopped

    assert run_until_bound(Loader(wait), Input("default"), {}, enough) == (None, FOUND)
    assert asked == [FOUND, FOUND]


def test_a_run_whose_bindings_are_not_enough_is_not_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding_runs, "_ENOUGH_S", 0.0)
    monkeypatch.setattr(binding_runs, "_LOOK_S", 0.005)

    def wait(stop: threading.Event | None) -> None:
        assert stop is not None
        assert not stop.wait(0.1)

    made, _ = run_until_bound(Loader(wait), Input("default"), {}, lambda _: False)
    assert made is not None
