"""Samples of traces: `heapwright-trace sample`, and what becomes of a sample."""

from __future__ import annotations

import random
import re
import statistics
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heapwright.cli.main import main
from heapwright.trace.info import SampleEstimates, read_info
from heapwright.trace.model import WindowsModel, load_model
from heapwright.trace.record import recover
from heapwright.trace.replay import make_ready
from tests import needs
from tests.trace.test_pack import parse, texts, trace

Lines = list[list[str]]


def drawn(path: Path, rate: int, seed: int = 1) -> Path:
    """A sample of a trace, beside it."""
    sample = path.with_suffix(f".{rate}-{seed}.hwt")
    trace("sample", path, "-o", sample, "-n", str(rate), "--seed", str(seed))
    return sample


def lines_of(path: Path) -> Lines:
    """The events of a trace as words."""
    return [line.split() for line in trace("dump", path).stdout.splitlines()]


def program(seed: int, ticks: int = 20000, threads: int = 3) -> str:
    """A trace of threads that allocate, resize and free blocks of all sizes."""
    rng = random.Random(seed)
    lines: list[str] = []
    live: list[int] = []
    made = 0
    for tick in range(ticks):
        head = f"{tick * 1024} {rng.randrange(threads)}"
        size = int(2 ** rng.uniform(3, 14 if rng.random() < 0.99 else 18))
        if live and rng.random() < 0.1:
            lines.append(f"{head} realloc {rng.choice(live)} {size}")
        else:
            lines.append(f"{head} malloc {made} {size}")
            live.append(made)
            made += 1
        while live and rng.random() < 0.45:
            lines.append(f"{head} free {live.pop(rng.randrange(len(live)))}")
    return "".join(f"{line}\n" for line in lines)


def ticks_by_thread(lines: Lines) -> Counter[str]:
    """How many ticks each thread makes: by its events, or by the counts of a sample."""
    counted: Counter[str] = Counter()
    for _, thread, kind, *rest in lines:
        if kind in ("malloc", "calloc", "aligned", "realloc"):
            counted[thread] += 1
        elif kind == "ticks":
            counted[thread] += int(rest[0])
    return counted


def test_a_sample_of_all_objects_is_the_trace_with_its_ticks(tmp_path: Path) -> None:
    whole = parse(tmp_path, program(1))
    sample = lines_of(drawn(whole, 1))
    assert [line for line in sample if line[2] != "ticks"] == lines_of(whole)


