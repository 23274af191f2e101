"""Tests `heapwright canary`: its statistics by simulation, its file, its sources."""

from __future__ import annotations

import math
import os
import random
import resource
import subprocess
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heapwright.canary.blocks import CPU, FAULTS, MEMORY, READINGS_PER_BLOCK, RatioSeries, all_blocks, restarts
from heapwright.canary.instances import InstanceReading
from heapwright.canary.judge import FIRST_LOOK, judge_number
from heapwright.canary.readings import Header, Reading, ReadingFile, load_readings
from heapwright.canary.run import judge_readings, take_readings
from heapwright.canary.sources import of_command, of_prometheus, sum_of_series
from heapwright.errors import HeapwrightError, UsageError
from heapwright.report.canary import canary_sentence, extent, notes, show_value

HEADER = Header(["1"], ["2"], 1.0, False)
MIB = 1 << 20


def blocks_of(log_ratios: list[float], load: list[float] | None = None) -> RatioSeries:
    found = RatioSeries()
    found.control = [math.exp(v) for v in load or [0.0] * len(log_ratios)]
    found.treatment = [c * math.exp(d) for c, d in zip(found.control, log_ratios, strict=True)]
    found.times = [60.0 * i for i in range(len(log_ratios))]
    return found


def noise(rng: random.Random, count: int, rho: float, deviation: float) -> list[float]:
    """An AR(1) series."""
    value, found = rng.gauss(0, deviation), []
    for _ in range(count):
        found.append(value)
        value = rho * value + rng.gauss(0, deviation * math.sqrt(1 - rho * rho))
    return found


def claims(rho: float, gain: float, series: int, count: int) -> float:
    """The share of series in which any look claims a difference."""
    rng = random.Random(f"{rho} {gain}")
    made = 0
    for _ in range(series):
        values = [v + math.log1p(gain) for v in noise(rng, count, rho, 0.02)]
        looks = [FIRST_LOOK << k for k in range(8) if FIRST_LOOK << k <= count]
        made += any(judge_number(blocks_of(values[:n]), 0.01).verdict in ("lower", "higher") for n in looks)
    return made / series


@pytest.mark.parametrize("rho", [0.0, 0.6, 0.9])
@pytest.mark.few(1)
def test_without_a_difference_at_most_one_canary_in_twenty_claims_one(rho: float) -> None:
    assert claims(rho, 0.0, 150, 240) <= 0.05


def test_a_gain_is_found_within_an_hour() -> None:
    assert claims(0.5, -0.05, 60, 60) >= 0.8


def test_each_verdict_follows_from_its_blocks() -> None:
    rng = random.Random(1)
    assert judge_number(blocks_of([]), 0.01).verdict == "open"
    assert judge_number(blocks_of([0.1] * (FIRST_LOOK - 1)), 0.01).ratio is None, "no look yet"
    lower = judge_number(blocks_of(noise(rng, 60, 0, 0.01)[:60]), 0.05)
    assert lower.verdict == "same"
    gain = judge_number(blocks_of([v - 0.1 for v in noise(rng, 60, 0, 0.01)]), 0.01)
    assert gain.verdict == "lower"
    assert gain.ratio == pytest.approx(math.exp(-0.1), abs=0.01)
    assert (gain.low or 0) < (gain.ratio or 0) < (gain.high or 0) < 1
    climbing = judge_number(blocks_of([0.005 * i + v for i, v in enumerate(noise(rng, 60, 0, 0.01))]), 0.01)
    assert climbing.verdict == "drifting"
    assert climbing.drift == pytest.approx(0.005 * 60, rel=0.1)


def test_equal_values_are_no_claim_where_nothing_shows_how_instances_differ() -> None:
    """Idle instances, one on each side, whose memory is constant: a part of the difference may be of their start."""
    still = judge_number(blocks_of([math.log(0.985)] * FIRST_LOOK), 0.01)
    assert (still.verdict, still.between) == ("open", False)
    rng = random.Random(4)
    nearly = judge_number(blocks_of([math.log(0.985) + v for v in noise(rng, FIRST_LOOK, 0, 1e-8)]), 0.01)
    assert (still.low, still.high) == pytest.approx((nearly.low, nearly.high), abs=1e-5)
    assert judge_number(blocks_of([-0.1] * 60), 0.01).verdict == "lower"


