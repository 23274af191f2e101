"""Tests the end of `tune`: the result comes before the report, whose name comes when the file is there."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from heapwright.cli.study_result import show_result
from heapwright.study.view import StudyView
from tests.report.views import view

ARGS = argparse.Namespace(json=None, quiet=False, no_report=False)


def test_the_report_is_named_when_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(_views: list[StudyView], path: Path) -> None:
        assert "report:" not in capsys.readouterr().out
        path.touch()

    monkeypatch.setattr("heapwright.report.html.write_report", write)
    show_result(ARGS, view(), tmp_path / "r.html")
    assert capsys.readouterr().out == f"report: {tmp_path / 'r.html'}\n"


def test_a_signal_before_the_report_is_written_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("heapwright.report.html.write_report", write)
    with pytest.raises(KeyboardInterrupt):
        show_result(ARGS, view(), tmp_path / "my r.html")
    said = capsys.readouterr()
    assert "report:" not in said.out
    assert "my r.html is not written, and the study is complete: heapwright report " in said.err
    assert said.err.endswith(f"-o '{tmp_path / 'my r.html'}'\n")
