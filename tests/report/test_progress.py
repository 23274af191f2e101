"""What `tune` says while it works, where stderr is no terminal."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from heapwright.report.progress import Plain, Silent, make_progress, title


def test_phases_in_words() -> None:
    assert title("search") == "searching"
    assert title("minify.time") == "dropping what does nothing (time pick)"
    assert title("something new") == "something new"


def test_lines_at_the_end_of_each_phase(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("heapwright.report.progress.time", SimpleNamespace(monotonic=lambda: now[0]))
    with Plain() as plain:
        plain.note("study: s.study")
        plain.phase("search", 30)
        for i in range(30):
            now[0] += 1.0
            plain.ran(fresh=i >= 10)
        plain.best("best single runs: CPU time -10%")
        plain.phase("minify.time", None)
        plain.phase("confirm", 40)
        plain.ran(fresh=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "heapwright: study: s.study"
    assert lines[1] == "heapwright: searching: 10 of 30 runs"
    assert lines[2] == "heapwright: searching: 20 of 30 runs, about 20 s left"
    assert lines[-2] == "heapwright: searching: 30 runs (10 kept from before), 30 s; best single runs: CPU time -10%"
    assert lines[-1] == "heapwright: confirming on fresh runs: 1 runs, 0 s"


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with make_progress(quiet=True) as silent:
        silent.phase("search", 3)
        silent.ran(fresh=True)
        silent.note("anything")
    assert type(silent) is Silent
    assert capsys.readouterr().err == ""


def test_no_bar_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(make_progress(quiet=False)) is Plain
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "dumb")
    assert type(make_progress(quiet=False)) is Plain
