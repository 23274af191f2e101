"""Tests the tables at a terminal: at most 80 columns, no broken numbers, colour only where it is wanted."""

from __future__ import annotations

import dataclasses
import io
import re

import pytest
from rich.console import Console

from heapwright.interleaving.configuration import Config
from heapwright.interleaving.stats import Summary
from heapwright.metrics import METRICS, NUMERIC
from heapwright.report.landscape import shape_text
from heapwright.report.terminal import interval, measure_table, print_summary
from heapwright.search.quality import front_quality
from heapwright.study.view import PICK_NAMES, Confirmation, Pick, PickName, Reference, StudyView
from heapwright.units import percent

from .views import STATES, confirmation, swept, view, with_requirements


def shown(found: StudyView, width: int = 80, **console: object) -> str:
    out = io.StringIO()
    print_summary(found, Console(file=out, width=width, highlight=False, **console))  # type: ignore[arg-type]
    return out.getvalue()


def widest() -> StudyView:
    """The longest metric names, the largest changes, one setting for all three picks."""
    found = view()
    metrics = ["returned_lazily_bytes", "massif_peak_bytes", "mapping_calls"]
    confirmed = {
        m: Confirmation(m, 12.3456, 9.8765, 123.4567, 0.001, 40, "unproven", 1023.9 * 2**20, 1023.9 * 2**30)
        for m in metrics
    }
    pick = dataclasses.replace(found.picks["time"], confirmed=confirmed)
    picks: dict[PickName, Pick] = {n: dataclasses.replace(pick, name=n) for n in PICK_NAMES}
    return dataclasses.replace(found, objectives=metrics, picks=picks)


VIEWS = {**STATES, "widest": widest}


def test_changes_as_people_write_them() -> None:
    assert percent(0.828) == "−17.2%"
    assert percent(1.004) == "+0.4%"
    assert percent(1.0) == "+0.0%"
    assert interval(confirmation("cpu_s", 0.828, "better")) == "[−18.2, −16.2]"


@pytest.mark.parametrize("name", VIEWS)
def test_no_line_is_wider_than_a_terminal(name: str) -> None:
    for line in shown(VIEWS[name]()).splitlines():
        if not line.startswith("  export ") and "study: " not in line and "report: " not in line:
            assert len(line) <= 80, line


@pytest.mark.parametrize("name", VIEWS)
def test_no_line_holds_a_torn_number(name: str) -> None:
    for line in shown(VIEWS[name]()).splitlines():
        assert not re.fullmatch(r"[%\s\]\),.]+", line), line
        assert not re.match(r"\s*%", line), line


def test_a_long_verdict_leaves_the_names_of_metrics_whole() -> None:
    found = widest()
    peak = Confirmation("peak_rss_bytes", 0.9, 0.7, 1.2, 0.001, 40, "better", 1023.9 * 2**20, 1023.9 * 2**20)
    assert peak.verdict_text == "better in replays"
    picks = {name: dataclasses.replace(pick, confirmed={peak.metric: peak}) for name, pick in found.picks.items()}
    table = shown(dataclasses.replace(found, objectives=[peak.metric], picks=picks))
    assert re.search(r" peak_rss +1023\.9 MiB", table)
    usual = {"MALLOC_ARENA_MAX=1": Reference("MALLOC_ARENA_MAX=1", Config(9, "glibc", {}, {}), {peak.metric: peak}, "")}
    table = shown(dataclasses.replace(found, objectives=[peak.metric], references=usual))
    assert re.search(r"^MALLOC_ARENA_MAX=1 +peak_rss +1023\.9 MiB", table, re.M), "a variable stays whole, too"


@pytest.mark.parametrize("name", ["proven", "widest", "single objective"])
def test_every_figure_stands_whole_in_the_table(name: str) -> None:
    found = VIEWS[name]()
    table = shown(found)
    for _, pick in found.distinct_picks():
        for metric in found.objectives:
            c = pick.confirmed[metric]
            for figure in (percent(c.ratio), interval(c), c.verdict):
                assert figure in table, figure
            assert METRICS[metric].show(c.default_median) in table
            assert METRICS[metric].show(c.pick_median) in table


def test_usual_figures_leave_room_for_every_name() -> None:
    found = view()
    picks = {
        name: dataclasses.replace(
            pick,
            confirmed={
                m: dataclasses.replace(pick.confirmed[m], default_median=base, pick_median=base)
                for m, base in (("peak_rss_bytes", 1e9), ("cpu_s", 99.0))
            },
        )
        for name, pick in found.picks.items()
    }
    table = shown(dataclasses.replace(found, picks=picks))
    assert re.search(r"^memory +peak_rss +953\.7 MiB +953\.7 MiB +−3\.0% +\[−4\.0, −2\.0\]  better *$", table, re.M)
    assert re.search(r"^time and +peak_rss .*\nbalanced +cpu ", table, re.M), "no line for half a label"


