"""Compares the table of usual errors with the pages that it names."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

import pytest

from heapwright.interleaving.stats import Ratio
from heapwright.study.usual_error import (
    CPU_CHANGES,
    CPU_CHANGES_OF_ALL,
    CPU_RANK,
    CPU_RANK_OF_ALL,
    CPU_RANK_PAGE,
    HALF_WIDTHS,
    INTERVAL_PAGE,
    MAX_MISFIT,
    MEASURED_RATE,
    USUAL,
    UsualError,
    error_sentence,
    half_width,
    memory_sentence,
    misfit_sentence,
    prediction_interval,
    time_sentence,
)
from heapwright.trace.recordings import Recording, RecordingKind, Recordings

ROOT = Path(__file__).parents[2]


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def of_complete_traces(row: UsualError) -> tuple[float, float]:
    """The largest median and 95th percentile of the programs in the page's first table."""
    column = {"peak_rss_bytes": 4, "mean_rss_bytes": 5}[row.metric]
    found = []
    for line in text_of(row.page).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 8 and cells[1].isdecimal() and (int(cells[1]) > 1) == row.threads:
            median, high, *_ = re.findall(r"([\d.]+)%", cells[column])
            found.append((float(median), float(high)))
    assert len(found) == (13 if row.threads else 24), "the programs of the page"
    return max(m for m, _ in found), max(h for _, h in found)


@pytest.mark.parametrize("row", USUAL, ids=lambda r: f"{r.kind}-{r.threads}-{r.metric}")
def test_the_table_has_the_figures_of_its_page(row: UsualError) -> None:
    flat = " ".join(text_of(row.page).split())
    if row.kind == "complete":
        assert (row.median, row.high) == of_complete_traces(row)
    elif row.kind == "sample":
        start = "in which several threads share the heap" if row.threads else "The other eight programs"
        assert f"{row.median}%, 95th percentile {row.high}%" in flat.partition(start)[2][:120]
    else:
        start = "Programs in which several threads do" if row.threads else "Programs in which one thread allocates"
        assert row.within is not None
        assert f"median {row.median}%, {row.within[0]} of {row.within[1]} within" in flat.partition(start)[2][:120]


def test_the_rank_of_cpu_time_is_that_of_its_page() -> None:
    over_all = next(line for line in text_of(CPU_RANK_PAGE).splitlines() if line.startswith("| CPU time |"))
    assert f"{CPU_RANK:.3f} ({CPU_CHANGES})" in over_all.split("|")[6]
    assert int(over_all.split("|")[2]) == CPU_CHANGES_OF_ALL
    [goal] = [line for line in text_of(CPU_RANK_PAGE).splitlines() if line.startswith("| rank of CPU time ")]
    assert f"above noise {CPU_RANK:.3f} (" in goal
    assert f"of all changes {CPU_RANK_OF_ALL:.3f} " in goal
    assert f"rank correlation {CPU_RANK:.2f} for the {CPU_CHANGES} changes above noise" in time_sentence()
    assert f"{CPU_RANK_OF_ALL:.2f} for all {CPU_CHANGES_OF_ALL} (" in time_sentence()


def recorded(*kinds: RecordingKind, threads: int = 1) -> Recordings:
    return Recordings({k: Recording(f"/{k}", k, 0, threads, 10, 100) for k in kinds})


def test_the_sentence_names_error_page_and_kind() -> None:
    one = error_sentence(recorded("complete"), ["peak_rss_bytes"])
    assert "complete traces of programs with one thread" in one
    assert "peak resident memory up to 1.5%" in one
    assert "mean resident memory" not in one, "not an objective"
    assert "docs/results/fidelity.md" in one
    both = error_sentence(recorded("sample", "model", threads=4), ["mean_rss_bytes"])
    assert "samples of programs with several threads" in both
    assert "19 of 24 cases within 5% (docs/results/synth.md)" in both


def test_the_width_of_intervals_is_that_of_its_page() -> None:
    text = text_of(INTERVAL_PAGE)
    for (kind, threads, same), half in HALF_WIDTHS.items():
        whose = "several threads or processes" if threads else "one thread"
        change = "settings" if same else "another malloc"
        assert f"| {kind} | {whose} | {change} | {half:g}% |" in text


def test_the_interval_of_a_prediction_has_the_error_of_its_kind_and_the_misfit() -> None:
    replays = Ratio(0.8, 0.79, 0.81)
    fits, misses = recorded("complete", threads=4), recorded("complete", threads=4)
    misses.note_misfits({"complete": 0.1})
    half = 1 + HALF_WIDTHS["complete", True, False] / 100
    found = prediction_interval(fits, "peak_rss_bytes", replays, "exgen")
    assert (found.value, found.low, found.high) == pytest.approx((0.8, 0.79 / half, 0.81 * half))
    wider = prediction_interval(misses, "peak_rss_bytes", replays, "exgen")
    assert (wider.low, wider.high) == pytest.approx((found.low / 1.1, found.high * 1.1))
    one_round = prediction_interval(fits, "mean_rss_bytes", Ratio(0.8, math.nan, math.nan), "exgen")
    assert (one_round.low, one_round.high) == pytest.approx((0.8 / half, 0.8 * half))
    assert prediction_interval(fits, "minor_faults", replays, "exgen") == replays, "no published error"
    assert half_width(fits, "p95_rss_bytes") > half_width(recorded("complete"), "p95_rss_bytes")
    forked = recorded("complete")
    forked.inputs["complete"] = dataclasses.replace(forked.inputs["complete"], forked=True)
    assert half_width(forked, "peak_rss_bytes") == half_width(fits, "peak_rss_bytes"), "one of several processes"


def test_a_recording_that_its_own_replay_misses_is_named() -> None:
    recordings = recorded("complete", threads=4)
    assert misfit_sentence(recordings) == ""
    recordings.note_misfits({"complete": 0.02})
    assert misfit_sentence(recordings) == "", "as faithful as replays are"
    recordings.note_misfits({"complete": 0.1})
    assert "by 10% of the program's peak, and the intervals are wider by that" in misfit_sentence(recordings)
    recordings.note_misfits({"complete": MAX_MISFIT + 0.1})
    assert "so it predicts nothing" in misfit_sentence(recordings)


def test_a_sample_thinner_than_those_that_were_measured_is_named() -> None:
    recordings = recorded("sample", threads=4)
    for rate in (MEASURED_RATE, 1024):
        recordings.inputs["sample"] = dataclasses.replace(recordings.inputs["sample"], rate=rate)
        named = "of 1 in 1,024 expect larger errors (record --max-cost 0" in error_sentence(recordings)
        assert named == (rate > MEASURED_RATE)


@pytest.mark.parametrize(("live", "said"), [(25_400, True), (2 << 20, False)])
def test_a_recording_with_little_memory_is_said(live: int, said: bool) -> None:
    recording = Recording("/t.hwt", "complete", 0, 1, 100, live, "glibc 2.36", peak_resident_bytes=8 << 20)
    found = memory_sentence(Recordings({"t.hwt": recording}))
    assert ("t.hwt: the recorded process has about 24.8 KiB allocated at its peak, so" in found) == said
