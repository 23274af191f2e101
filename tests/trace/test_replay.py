"""`heapwright replay`, as it is installed, on traces made up and recorded."""

from __future__ import annotations

import json
import os
import random
import resource
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heapwright.allocators.registry import find_allocators, get_allocator
from heapwright.errors import HeapwrightError, UsageError
from heapwright.measure.meter import MeterOptions
from heapwright.trace.replay import environment, make_ready, replay_once, workload
from heapwright.trace.replay_report import Reading, Report, play
from tests import needs
from tests.command_server import SERVER, at_start
from tests.processes import PACE
from tests.trace.test_pack import parse

HEAPWRIGHT = Path(sys.executable).parent / "heapwright"
MIB = 1 << 20
_SECONDS = 120 * PACE


def heapwright(
    *words: str | Path, status: int = 0, seconds: float = _SECONDS, **env: str
) -> subprocess.CompletedProcess[str]:
    """Runs the command, at most so many seconds; in a fork if the variables allow it."""
    line, whole = [str(HEAPWRIGHT), *map(str, words)], {**os.environ, **env}
    if at_start(env):
        done = subprocess.run(line, capture_output=True, text=True, check=False, env=whole, timeout=seconds)
    else:
        code, out, err = SERVER.run(line, Path.cwd(), whole, timeout=seconds)
        done = subprocess.CompletedProcess(line, code, out.decode(), err.decode())
    assert done.returncode == status, done.stderr
    return done


def replay(trace: Path, *words: str) -> dict[str, Any]:
    """A replay's JSON."""
    found: dict[str, Any] = json.loads(heapwright("replay", trace, "--json", "-", *words).stdout)
    return found


def random_text(seed: int, count: int, threads: int) -> str:
    """Threads that allocate, resize and free what any of them made; they start and end on the way."""
    rng = random.Random(seed)
    lines: list[str] = []
    live: list[int] = []
    made, gone, known = 0, 0, 1
    for time in range(0, count * 100, 100):
        if threads > 1 and rng.random() < 0.01:
            known += 1
            lines.append(f"{time} {known - 1} thread_start")
            if known - gone > threads:
                gone += 1
                lines.append(f"{time} {gone} thread_end")
        thread = rng.choice([0, *range(gone + 1, known)])
        kind = rng.choice(
            ("malloc", "malloc", "calloc", "aligned", "realloc", "free", "free", "free_sized", "usable_size")
        )
        size = rng.choice((rng.randrange(300), rng.randrange(300), rng.randrange(20000), rng.randrange(400000)))
        if kind in ("malloc", "calloc", "aligned"):
            lines.append(
                f"{time} {thread} {kind} {made} {size}" + (f" {8 << rng.randrange(10)}" if kind == "aligned" else "")
            )
            live.append(made)
            made += 1
        elif live:
            at = rng.randrange(len(live))
            lines.append(
                f"{time} {thread} {kind} {live[at]}" + (f" {size}" if kind in ("realloc", "free_sized") else "")
            )
            if kind.startswith("free"):
                live[at] = live[-1]
                live.pop()
    return "\n".join(lines) + "\n"


def test_a_replay_has_every_documented_figure(tmp_path: Path) -> None:
    trace = parse(tmp_path, random_text(1, 3000, 1))
    found = replay(trace, "-n", "2")
    assert len(found["runs"]) == 2
    assert found["events"] == found["checks"]["events_replayed"] > 2000
    assert found["events_per_s"] > 0
    assert found["peak_live_bytes"] > 1000
    assert found["own_rss_bytes"] > 0
    assert found["own_cpu_s"] >= 0
    assert found["summary"]["peak_rss_bytes"]["median"] > found["own_rss_bytes"]
    assert found["recorded_mean_rss_bytes"] > 0
    assert found["schema_version"] == 1


@pytest.mark.parametrize(
    "name", [n for n in ("glibc", "exgen", "jemalloc", "tcmalloc", "mimalloc2") if n in find_allocators()]
)
@pytest.mark.few(2)
def test_threads_under_every_allocator(name: str, tmp_path: Path) -> None:
    trace = parse(tmp_path, random_text(2, 6000, 4))
    for touch in ("page", "full"):
        found = replay(trace, "--allocator", name, "--touch", touch)
        assert found["checks"]["events_replayed"] == found["events"]
        assert found["threads"] > 10