@pytest.mark.parametrize("rate", [2, 16, 300])
def test_a_sample_holds_whole_objects_and_the_ticks_of_every_thread(rate: int, tmp_path: Path) -> None:
    whole = parse(tmp_path, program(2))
    sample = drawn(whole, rate)
    lines = lines_of(sample)
    counted = [line for line in lines if line[2] == "ticks"]
    assert ticks_by_thread(counted) == ticks_by_thread(lines_of(whole))
    kinds = Counter(line[2] for line in lines)
    births = kinds["malloc"]
    expected = sum(1 - (1 - 1 / rate) ** (1 + int(line[4]) // 1024) for line in lines_of(whole) if line[2] == "malloc")
    assert abs(births - expected) < 5 * expected**0.5 + 1
    thinner = lines_of(drawn(sample, rate * 4))
    assert ticks_by_thread([line for line in thinner if line[2] == "ticks"]) == ticks_by_thread(counted)


@pytest.mark.parametrize("step", [64, 1 << 20])
def test_a_sample_of_a_sample_has_objects_that_grow_as_often_as_a_sample(step: int, tmp_path: Path) -> None:
    """Objects that grow from 24 bytes to 8 KiB, in two steps. The first sample has most of them by the later size."""
    count, rate, thinner = 20_000, 4, 32
    lines = []
    for number in range(count):
        sizes = [24, min(step, 8192), 8192]
        lines += [f"{number * 1024} 0 malloc {number} 24"]
        lines += [f"{number * 1024} 0 realloc {number} {size}" for size in sizes[1:]]
        lines += [f"{number * 1024} 0 free {number}"]
    sample = drawn(parse(tmp_path, "".join(f"{line}\n" for line in lines)), rate)
    again = lines_of(drawn(sample, thinner, 2))
    expected = count * (1 - (1 - 1 / thinner) ** 9)
    assert abs(sum(line[2] == "free" for line in again) - expected) < 5 * expected**0.5
    small = sum(line[2] == "malloc" and line[4] == "24" for line in again)
    assert abs(small - count / thinner) < 5 * (count / thinner) ** 0.5


def test_the_first_trace_of_a_recording_is_the_busiest_at_any_rates(tmp_path: Path) -> None:
    """The sample of the process that allocates most may have fewer events than another one of a lower rate."""
    folder = tmp_path / "raw"
    folder.mkdir()
    for pid, (ticks, rate) in enumerate([(5000, 2), (20000, 256)]):
        sample = drawn(parse(tmp_path, program(pid, ticks)), rate)
        sample.replace(folder / f"{pid}-0.raw")
    first, second = recover(folder, tmp_path / "first.hwt")
    assert (first.packed.sample, second.packed.sample) == (256, 2)
    assert first.packed.events < second.packed.events
    assert (first.packed.requests, second.packed.requests) == (20000, 5000)


def test_a_rate_below_that_of_the_sample_is_refused(tmp_path: Path) -> None:
    sample = drawn(parse(tmp_path, program(3, 200)), 8)
    done = trace("sample", sample, "-o", tmp_path / "x", "-n", "4", "--seed", "1", status=2)
    assert "must be at least 8" in done.stderr
    assert not (tmp_path / "x").exists()
    trace("sample", sample, "-o", tmp_path / "x", "-n", "eight", "--seed", "1", status=2)


def completed(sample: Path, seed: int = 0) -> Path:
    """The complete trace that a sample stands for, beside it."""
    whole = sample.with_suffix(f".complete{seed}.hwt")
    trace("complete", sample, whole, str(seed))
    return whole


def live_at(lines: Lines, times: list[int]) -> list[int]:
    """Live bytes at some moments, in ns."""
    sizes: dict[str, int] = {}
    found: list[int] = []
    for time, _, kind, *rest in lines:
        while len(found) < len(times) and int(time) > times[len(found)]:
            found.append(sum(sizes.values()))
        if kind in ("malloc", "calloc", "aligned", "realloc"):
            sizes[rest[0]] = int(rest[1])
        elif kind in ("free", "free_sized"):
            del sizes[rest[0]]
    return found + [sum(sizes.values())] * (len(times) - len(found))


@given(text=texts())
@settings(max_examples=needs.examples(60))
def test_a_sample_of_all_objects_is_completed_to_the_same_trace(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # `texts` has ticks, which a complete trace has not, and times of threads that go back.
    lines = [line for line in text.splitlines() if " ticks " not in line]
    whole = parse(tmp_path_factory.mktemp("sample"), "".join(f"{line}\n" for line in lines))
    trace("pack", whole, whole.with_suffix(".packed"))  # rounds times to the usual resolution
    assert lines_of(completed(drawn(whole, 1))) == lines_of(whole.with_suffix(".packed"))


@given(text=texts(), rate=st.integers(2, 100))
@settings(max_examples=needs.repeats(60, 6))
@pytest.mark.long
def test_any_sample_is_completed_to_a_possible_trace(
    text: str, rate: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # A complete trace has an event for each of the ticks that `texts` draws, up to billions.
    text = re.sub(r" ticks (\d+)", lambda found: f" ticks {int(found[1]) % 100_000}", text)
    whole = parse(tmp_path_factory.mktemp("sample"), text)
    trace("info", completed(drawn(whole, rate)))


def test_a_completed_sample_has_the_ticks_of_every_thread(tmp_path: Path) -> None:
    text = "".join(line for line in program(5, 60000).splitlines(keepends=True) if "realloc" not in line)
    whole = parse(tmp_path, text)
    expected = ticks_by_thread(lines_of(whole))
    for rate in (4, 64):
        found = ticks_by_thread(lines_of(completed(drawn(whole, rate))))
        for thread, ticks in expected.items():
            assert abs(found[thread] - ticks) <= rate


PARTS = [24 << part for part in range(6)]  # sizes of a message's parts


def freeing(messages: int, survives: Callable[[int], bool]) -> str:
    """A program that allocates messages of some parts, and then frees all but some."""
    lines = []
    for message in range(messages):
        lines += [f"{message * 1024} 0 malloc {len(PARTS) * message + i} {part}" for i, part in enumerate(PARTS)]
    for message in range(messages):
        if not survives(message):
            at = (messages + message) * 1024
            lines += [f"{at} 0 free {len(PARTS) * message + i}" for i in range(len(PARTS))]
    return "".join(f"{line}\n" for line in lines)


def freed_windows(path: Path, window: int = 256) -> float:
    """The share of runs of consecutive allocations of a size in which no object survives: about that of free pages."""
    lines = lines_of(path)
    freed = {line[3] for line in lines if line[2] == "free"}
    found = []
    for part in PARTS:
        survives = [line[3] not in freed for line in lines if line[2] == "malloc" and line[4] == str(part)]
        found += [not any(survives[i : i + window]) for i in range(0, len(survives) - window + 1, window)]
    return sum(found) / len(found)


@pytest.mark.parametrize("rate", [16, 64, 256])
def test_objects_that_survive_between_others_do_so_in_a_completed_sample(rate: int, tmp_path: Path) -> None:
    """Else a sample would promise free pages that the program does not have."""
    whole = parse(tmp_path, freeing(30_000, lambda i: i % 8 == 0))
    assert freed_windows(whole) == 0
    assert freed_windows(completed(drawn(whole, rate))) < 0.25


def test_objects_that_are_freed_together_are_so_in_a_completed_sample(tmp_path: Path) -> None:
    whole = parse(tmp_path, freeing(30_000, lambda i: i // 5000 % 2 == 0))
    assert 0.4 < freed_windows(whole) < 0.55
    assert 0.3 < freed_windows(completed(drawn(whole, 64))) < 0.55


def test_sized_frees_of_a_completed_sample_name_the_size_of_the_block(tmp_path: Path) -> None:
    """Some mallocs trust the size."""
    rng = random.Random(3)
    sizes = [rng.choice((0, 8, 12, *range(64, 76))) for _ in range(20_000)]
    text = "".join(f"{i * 1024} 0 malloc {i} {size}\n" for i, size in enumerate(sizes))
    text += "".join(f"{(20_000 + i) * 1024} 0 free_sized {i} {size}\n" for i, size in enumerate(sizes))
    allocated: dict[str, str] = {}
    for _, _, kind, *rest in lines_of(completed(drawn(parse(tmp_path, text), 64))):
        if kind == "malloc":
            allocated[rest[0]] = rest[1]
        elif kind == "free_sized":
            assert allocated[rest[0]] == rest[1]
    assert len(set(allocated.values())) > 5


def test_buffers_that_grow_do_not_become_those_that_stay(tmp_path: Path) -> None:
    """Each time an entry that stays, and a buffer of the same size that grows and is freed later."""
    lines = []
    for i in range(20_000):
        lines += [f"{i * 1024} 0 malloc {2 * i} 64", f"{i * 1024} 0 malloc {2 * i + 1} 64"]
        if i >= 200:
            lines.append(f"{i * 1024} 0 realloc {2 * (i - 200) + 1} 900")
        if i >= 5000:
            lines.append(f"{i * 1024} 0 free {2 * (i - 5000) + 1}")
    whole = parse(tmp_path, "".join(f"{line}\n" for line in lines))
    times = [i * 1024 for i in (10_000, 15_000, 19_999)]
    truth = live_at(lines_of(whole), times)
    runs = [live_at(lines_of(completed(drawn(whole, 16, seed), seed)), times) for seed in range(4)]
    for at, expected in enumerate(truth):
        assert abs(statistics.mean(run[at] for run in runs) - expected) < 0.1 * expected


def test_live_bytes_agree_within_standard_errors(tmp_path: Path) -> None:
    rate, seeds = 16, 12
    whole = parse(tmp_path, program(7))
    lines = lines_of(whole)
    times = [20000 * 1024 * part // 10 for part in range(2, 11, 2)]
    truth = live_at(lines, times)
    runs = [live_at(lines_of(completed(drawn(whole, rate, seed), seed)), times) for seed in range(seeds)]
    for at, expected in enumerate(truth):
        found = [run[at] for run in runs]
        error = statistics.stdev(found) / seeds**0.5
        assert abs(statistics.mean(found) - expected) < 4 * error
        assert statistics.stdev(found) < 0.2 * expected


def replacing(blocks: int, times: int) -> str:
    """A program of steady memory: it replaces one of its blocks again and again."""
    rng = random.Random(5)
    lines = [f"{i * 1024} 0 malloc {i} {600 + i % 700}" for i in range(blocks)]
    live = list(range(blocks))
    for made in range(blocks, blocks + times):
        at = rng.randrange(blocks)
        lines += [f"{made * 1024} 0 malloc {made} {600 + made % 700}", f"{made * 1024} 0 free {live[at]}"]
        live[at] = made
    return "".join(f"{line}\n" for line in lines)


def rising(blocks: int) -> str:
    """A program with one clear peak."""
    lines = [f"{i * 1024} 0 malloc {i} {600 + i % 700}" for i in range(blocks)]
    lines += [f"{(blocks + i) * 1024} 0 free {i}" for i in range(blocks)]
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize("text", [replacing(3000, 40000), rising(10000)], ids=["steady", "peak"])
def test_the_peak_of_a_sample_is_not_the_maximum_of_its_noise(text: str, tmp_path: Path) -> None:
    """It is the one peak in the output, within the error that the output states, and the bound follows it."""
    whole = parse(tmp_path, text)
    truth, seeds, misses = read_info(whole)[0], 12, []
    for seed in range(seeds):
        found = read_info(drawn(whole, 64, seed))[0]
        assert found.sample is not None
        assert found.peak_live_bytes == found.sample.peak_live_bytes
        assert found.peak_live_bytes < found.lower_bound.peak_bytes < 1.03 * found.peak_live_bytes
        assert found.peak_live_bytes / found.peak_live_objects == pytest.approx(950, rel=0.3)
        misses.append((found.peak_live_bytes - truth.peak_live_bytes) / found.sample.peak_live_error)
    assert abs(statistics.mean(misses)) < 3 / seeds**0.5
    assert max(map(abs, misses)) < 3


def test_fit_states_the_errors_that_info_states(tmp_path: Path) -> None:
    """Regression: `fit` divided the error by an estimate of the peak below mean live bytes."""
    sample = drawn(parse(tmp_path, replacing(3000, 40000)), 64, 7)
    assert main(["fit", str(sample), "-o", str(tmp_path / "model.json")]) == 0
    fitted, info = load_model(tmp_path / "model.json").sample, read_info(sample)[0].sample
    assert isinstance(fitted, SampleEstimates)
    assert fitted == info


def test_a_burst_stays_a_burst_and_steady_churn_stays_steady(tmp_path: Path) -> None:
    lines = [f"{i * 1024} 0 malloc {i} 100" for i in range(20000)]
    lines += [f"{20000 * 1024} 0 free {i}" for i in range(20000)]
    churn = ["".join(f"{(20001 + i) * 1024} 0 malloc {20000 + i} 100\n" for i in range(20000))]
    for i in range(20000, 40000):
        churn.append(f"{(20001 + i) * 1024} 0 malloc {20000 + i} 100\n{(20001 + i) * 1024} 0 free {i}\n")
    whole = parse(tmp_path, "".join(f"{line}\n" for line in lines) + "".join(churn))
    found = lines_of(completed(drawn(whole, 64)))
    before, after, middle, later = live_at(found, [19900 * 1024, 20200 * 1024, 45000 * 1024, 58000 * 1024])
    assert 1800000 < before < 2200000
    assert after < 60000
    assert 1600000 < middle < 2400000
    assert 1600000 < later < 2400000
    frees = [int(line[0]) // 1024 for line in found if line[2] == "free" and int(line[0]) > 41000 * 1024]
    by_part = Counter((time - 41000) // 2000 for time in frees if time < 59000)
    assert min(by_part.values()) > 1000
    assert max(by_part.values()) < 4000


def test_info_fit_replay_and_synth_say_that_a_trace_is_a_sample(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = drawn(parse(tmp_path, program(11)), 64)
    info, whole = read_info(sample)
    assert info.sample is not None
    assert (info.sample.rate, whole["bytes_per_event"]) == (64, None)
    assert info.allocations > 10 * info.sample.objects
    assert main(["info", str(sample)]) == 0
    assert "1 object in 64" in capsys.readouterr().out
    model = tmp_path / "model.json"
    assert main(["fit", str(sample), "-o", str(model)]) == 0
    assert "uncertain" in capsys.readouterr().err
    fitted = load_model(model)
    assert isinstance(fitted, WindowsModel)
    assert isinstance(fitted.sample, SampleEstimates)
    assert fitted.sample.peak_share > 0.03
    assert all(isinstance(c.count_error, int) for c in fitted.classes)
    assert main(["synth", str(model), "-o", str(tmp_path / "synthetic.hwt")]) == 0
    assert main(["synth", str(sample), "-o", str(tmp_path / "complete.hwt")]) == 0
    assert lines_of(tmp_path / "complete.hwt") == lines_of(completed(sample))
    assert main(["synth", str(sample), "--scale", "2"]) == 2
    with make_ready(sample) as ready:
        assert ready.operations.sample == 64
        assert ready.operations.peak_live_bytes == read_info(completed(sample))[0].peak_live_bytes


def test_a_sample_has_its_share_of_each_size(tmp_path: Path) -> None:
    """Up to one object for each thread: each object by itself would be chosen or not."""
    rng, rate = random.Random(5), 16
    sizes = [rng.choice((16, 40, 200, 1000)) for _ in range(20_000)]
    whole = parse(tmp_path, "".join(f"{i * 1024} 0 malloc {i} {size}\n" for i, size in enumerate(sizes)))
    for factor in (1, 4):
        sample = drawn(drawn(whole, rate), rate * factor) if factor > 1 else drawn(whole, rate)
        found = Counter(int(line[4]) for line in lines_of(sample) if line[2] == "malloc")
        for size, count in Counter(sizes).items():
            assert abs(found[size] - count / (rate * factor)) <= 2