def test_a_load_that_both_share_cancels() -> None:
    rng = random.Random(2)
    load = noise(rng, 60, 0.95, 0.5)
    found = judge_number(blocks_of([v - 0.05 for v in noise(rng, 60, 0, 0.005)], load), 0.01)
    assert found.verdict == "lower"


def test_differences_between_instances_widen_the_interval() -> None:
    rng = random.Random(3)

    def two_each(spread: float) -> RatioSeries:
        found = blocks_of([v - 0.05 for v in noise(rng, 60, 0, 0.005)])
        for c, t in zip(found.control, found.treatment, strict=True):
            found.instances[0].append([c * (1 - spread), c * (1 + spread)])
            found.instances[1].append([t * (1 - spread), t * (1 + spread)])
        return found

    alike, unlike = judge_number(two_each(0.0001), 0.01), judge_number(two_each(0.2), 0.01)
    assert (alike.verdict, alike.between) == ("lower", True)
    assert unlike.verdict == "open", "the instances of a group differ by more than the groups"


def readings_of(count: int, restart_at: int = -1) -> list[Reading]:
    """Samples of two instances; the second takes half the memory and a tenth of a CPU, and may restart."""
    found = []
    for i in range(count):
        since = i - restart_at if 0 <= restart_at <= i else i
        found.append(
            Reading(
                1000.0 + i,
                [InstanceReading(5.0, 100 * MIB, 0.2 * i, 10.0 * i, 1)],
                [InstanceReading(9.0 if since != i else 6.0, 50 * MIB, 0.1 * since, 5.0 * since, 1)],
                {"p99": (10.0, 12.0)},
            )
        )
    return found


def test_blocks_have_means_of_gauges_and_rates_of_counters() -> None:
    header = Header(["1"], ["2"], 1.0, False, {"p99": "x"})
    found = all_blocks(header, readings_of(5 * READINGS_PER_BLOCK), 0)
    assert [len(b.times) for b in found.values()] == [5] * 4
    assert found[MEMORY].log_ratios == pytest.approx([math.log(0.5)] * 5)
    assert found[CPU].control == pytest.approx([0.2] * 5)
    assert found[CPU].treatment == pytest.approx([0.1] * 5)
    assert found[FAULTS].log_ratios == pytest.approx([math.log(0.5)] * 5)
    assert found["p99"].log_ratios == pytest.approx([math.log(1.2)] * 5)


def test_blocks_without_a_ratio_are_counted_and_named() -> None:
    """Control has no error at all: no ratio says how many more the treatment has."""
    header = Header(["1"], ["2"], 1.0, False, {"errors": "x", "none": "x"})
    readings = readings_of(3 * READINGS_PER_BLOCK)
    for reading in readings:
        reading.numbers = {"errors": (0.0, 7.0), "none": (0.0, 0.0)}
    found = judge_readings(header, readings, 0, 0.01)
    assert (found.blocks["errors"].times, found.blocks["errors"].without_ratio) == ([], 3)
    errors, none = found.results["errors"], found.results["none"]
    assert (errors.control, errors.treatment, errors.ratio) == (0, 7, None)
    assert (none.control, none.treatment, none.ratio) == (0, 0, None), "0, which is known, is not n/a"
    [line] = [line for line in notes(found) if "no ratio" in line]
    assert line.startswith("errors: 3 of 3 blocks have no ratio")
    assert line.endswith("control 0, treatment 7.")


def test_a_single_block_without_a_ratio_is_named_in_the_singular() -> None:
    header = Header(["1"], ["2"], 1.0, False, {"errors": "x"})
    readings = readings_of(READINGS_PER_BLOCK)
    for reading in readings:
        reading.numbers = {"errors": (0.0, 7.0)}
    [line] = [line for line in notes(judge_readings(header, readings, 0, 0.01)) if "no ratio" in line]
    assert line.startswith("errors: 1 of 1 block has no ratio")


def test_before_the_first_look_it_says_when_that_is() -> None:
    found = judge_readings(HEADER, readings_of(1), 0.0, 0.01)
    assert (
        canary_sentence(found)
        == "No claim yet: the first look comes after 15 blocks of 12 s = 3 min, without warm-ups."
    )
    assert extent(found) == "1 reading; 0 blocks so far."
    assert extent(judge_readings(HEADER, readings_of(13), 0.0, 0.01)) == "13 readings in 12.00 s; 1 block so far."
    found = judge_readings(HEADER, readings_of(12 * FIRST_LOOK + 1), 0.0, 0.01)
    assert "first look" not in canary_sentence(found)
    assert extent(found) == (
        "181 readings in 3.0 min; intervals from 15 blocks of 12 s, valid at every look together (95%)."
    )