def test_a_replay_takes_the_memory_of_the_live_blocks(tmp_path: Path) -> None:
    trace = parse(tmp_path, "0 0 malloc 0 67108864\n1000000 0 free 0\n2000000 0 malloc 1 8\n")
    touched = replay(trace)["summary"]["peak_rss_bytes"]["median"]
    untouched = replay(trace, "--touch", "none")["summary"]["peak_rss_bytes"]["median"]
    assert 64 * MIB < touched < 72 * MIB
    assert untouched < 8 * MIB


def test_a_replay_touches_only_the_part_of_a_block_that_was_used(tmp_path: Path) -> None:
    known = parse(
        tmp_path, f"0 0 malloc 0 67108864\n0 0 calloc 1 {64 * MIB}\n9 0 free 0 {4 * MIB}\n9 0 touched 1 {2 * MIB}\n"
    )
    assert 6 * MIB < replay(known)["summary"]["peak_rss_bytes"]["median"] < 12 * MIB


def test_mean_memory_is_over_recorded_time(tmp_path: Path) -> None:
    """64 MiB for a tenth of the time; the replay itself takes next to none."""
    trace = parse(tmp_path, f"0 0 malloc 0 {64 * MIB}\n100000000 0 free 0\n1000000000 0 malloc 1 8\n")
    mean = replay(trace)["recorded_mean_rss_bytes"]
    assert 4 * MIB < mean < 12 * MIB  # touching takes tens of milliseconds, under the recorder and without it


def test_the_reason_of_a_failed_replay_is_one_line(tmp_path: Path) -> None:
    report = tmp_path / "report"
    for script, why in (("echo a; echo heapwright-replay: b >&2; exit 1", "b"), ("kill -9 $$", "killed by SIGKILL")):
        with pytest.raises(HeapwrightError) as error:
            play(["sh", "-c", script], report)
        assert error.value.message == why


def test_a_reference_that_could_not_be_recorded_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk: the times of its calls would lack the recorder's."""
    with make_ready(parse(tmp_path, "0 0 malloc 0 64\n9 0 free 0\n")) as ready:
        monkeypatch.setattr("heapwright.trace.record.recording_environment", lambda *_: dict(os.environ))
        with pytest.raises(HeapwrightError, match="could not be recorded"):
            _ = ready.reference


def test_proportional_memory_follows_resident_memory(tmp_path: Path) -> None:
    """Twice the heap is as many bytes more of either; and the replaying process shares none of its heap."""
    found = []
    for size in (32 * MIB, 64 * MIB):
        trace = parse(tmp_path, f"0 0 malloc 0 {size}\n900000000 0 free 0\n1000000000 0 malloc 1 8\n")
        with make_ready(trace) as ready:
            replayed = replay_once(ready, MeterOptions(backend="poll"), os.environ)
        assert replayed.report is not None
        metrics = replayed.metrics()
        peak, mean = metrics["peak_pss_bytes"], metrics["mean_pss_bytes"]
        assert peak == metrics["peak_rss_bytes"] == (replayed.run.metrics["peak_rss_bytes"] or 0) - own(replayed.report)
        assert mean == metrics["mean_rss_bytes"] == replayed.mean_rss_bytes - own(replayed.report)
        found.append((peak, mean))
    (peak, mean), (larger_peak, larger_mean) = found
    assert larger_peak - peak == pytest.approx(32 * MIB, abs=MIB)
    assert larger_mean - mean == pytest.approx(0.9 * 32 * MIB, rel=0.2)


def own(report: Report) -> int:
    """Memory of the replayer itself, in bytes."""
    return report.own_rss_bytes


def test_a_faster_allocator_shifts_the_mean(tmp_path: Path) -> None:
    """Half of 100 ms is spent on calls. If they take a tenth of the time, later readings weigh more."""

    def readings(first: int, second: int, *resident: int) -> list[Reading]:
        """Two stretches of 50 recorded milliseconds each, in which calls take so many."""
        ends = [0, first * 10**6, (first + second) * 10**6]
        return [
            Reading(50 * 10**6 * (n > 0), rss, end, end)
            for n, (rss, end) in enumerate(zip(resident, ends, strict=True))
        ]

    with make_ready(parse(tmp_path, "0 0 malloc 0 100\n9 0 free 0\n")) as ready:
        ready.__dict__["reference"] = readings(50, 0, 0, 0, 0)
        assert ready.mean_rss(Report(2, 2, 1, 0, readings(50, 0, 0, 100, 200))) == 150
        assert ready.p95_rss(Report(2, 2, 1, 0, readings(50, 0, 0, 100, 200))) == 200
        faster = ready.mean_rss(Report(2, 2, 1, 0, readings(5, 0, 0, 100, 200)))
        assert faster == pytest.approx((5 * 100 + 50 * 200) / 55)