def test_the_setting_to_paste_is_one_line_however_long() -> None:
    found = view()
    long = {"GLIBC_TUNABLES": ":".join(f"glibc.malloc.setting_{i}={i}" for i in range(20))}
    pick = found.picks["time"]
    pick = dataclasses.replace(pick, config=dataclasses.replace(pick.config, env=long))
    text = shown(dataclasses.replace(found, picks={"time": pick}))
    assert f"  export GLIBC_TUNABLES={long['GLIBC_TUNABLES']}\n" in text


def test_the_summary_has_the_claim_the_table_and_the_lines_to_paste() -> None:
    text = " ".join(shown(view()).split())
    found = view()
    assert found.claim in text
    assert "hazard: A small threshold" in text
    assert "warning: CPU time varied by 7%" in text
    assert "61 configurations searched by nsga2; meter: notify" in text
    assert "failed: 1 configuration of glibc: killed by SIGSEGV" in text
    assert "hypervolume" not in text
    assert "study: out/spectrum.study" in text


def test_without_a_gain_nothing_is_to_be_pasted() -> None:
    text = shown(STATES["without gain"]())
    assert "No proven improvement: keep the default." in text
    assert "paste" not in text
    assert "export" not in text


def test_an_unfinished_study_offers_nothing() -> None:
    text = shown(STATES["unfinished"]())
    assert "Nothing is proven yet" in text
    assert "paste" not in text


def test_square_brackets_of_a_claim_are_no_markup() -> None:
    text = shown(view(claim="With x=[bold]1[/bold]: CPU 1% lower [0.5, 1.5]."))
    assert "[bold]1[/bold]" in text
    assert "[0.5, 1.5]" in text


def test_colours_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TERM", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    assert "\x1b" not in shown(view())
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[32m" in shown(view(), force_terminal=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in shown(view(), force_terminal=True)
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b[32m" not in shown(view(), force_terminal=True)


# measure


def measured(runs: int, **values: float) -> str:
    out = io.StringIO()
    summary = {m: Summary(runs, v, v * 0.9, v * 1.1, v * 0.02) for m, v in values.items()}
    measure_table([{}] * runs, summary, Console(file=out, width=80, highlight=False))
    return out.getvalue()


def test_one_run_one_value_a_line() -> None:
    lines = measured(1, peak_rss_bytes=3 << 20, cpu_s=0.5).splitlines()
    always = {m for m in NUMERIC if not METRICS[m].of_load}
    assert len(lines) == 1 + len(always), "a plain program has no rows for what only a load measures"
    assert re.fullmatch(r"metric +value *", lines[0])
    rows = {re.split(r"  +", line.strip())[0]: re.split(r"  +", line.strip())[1] for line in lines[1:]}
    assert rows["peak resident memory"] == "3.0 MiB"
    assert rows["CPU time"] == "500.0 ms"
    assert rows["energy"] == "n/a"
    assert set(rows) == {METRICS[m].label for m in always}


def test_several_runs_show_their_spread() -> None:
    usual = {"s": 87.65, "ms": 87.65, "J": 87.65, "s/op": 87.65e-6}
    text = measured(5, **{m: usual.get(METRICS[m].unit, 123456789.0) for m in NUMERIC})
    assert re.search(r"^peak resident memory +117\.7 MiB +106\.0 MiB … 129\.5 MiB +2\.4 MiB$", text, re.M)
    assert all(len(line.rstrip()) <= 80 for line in text.splitlines())
    assert len(text.splitlines()) == 1 + len(NUMERIC), "no row is folded"


def test_requirements_are_a_table() -> None:
    lines = [" ".join(line.split()) for line in shown(with_requirements()).splitlines()]
    at = lines.index("requirement bound measured, 95% interval")
    assert lines[at + 1 : at + 4] == [
        "throughput >= 0.98x −1.0% to +0.5% met",
        "p99 <= 1.05x +9.0% to +12.0% not met",
        "load_errors <= 0 not measured not known",
    ]


def test_the_front_is_named_by_the_runs_that_it_comes_from() -> None:
    found = view()
    ratios = [[0.8, 1.0], [0.9, 0.9]]
    for repeated, name in ((False, "the search"), (True, "the candidates measured again")):
        quality = front_quality(ratios, found.objectives, repeated=repeated)
        text = " ".join(shown(dataclasses.replace(found, quality=quality)).split())
        assert f"Pareto front of {name}: 2 members" in text


def test_a_flat_landscape_whose_points_all_gain_says_both() -> None:
    """glibc's mmap_threshold is such a setting: any value of it stops the growth of the threshold."""
    landscape = swept().landscape
    assert landscape is not None
    assert shape_text(landscape).startswith("smooth, autocorrelation of neighbours 0.90; ")
    smoothness = dataclasses.replace(landscape.smoothness, verdict="flat within the noise")
    flat = dataclasses.replace(landscape, differs=False, smoothness=smoothness)
    assert shape_text(flat).startswith(
        "flat within the noise: points are not told apart, but the lowest one is better than the default, "
    )
    assert shape_text(dataclasses.replace(flat, gain=None)).startswith("flat within the noise, autocorrelation")