def test_large_values_are_shown_without_an_exponent() -> None:
    assert show_value("faults_per_s", 6320.4) == "6320/s"
    assert show_value("cpu_share", 12.5) == "1250%"
    assert show_value("requests", 1234567.0) == "1234567"
    assert show_value("p99_ms", 3.14159) == "3.142"


def test_notes_tell_of_ages_and_of_values_of_groups() -> None:
    groups = Header(["1", "2"], ["3", "4"], 1.0, False, {"p99": "x"})
    readings = [Reading(s.time, s.control * 2, s.treatment * 2, s.numbers) for s in readings_of(2 * READINGS_PER_BLOCK)]
    lines = notes(judge_readings(groups, readings, 0, 0.01))
    assert [line for line in lines if line.startswith("Each group has one value of p99.")]
    assert not [line for line in lines if "longer than" in line], "4 s are less than the canary has run"
    for reading in readings:
        reading.control = [InstanceReading(-7200.0, 100 * MIB, 1.0, 1.0, 1)] * 2
    lines = notes(judge_readings(groups, readings, 0, 0.01))
    assert [line for line in lines if line.startswith("The instances of control have run 2.0 h longer than")], lines
    assert not [line for line in notes(judge_readings(HEADER, readings_of(5), 0, 0.01)) if "Each group" in line]


def test_a_restart_makes_no_jump_and_its_warm_up_does_not_count() -> None:
    readings = readings_of(6 * READINGS_PER_BLOCK, restart_at=30)
    assert restarts(readings) == (0, 1)
    found = all_blocks(HEADER, readings, 0)
    assert found[CPU].treatment == pytest.approx([0.1] * 6)
    warm = all_blocks(HEADER, readings, 2 * READINGS_PER_BLOCK)
    assert len(warm[MEMORY].times) < 4


def test_an_instance_that_is_down_is_left_out() -> None:
    readings = readings_of(3 * READINGS_PER_BLOCK)
    for reading in readings[READINGS_PER_BLOCK : 2 * READINGS_PER_BLOCK]:
        reading.treatment = [None]
    assert len(all_blocks(HEADER, readings, 0)[MEMORY].times) == 2


@given(cut=st.integers(1, 400))
def test_a_file_that_was_cut_off_anywhere_goes_on(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("canary") / "canary.jsonl"
    readings = readings_of(6)
    with ReadingFile(path, HEADER) as file:
        for reading in readings[:4]:
            file.add(reading)
    whole = path.read_bytes()
    head = whole.index(b"\n") + 1
    path.write_bytes(whole[: max(head, len(whole) - cut)])
    kept = path.read_bytes()[head:].count(b"\n")
    with ReadingFile(path, HEADER) as file:
        assert len(file.before) in (kept, kept + 1), "a line without its end may be whole"
        before = len(file.before)
        for reading in readings[4:]:
            file.add(reading)
    header, found = load_readings(path)
    assert header == HEADER
    assert len(found) == before + 2
    assert found[-2:] == readings[4:]


@pytest.mark.parametrize("size", [1, 11, 40])
def test_a_file_whose_header_was_cut_off_begins_again(size: int, tmp_path: Path) -> None:
    path = tmp_path / "canary.jsonl"
    with ReadingFile(path, HEADER):
        pass
    path.write_bytes(path.read_bytes()[:size])
    with ReadingFile(path, HEADER) as file:
        file.add(readings_of(1)[0])
    assert load_readings(path) == (HEADER, readings_of(1))
    path.write_text("a line of the user")
    with pytest.raises(HeapwrightError, match="is not a file of"):
        ReadingFile(path, HEADER)


def test_a_full_disk_is_one_message(tmp_path: Path) -> None:
    path = tmp_path / "canary.jsonl"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill() -> None:
        with ReadingFile(path, HEADER) as file:
            file.add(readings_of(1)[0])
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, limits[1]))
            file.add(readings_of(2)[1])

    try:
        with pytest.raises(HeapwrightError, match="earlier readings are intact"):
            fill()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert load_readings(path) == (HEADER, readings_of(1))