def test_readings_are_in_the_order_of_the_trace(tmp_path: Path) -> None:
    with make_ready(parse(tmp_path, random_text(6, 6000, 4))) as ready:
        replayed = replay_once(ready, MeterOptions(), environment(get_allocator("glibc"), {}, os.environ))
        assert replayed.report is not None
        readings = replayed.report.readings
        assert 400 < len(readings) <= 502
        assert len(ready.reference) == len(readings)
        assert sum(r.recorded_ns for r in readings) == round(ready.operations.recorded_s * 1e9)
        for ticks in ([r.wall_ns for r in readings], [r.cpu_ns for r in readings]):
            assert ticks == sorted(ticks)
        low, high = min(r.resident_bytes for r in readings), max(r.resident_bytes for r in readings)
        assert low <= replayed.mean_rss_bytes <= high


def test_a_replay_has_the_libraries_its_program_has(tmp_path: Path) -> None:
    """Or those that an allocator written in C++ brings along would be taken for its memory."""
    (tmp_path / "p.cpp").write_text("#include <new>\nint main() { delete new int; }\n")
    (tmp_path / "p.c").write_text("#include <stdlib.h>\nint main(void) { free(malloc(9)); return 0; }\n")
    found = {}
    for compiler, source in (("g++", "p.cpp"), ("gcc", "p.c")):
        subprocess.run([compiler, "-O0", "-fno-builtin", "-o", tmp_path / "p", tmp_path / source], check=True)
        heapwright("record", "-q", "--force", "-o", tmp_path / "p.hwt", "--", tmp_path / "p")
        with make_ready(tmp_path / "p.hwt") as ready:
            found[source] = ready.libraries
            replayed = replay_once(ready, MeterOptions(), environment(get_allocator("glibc"), {}, os.environ))
            assert replayed.failure == ""
    assert "libstdc++.so.6" in found["p.cpp"]
    assert found["p.c"] == []


def test_settings_reach_the_allocator(tmp_path: Path) -> None:
    lines = [f"{i} 0 malloc {i} 100000" for i in range(50)] + [f"{50 + i} 0 free {i}" for i in range(50)]
    trace = parse(tmp_path, "\n".join(lines) + "\n")
    few = replay(trace, "--set", "mmap_threshold=1073741824", "--set", "trim_threshold=1073741824")
    many = replay(trace, "--set", "mmap_threshold=32768")
    assert many["summary"]["mapping_calls"]["median"] > few["summary"]["mapping_calls"]["median"] + 50
    assert few["settings"] == {"mmap_threshold": "1073741824", "trim_threshold": "1073741824"}


def test_an_allocator_without_memory_ends_it(tmp_path: Path) -> None:
    trace = parse(tmp_path, "0 0 malloc 0 100\n1 0 malloc 1 4611686018427387904\n")
    done = heapwright("replay", trace, "--touch", "none", status=1)
    assert "no memory for a block of 4611686018427387904 bytes" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("nothing.hwt",), "no such trace"),
        (("{trace}", "--set", "mmap_threshold"), "not KEY=VALUE"),
        (("{trace}", "--set", "mmap_treshold=1"), "did you mean 'mmap_threshold'"),
        (("{trace}", "--allocator", "jemallok"), "jemallok"),
        (("{trace}", "--set", "a=1", "--set", "a=2"), "--set a is given twice"),
        (("{trace}", "--touch", "some"), "--touch"),
    ],
)
def test_bad_usage_is_one_line(words: tuple[str, ...], what: str, tmp_path: Path) -> None:
    trace = parse(tmp_path, "0 0 malloc 0 1\n")
    done = heapwright("replay", *(w.replace("{trace}", str(trace)) for w in words), status=2)
    assert what in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_replay_of_an_empty_trace_says_so(tmp_path: Path) -> None:
    done = heapwright("replay", parse(tmp_path, "0 0 thread_end\n"), status=1)
    assert "nothing to replay" in done.stderr


