"""Tests the progress lines and the live display of `tune`."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from heapwright.report.progress import LiveProgress, ParetoFront, PlainProgress, SilentProgress, make_progress, title
from heapwright.search import pareto

from .views import config


def test_phases_have_readable_names() -> None:
    assert title("search") == "searching"
    assert title("minify.time") == "removing settings without effect (time pick)"
    assert title("something new") == "something new"


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that progress reads, as the only item; tests change it."""
    now = [0.0]
    monkeypatch.setattr("heapwright.report.progress.time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_lines_at_the_end_of_each_phase(capsys: pytest.CaptureFixture[str], now: list[float]) -> None:
    with PlainProgress() as plain:
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
    assert (
        lines[-2]
        == "heapwright: searching: 30 runs (10 from an earlier session), 30 s; best single runs: CPU time -10%"
    )
    assert lines[-1] == "heapwright: confirming on fresh runs: 1 run, 0 s"


def test_a_note_comes_after_the_runs_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    with PlainProgress() as plain:
        plain.phase("search", 30)
        plain.note("nothing ran yet")
        plain.ran(fresh=True)
        plain.note("first")
        plain.note("second")
        plain.phase("confirm", 40)
        plain.ran(fresh=True)
        plain.note("third")
        plain.ran(fresh=True)
    assert [line.removeprefix("heapwright: ") for line in capsys.readouterr().err.splitlines()] == [
        "nothing ran yet",
        "searching: 1 run, 0 s",
        "first",
        "second",
        "confirming on fresh runs: 1 run, 0 s",
        "third",
        "confirming on fresh runs: 2 runs, 0 s",
    ]


def test_a_first_run_without_an_end_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = []

    class Timer(SimpleNamespace):
        """Notes its call instead of waiting."""

        def start(self) -> None:
            waits.append(self)

        def cancel(self) -> None:
            waits.clear()

    def timer(seconds: float, function: object, arguments: list[str]) -> Timer:
        return Timer(seconds=seconds, function=function, arguments=arguments)

    monkeypatch.setattr("heapwright.report.progress.threading", SimpleNamespace(Timer=timer))
    with PlainProgress() as plain:
        plain.phase("calibrate", 6)
        assert [wait.seconds for wait in waits] == [30]
        waits[0].function(*waits[0].arguments)
        assert "describe it in a workload file with a [server] table" in capsys.readouterr().err
        plain.ran(fresh=True)
        assert not waits, "the command ends by itself"
        plain.phase("calibrate", 6)
        assert not waits
    with PlainProgress(serves=True) as plain:
        plain.phase("calibrate", 6)
        waits[0].function(*waits[0].arguments)
        assert "30 s: it lasts until the load has ended and the server has stopped" in capsys.readouterr().err


def test_the_rest_of_a_phase_that_may_end_early_is_an_upper_bound(
    capsys: pytest.CaptureFixture[str], now: list[float]
) -> None:
    with PlainProgress() as plain:
        plain.phase("confirm", 160)
        for _ in range(2):
            now[0] += 5.9
            plain.ran(fresh=True)
    assert capsys.readouterr().err.splitlines()[0] == (
        "heapwright: confirming on fresh runs: 2 of at most 160 runs, at most 932 s left"
    )


def test_no_line_says_that_no_time_is_left(capsys: pytest.CaptureFixture[str], now: list[float]) -> None:
    """It said 'at most 0 s left' while the last run went on."""
    with PlainProgress() as plain:
        plain.phase("confirm", 160)
        plain.limit(6.0)
        for _ in range(2):
            now[0] += 5.9
            plain.ran(fresh=True)
    assert capsys.readouterr().err.splitlines()[0] == "heapwright: confirming on fresh runs: 2 of at most 160 runs"


def test_a_stage_that_takes_longer_does_not_use_up_the_time_of_later_ones(
    capsys: pytest.CaptureFixture[str], now: list[float]
) -> None:
    with PlainProgress() as plain:
        plain.left(100.0, later=60.0)
        plain.phase("search", 20)
        for _ in range(20):
            now[0] += 11.0
            plain.ran(fresh=True)
        plain.left(40.0)  # the last stage
        plain.phase("confirm", 2)
        for _ in range(2):
            now[0] += 41.0
            plain.ran(fresh=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("searching: 1 of 20 runs, about 209 s left; the study: about 4 min left")
    assert lines[18].endswith("searching: 19 of 20 runs, about 11 s left; the study: about 71 s left"), lines[18]
    assert lines[19].endswith("searching: 20 of 20 runs; the study: about 60 s left"), lines[19]
    assert lines[-2].endswith("confirming on fresh runs: 2 of at most 2 runs"), "it takes longer than expected"


def test_the_front_is_kept_as_settings_come() -> None:
    front = ParetoFront()
    front.add(config(2, top_pad="4096"), {"peak_rss_bytes": 0.9, "cpu_s": 1.2})
    front.add(config(3, top_pad="8192"), {"peak_rss_bytes": 1.1, "cpu_s": 0.8})
    front.add(config(4, top_pad="1"), {"peak_rss_bytes": 1.2, "cpu_s": 0.9})  # worse than the second
    assert list(front.members) == [2, 3]
    front.add(config(2, top_pad="4096"), {"peak_rss_bytes": 0.95, "cpu_s": 1.3})  # measured again
    front.add(config(5, mmap_max="0"), {"peak_rss_bytes": 0.94, "cpu_s": 1.0})
    assert sorted(front.members) == [3, 5]


@given(st.lists(st.tuples(st.integers(80, 120), st.integers(80, 120)), min_size=1, max_size=30))
def test_the_growing_front_is_the_pareto_front(costs: list[tuple[int, int]]) -> None:
    front = ParetoFront()
    for number, (memory, cpu) in enumerate(costs):
        front.add(config(number), {"peak_rss_bytes": memory / 100, "cpu_s": cpu / 100})
    assert sorted(front.members) == sorted(pareto.front(costs))


@pytest.mark.parametrize("width", [80, 120])
def test_the_live_view_fits_a_terminal(width: int) -> None:
    """Frames of the live view are never too wide, and show the Pareto front."""

    screen = io.StringIO()
    live = LiveProgress()
    live._console = live._bar.live.console = live._display.console = Console(
        file=screen, force_terminal=True, width=width, color_system=None
    )
    with live:
        live.phase("search", 40)
        for i in range(30):
            live.ran(fresh=True)
            settings = {f"a_long_name_{k}": str(10**k) for k in range(8)}
            live.tried(config(i + 2, **settings), {"peak_rss_bytes": 0.9 + i / 100, "cpu_s": 1.2 - i / 100})
        live._display.refresh()
        live.note("something to know")
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert max(len(line.rstrip()) for line in re.split(r"[\r\n]", drawn)) <= width
    assert "Pareto front: 30" in drawn
    assert "30/40" in drawn
    assert "−10.0%" in drawn
    assert "heapwright: something to know" in drawn


@pytest.mark.parametrize("width", [30, 45, 80])
def test_the_numbers_of_the_bar_are_whole_on_a_narrow_terminal(width: int) -> None:
    live = LiveProgress()
    live.phase("minify.memory", 1000)
    screen = io.StringIO()
    Console(file=screen, width=width, color_system=None).print(live._bar)
    (line,) = screen.getvalue().splitlines()
    assert line.startswith("remov")
    assert line.endswith("0/1000 -:--:--")


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with make_progress(quiet=True) as silent:
        silent.phase("search", 3)
        silent.ran(fresh=True)
        silent.note("anything")
    assert type(silent) is SilentProgress
    assert capsys.readouterr().err == ""


def test_no_bar_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(make_progress(quiet=False)) is PlainProgress
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "dumb")
    assert type(make_progress(quiet=False)) is PlainProgress