def test_a_canary_that_goes_on_reads_memory_as_before(tmp_path: Path) -> None:
    path = tmp_path / "canary.jsonl"
    with ReadingFile(path, HEADER):
        pass
    header = Header(HEADER.control, HEADER.treatment, HEADER.every_s, True)
    with ReadingFile(path, header):
        assert not header.proportional
    proportional = tmp_path / "proportional.jsonl"
    with ReadingFile(proportional, Header(["1"], ["2"], 1.0, True)):
        pass
    with pytest.raises(HeapwrightError, match="proportional memory, which may not be read now"):
        ReadingFile(proportional, Header(["1"], ["2"], 1.0, False))


def test_a_file_of_another_canary_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "canary.jsonl"
    with ReadingFile(path, HEADER):
        pass
    with pytest.raises(HeapwrightError, match="readings of another canary"):
        ReadingFile(path, Header(["1"], ["3"], 1.0, False))
    path.write_text("hello\n")
    with pytest.raises(HeapwrightError, match="is not a file of"):
        load_readings(path)


def test_a_number_comes_from_the_output_of_a_command() -> None:
    name, _, source = of_command("errors=echo {group} | wc -c")
    assert (name, source()) == ("errors", (8.0, 10.0))
    assert of_command("x=echo no {group}")[2]() == (None, None)
    assert of_command("x=false {group}")[2]() == (None, None)
    with pytest.raises(UsageError, match=r"no \{group\}"):
        of_command("x=echo 1")
    with pytest.raises(UsageError, match="is not NAME=COMMAND"):
        of_command("x")


def test_the_first_failure_of_a_source_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    sources = [
        of_command("errors=echo 'no log' >&2; exit 3 # {group}")[2],
        of_command("queue=echo hi # {group}")[2],
        of_prometheus("http://127.0.0.1:1/m", "http://127.0.0.1:1/m", "foo_total"),
    ]
    for source in sources * 2:
        assert source() == (None, None)
    assert capsys.readouterr().err.splitlines() == [
        f"heapwright: warning: {name}: no number of the control: {why}. Further failures of {name} are not shown"
        for name, why in (
            ("errors", "exit status 3: no log"),
            ("queue", "the command printed 'hi'"),
            ("foo_total", "http://127.0.0.1:1/m cannot be read: Connection refused"),
        )
    ]


def test_the_end_of_a_groups_last_instance_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        gone = str(process.pid)
        process.kill()
    header = Header([str(os.getpid())], [gone], 0.01, False)
    with ReadingFile(tmp_path / "canary.jsonl", header) as file:
        take_readings(file, header, {}, lambda readings: len(readings) == 3)
    assert capsys.readouterr().err == (
        "heapwright: warning: all instances of the treatment have ended, or their memory may not be read"
        f" ({gone}): without them there is nothing to compare\n"
    )


def test_a_command_of_number_cannot_end_the_canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_command("x=printf '\\377' # {group}")[2]() == (None, None)
    monkeypatch.setattr("heapwright.canary.sources.TIMEOUT_S", 0.3)
    mark = tmp_path / "late"
    assert of_command(f"x=(sleep 1; touch {mark}) | cat # {{group}}")[2]() == (None, None)
    time.sleep(1.2)
    assert not mark.exists(), "a command that takes too long ends with all its processes"


METRICS = """# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{path="/a b",code="200"} 10
requests_total{path="/",code="500"} 5 1700000000
requests_total_more 7
queue NaN
queue 2.5
"""


def test_a_series_is_summed_over_its_labels() -> None:
    assert sum_of_series(METRICS, "requests_total") == 15
    assert sum_of_series(METRICS, "queue") == 2.5
    assert sum_of_series(METRICS, "none") is None

    class Endpoint(BaseHTTPRequestHandler):
        announced = ""

        def do_GET(self) -> None:
            self.send_response(200)
            if self.announced:
                self.send_header("Content-Length", self.announced)
            self.end_headers()
            self.wfile.write(METRICS.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Endpoint) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        assert of_prometheus(url, "http://127.0.0.1:1/", "queue")() == (2.5, None)
        Endpoint.announced = "9999"
        assert of_prometheus(url, url, "queue")() == (None, None), "an answer that breaks off"
        Endpoint.announced = ""
        rate = of_prometheus(url, url, "requests_total")
        assert rate() == (None, None), "a counter needs two readings"
        server.shutdown()