def test_a_trace_cut_short_is_replayed_with_a_warning(tmp_path: Path) -> None:
    whole = parse(tmp_path, random_text(4, 3000, 2))
    whole.write_bytes(whole.read_bytes()[:-9])
    done = heapwright("replay", whole, "--json", "-")
    assert "warning" in done.stderr
    assert json.loads(done.stdout)["checks"]["cut_short"]


def test_a_replay_is_a_workload_like_any_other(tmp_path: Path) -> None:
    from heapwright.measure.meter import MeterOptions
    from heapwright.workload.execute import Executor

    with make_ready(parse(tmp_path, random_text(5, 3000, 3))) as ready:
        executor = Executor(workload(ready), MeterOptions(), tmp_path / "references")
        outcomes = [executor.run(workload(ready).inputs[0], {}) for _ in range(3)]
        assert all(not o.failure for o in outcomes)
        assert len({o.digest for o in outcomes}) == 1
        file = ready.file
    assert not file.exists()


MALLOC, FREE, REALLOC, FILL, ALIGNED, SHARED, SPAWN, CLOCK, NEXT = 0, 2, 4, 6, 7, 10, 12, 14, 15
PLAIN_WORDS = {REALLOC: 1, ALIGNED: 1, FILL: 2}  # behind the operation's own


def operations_files(whole: bytes) -> dict[str, bytes]:
    """Returns damaged operations files; the header has nine numbers (native/replay/ops.h)."""
    front: tuple[int, ...] = struct.unpack_from("<QQQQ", whole, 8)
    threads, lanes, shared, first = front
    words: tuple[int, ...] = struct.unpack(f"<{(len(whole) - first) // 8}Q", whole[first:])

    def patched(at: int, value: int, kind: str = "Q") -> bytes:
        changed = bytearray(whole)
        struct.pack_into(f"<{kind}", changed, at, value)
        return bytes(changed)

    def at(operation: int, thread: int = 0) -> int:
        """The place of the thread's first such operation; for NEXT that of the end of its stream."""
        place: int = whole[72 + 16 * thread] * 4096
        while (of := words[place] & 15) != operation or (of == NEXT and words[place] != NEXT):
            place = (words[place] >> 32) * 4096 if of == NEXT else place + 1 + PLAIN_WORDS.get(of, 0)
        return first + 8 * place

    assert threads > 1
    assert shared > 0
    return {
        "nothing": b"",
        "text": b"x" * 100,
        "zeroes": b"\0" * 100_000,
        "cut in the plan": whole[:60],
        "cut before its chunks": whole[:first],
        "cut in its chunks": whole[: first + 8],
        "2^27 threads": patched(8, 1 << 27),
        "no lanes": patched(16, 0),
        "2^27 shared slots": patched(24, 1 << 27),
        "chunks far away": patched(32, 1 << 60),
        "chunks over the plan": patched(32, 0),
        "2^60 chunks": patched(40, 1 << 60),
        "2^27 readings": patched(64, 1 << 27),
        "a thread of no lane": patched(72 + 4, lanes, "I"),
        "a lane of 2^28 slots": patched(72 + threads * 16, 1 << 28),
        "no such thread to start": patched(at(SPAWN), SPAWN | 99 << 32),
        "no such shared slot": patched(at(SHARED) + 8, FREE | (1 << 27) << 4),
        "no such slot": patched(at(MALLOC), MALLOC | (1 << 28) - 1 << 4 | 16 << 32),
        "no such slot to resize": patched(at(REALLOC), REALLOC | (1 << 28) - 1 << 4 | 16 << 32),
        "no end": patched(at(NEXT), CLOCK),
        "a chunk of zeroes": whole[:first] + bytes(8 * 4096) + whole[first + 8 * 4096 :],
        "a chunk that leads back": patched(at(NEXT, 1), NEXT | whole[72 + 16] << 32),
        "no such chunk": patched(at(NEXT), NEXT | 1 << 63),
        "what stands before nothing": patched(at(SHARED) + 8, SPAWN),
    }


def test_a_damaged_operations_file_is_refused_in_one_line(tmp_path: Path) -> None:
    """One line, in little memory, and nothing is waited for."""
    from heapwright.trace.pack import native_program

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (256 << 20, 256 << 20))

    with make_ready(parse(tmp_path, random_text(5, 3000, 3))) as ready:
        whole = ready.file.read_bytes()
    for case, content in operations_files(whole).items():
        (tmp_path / "ops").write_bytes(content)
        words: list[str | Path] = [native_program("heapwright-replay"), tmp_path / "ops"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, preexec_fn=limited)
        assert done.returncode == 1, (case, done)
        assert done.stderr.startswith("heapwright-replay: "), case
        assert done.stderr.count("\n") == 1, case
        assert "no memory" not in done.stderr, (case, "it was taken at its word")


def test_threads_that_never_appear_are_not_waited_for(tmp_path: Path) -> None:
    trace = parse(tmp_path, "0 0 malloc 0 100\n1 3 malloc 1 100\n2 3 free 1\n")
    assert replay(trace, "-n", "1")["runs"]


def test_settings_and_variables_become_the_environment() -> None:
    env = environment(get_allocator("glibc"), {"top_pad": "4096", "SOME_VARIABLE": "x"}, {"A": "b"})
    assert env == {"A": "b", "SOME_VARIABLE": "x", "GLIBC_TUNABLES": "glibc.malloc.top_pad=4096"}
    with pytest.raises(UsageError, match="top_pat"):
        environment(get_allocator("glibc"), {"top_pat": "1"}, {})


def test_a_recorded_program_replays(tmp_path: Path) -> None:
    """Python on malloc; and the memory it took."""
    trace = tmp_path / "t.hwt"
    code = "d = [{'a': str(i), 'b': [i] * 4} for i in range(60000)]"
    heapwright("record", "-q", "-o", trace, "--", sys.executable, "-S", "-c", code, PYTHONMALLOC="malloc")
    found = replay(trace)
    assert found["checks"]["events_replayed"] == found["events"] > 200_000
    measured = heapwright("measure", "-q", "--json", "-", "--", sys.executable, "-S", "-c", code, PYTHONMALLOC="malloc")
    real = json.loads(measured.stdout)["summary"]["peak_rss_bytes"]["median"]
    played = found["summary"]["peak_rss_bytes"]["median"] - found["own_rss_bytes"]
    assert played < real < played + 16 * MIB  # a replay does not have the interpreter's image


@pytest.mark.longer
def test_threads_that_come_and_go_all_end(tmp_path: Path, program: Callable[..., Path]) -> None:
    """A thread is often joined by another than its starter, perhaps before its start. Half of these replays hung."""
    detached = program("detached_threads", "-pthread")
    for at_once in ("8", "4", "16")[: needs.repeats(3, 1)]:
        trace = tmp_path / f"{at_once}.hwt"
        heapwright("record", "-q", "-o", trace, "--", detached, "1000", at_once, "1")
        for _ in range(3):
            found = replay(trace)
            assert found["checks"]["events_replayed"] == found["events"]


def test_a_missing_or_damaged_trace_cannot_be_made_ready(tmp_path: Path) -> None:
    with pytest.raises(UsageError), make_ready(tmp_path / "none"):
        pass
    (tmp_path / "bad").write_text("no trace")
    with pytest.raises(HeapwrightError), make_ready(tmp_path / "bad"):
        pass


def test_a_library_that_is_no_malloc_is_refused(tmp_path: Path) -> None:
    """The loader would skip it, and the figures would be those of the C library's malloc."""
    trace = parse(tmp_path, random_text(7, 100, 1))
    fake, empty = tmp_path / "fake.so", tmp_path / "empty.so"
    fake.write_bytes(trace.read_bytes())
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-o", empty, "/dev/null"], check=True)
    for library in (fake, empty):
        done = heapwright("replay", trace, "--allocator", library, "--json", "-", status=1)
        assert done.stdout == ""
        assert f"{library.name} is not loaded: malloc is bound to " in done.stderr
    done = heapwright("replay", trace, "--set", f"LD_PRELOAD={tmp_path}/none.so", status=2)
    assert f"{tmp_path}/none.so cannot be read" in done.stderr


def test_a_damaged_trace_is_called_damaged(tmp_path: Path) -> None:
    whole = parse(tmp_path, random_text(8, 3000, 1)).read_bytes()
    trace = tmp_path / "cut.hwt"
    trace.write_bytes(whole[: len(whole) // 2])
    for words in (
        ("replay", trace),
        ("fit", trace, "-o", tmp_path / "m.json"),
        ("synth", trace),
        ("compare", "--trace", trace),
        ("tune", "--trace", trace),
    ):
        done = heapwright(*words, status=1)
        assert f"{trace}: no event can be read: the file is cut off or damaged in the middle of a block" in done.stderr
        assert done.stderr.count("\n") == 1
