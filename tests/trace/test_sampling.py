"""`heapwright record --sample`, windows, bounded files and the export: the contents of partial recordings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from heapwright.trace.pack import native_program, pack
from heapwright.trace.sampling import LIBRARY
from tests import needs
from tests.processes import PACE, wait_for
from tests.trace.test_replay import heapwright

Build = Callable[..., Path]
KIB, MIB = 1 << 10, 1 << 20


def record(
    trace: Path, command: Sequence[str | Path], *options: str, seconds: float = 120 * PACE
) -> list[dict[str, Any]]:
    """Records a command, a sample without a bound of cost by default; returns its processes as --json has them.

    Nothing is printed but that a sample was thinned, where the options bound it.
    """
    unbounded = ("--max-cost", "0") if "--sample" in options and "--max-cost" not in options else ()
    done = heapwright(
        "record",
        *("-q", "--force", "--json", trace.with_suffix(".json"), "-o", trace),
        *options,
        *unbounded,
        "--",
        *command,
        seconds=seconds,
    )
    bounded = "--max-size" in options or "--max-cost" in options
    said = done.stderr.splitlines()
    assert not said or (bounded and len(said) == 1 and "warning: the sample was thinned" in said[0]), done.stderr
    found: list[dict[str, Any]] = json.loads(trace.with_suffix(".json").read_text())["processes"]
    return found


def info(trace: Path) -> dict[str, Any]:
    """What heapwright-trace info says of a trace; a sample is scaled up."""
    done = subprocess.run([native_program("heapwright-trace"), "info", trace], capture_output=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def dump(trace: Path) -> list[list[str]]:
    """The events of a trace as words."""
    done = subprocess.run(
        [native_program("heapwright-trace"), "dump", trace], capture_output=True, text=True, check=True
    )
    return [line.split() for line in done.stdout.splitlines()]


def ticks(trace: Path) -> int:
    """The requests of a process: the sum of the ticks in its sample."""
    return sum(int(line[3]) for line in dump(trace) if line[2] == "ticks")


def test_sample_of_one_is_the_whole_recording(program: Build, tmp_path: Path) -> None:
    churn = program("record_churn")
    record(tmp_path / "full.hwt", [churn, "100000"])
    record(tmp_path / "one.hwt", [churn, "100000"], "--sample", "1")
    full, one = info(tmp_path / "full.hwt"), info(tmp_path / "one.hwt")
    for key in ("allocations", "frees", "peak_live_bytes", "peak_live_objects", "threads"):
        assert one[key] == full[key], key


@pytest.mark.parametrize("options", [("--sample", "16"), ("--sample", "2", "--max-size", "4M")], ids=["rate", "bound"])
def test_a_sample_has_its_share_of_each_size(options: tuple[str, ...], tmp_path: Path) -> None:
    """Each object by itself would be chosen or not: 40,000 of one size at 1 in 16 would be 2,500, give or take 50.

    Objects that wait for their run while the sample is thinned are chosen by themselves.
    """
    source, count = tmp_path / "sizes.c", 40_000
    source.write_text(
        "#include <stdlib.h>\nint main(void) {\n"
        f"  for (int i = 0; i < 60 * {count}; i++) free(malloc(16 + 16 * (i % 60)));\n  return 0;\n}}\n"
    )
    subprocess.run([needs.command("gcc"), "-O0", "-o", source.with_suffix(""), source], check=True)
    (process,) = record(tmp_path / "s.hwt", [source.with_suffix("")], *options)
    rate = process["sample"]["rate"]
    assert rate >= 16, "it was not thinned"
    found = Counter(words[-1] for words in dump(tmp_path / "s.hwt") if words[2] == "malloc")
    for size in range(16, 16 * 61, 16):
        assert abs(found[str(size)] - count / rate) <= (2 if rate == 16 else 8), size


def test_the_first_requests_of_a_process_are_chosen_like_others(tmp_path: Path) -> None:
    """Regression: the first draw was made before the rate was known, so a block of each size was chosen for certain."""
    source = tmp_path / "few.cpp"
    source.write_text(
        "#include <cstdlib>\n"
        "int main() { for (int i = 0; i < 20 * 64; i++) if (!malloc(16 * (i % 64) + 1)) return 1; }\n"
    )
    subprocess.run([needs.command("g++"), "-O0", "-o", source.with_suffix(""), source], check=True)
    (process,) = record(tmp_path / "s.hwt", [source.with_suffix("")], "--sample", "1000")
    assert process["sample"]["objects"] <= 12, "1,280 blocks and the start of the process"


def test_an_operator_that_asks_malloc_for_more_counts_once(tmp_path: Path) -> None:
    source, count = tmp_path / "rounds.cpp", 20_000
    source.write_text(
        "#include <cstdlib>\n#include <new>\n"
        "void* operator new(std::size_t n) { std::size_t m = 16; while (m < n) m *= 2; return std::malloc(m); }\n"
        "void operator delete(void* p) noexcept { std::free(p); }\n"
        f"int main() {{ for (int i = 0; i < {count}; i++) ::operator new(260); }}\n"
    )
    subprocess.run([needs.command("g++"), "-O0", "-o", source.with_suffix(""), source], check=True)
    record(tmp_path / "s.hwt", [source.with_suffix("")], "--sample", "16")
    assert abs(info(tmp_path / "s.hwt")["allocations"] - count) < 200


def test_operators_that_call_malloc_count_once(program: Build, tmp_path: Path) -> None:
    library = program("new_by_malloc", "-shared", "-fPIC", "-fno-builtin")
    command = [program("record_new", "-fno-builtin")]
    record(tmp_path / "full.hwt", command, "--allocator", str(library))
    (process,) = record(tmp_path / "one.hwt", command, "--allocator", str(library), "--sample", "1")
    full, one = info(tmp_path / "full.hwt"), info(tmp_path / "one.hwt")
    assert (one["allocations"], one["frees"]) == (full["allocations"], full["frees"])
    assert process["lost_events"] == 0


def test_a_realloc_to_size_0_that_returns_a_block_counts(program: Build, tmp_path: Path) -> None:
    library = program("zero_realloc", "-shared", "-fPIC", "-fno-builtin")
    command: list[str | Path] = [program("zero_realloc", "-DMAIN", "-fno-builtin")]
    record(tmp_path / "full.hwt", command, "--allocator", str(library))
    record(tmp_path / "sample.hwt", command, "--allocator", str(library), "--sample", "8")
    (process,) = record(tmp_path / "one.hwt", command, "--allocator", str(library), "--sample", "1")
    full, one = info(tmp_path / "full.hwt"), info(tmp_path / "one.hwt")
    assert (one["allocations"], one["frees"]) == (
        full["allocations"] + full["reallocs"],
        full["frees"] + full["reallocs"],
    )
    assert process["lost_events"] == 0
    assert abs(ticks(tmp_path / "sample.hwt") - one["allocations"]) < 100


@pytest.mark.parametrize("rate", [8, 64])
@pytest.mark.few(1)
@pytest.mark.longer
def test_totals_of_a_sample_are_unbiased(rate: int, program: Build, tmp_path: Path) -> None:
    """Ticks are exact; means over time are within five standard errors of those of the complete recording.

    The runs are long: in short ones, the start is another share of the time in each.
    """
    churn: list[str | Path] = [program("record_churn"), "1000000"]
    record(tmp_path / "full.hwt", churn)
    (process,) = record(tmp_path / "sample.hwt", churn, "--sample", str(rate))
    full, sample = info(tmp_path / "full.hwt"), info(tmp_path / "sample.hwt")
    assert process["sample"] == sample["sample"]
    assert process["sample"]["rate"] == rate
    for key in ("events", "allocations", "peak_live_bytes", "bytes_per_event"):
        assert process[key] == sample[key], key
    assert abs(sample["allocations"] - full["allocations"]) <= 2 * rate
    assert (
        abs(process["sample"]["objects"] * rate / full["allocations"] - 1)
        < 5 * (rate / full["allocations"]) ** 0.5 + 0.01
    )
    live = full["peak_live_objects"] / rate
    assert abs(sample["mean_live_bytes"] / full["mean_live_bytes"] - 1) < 5 / live**0.5


@pytest.mark.long
def test_a_sample_that_costs_too_much_is_thinned(program: Build, tmp_path: Path) -> None:
    """The program does little but allocate. All levels that are left have the same rate, from the first object on."""
    churn = program("record_churn")
    record(tmp_path / "full.hwt", [churn, "1000000"])
    (process,) = record(tmp_path / "sample.hwt", [churn, "1000000"], "--sample", "2", "--max-cost", "3")
    full, sample = info(tmp_path / "full.hwt"), info(tmp_path / "sample.hwt")
    rate = process["sample"]["rate"]
    assert rate >= 8
    assert rate & (rate - 1) == 0
    assert abs(sample["allocations"] - full["allocations"]) <= 2 * rate
    assert (
        abs(process["sample"]["objects"] * rate / full["allocations"] - 1)
        < 5 * (rate / full["allocations"]) ** 0.5 + 0.01
    )


def test_a_busy_start_does_not_thin_a_sample(tmp_path: Path) -> None:
    source = tmp_path / "busy.c"
    source.write_text(
        "#include <stdlib.h>\nint main(void) { for (int i = 0; i < 30000; i++) if (!malloc(24)) return 1; return 0; }\n"
    )
    subprocess.run([needs.command("gcc"), "-O0", "-o", source.with_suffix(""), source], check=True)
    (process,) = record(tmp_path / "s.hwt", [source.with_suffix("")], "--sample", "2", "--max-cost", "3")
    assert process["sample"]["rate"] == 2


def test_a_thinned_sample_is_said_and_keeps_its_readings(program: Build, tmp_path: Path) -> None:
    trace, churn = tmp_path / "s.hwt", program("record_churn")
    done = heapwright("record", "-q", "--sample", "2", "-o", trace, "--", churn, "1000000")
    assert "warning: the sample was thinned from 1 in 2 to 1 in" in done.stderr
    assert "--max-cost 0" in done.stderr
    assert sum(line[2] == "resident" for line in dump(trace)) > 5
    assert (
        "was thinned" not in heapwright("record", "--sample", "2", "-o", tmp_path / "t.hwt", "--", churn, "1000").stderr
    )


def test_a_sample_that_was_thinned_without_heapwright_is_said(program: Build, tmp_path: Path) -> None:
    """Only the raw file tells the rate at which it began."""
    heapwright("record", "--export", tmp_path / "kit", "--sample", "2", "--max-size", "4M", "-o", tmp_path)
    env = {"LD_PRELOAD": str(tmp_path / "kit" / LIBRARY)}
    subprocess.run([program("record_churn"), "1000000"], env=env, check=True, capture_output=True)
    done = heapwright("record", "-q", "--recover", tmp_path, "-o", tmp_path / "s.hwt")
    assert "warning: the sample was thinned from 1 in 2 to 1 in" in done.stderr
    assert "to keep --max-cost or --max-size" in done.stderr


def test_max_cost_needs_a_sample(tmp_path: Path) -> None:
    words = ("record", "-o", tmp_path / "x.hwt", "--max-cost")
    alone = heapwright(*words, "5", "--", "true", status=2)
    assert "--max-cost bounds the cost of a sample" in alone.stderr
    assert "--sample" in alone.stderr
    assert "from 2 to 100" in heapwright(*words, "1", "--sample", "8", "--", "true", status=2).stderr


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        (("oscillate",), ("--sample", "64")),
        (("edge",), ("--sample", "64")),
        (("grow", "8000000"), ("--sample", "2", "--max-size", "4M")),
    ],
    ids=["oscillate", "edge", "grow"],
)
@pytest.mark.few(1)
def test_objects_that_change_their_size_are_estimated_rightly(
    mode: tuple[str, ...], options: tuple[str, ...], program: Build, tmp_path: Path
) -> None:
    """A realloc begins a new object, which draws for itself; so does one that grows while the sample is thinned."""
    resizes = program("record_resizes")
    truth = int(subprocess.run([resizes, *mode[:1]], capture_output=True, check=True).stdout)
    record(tmp_path / "p.hwt", [resizes, *mode], *options)
    found = info(tmp_path / "p.hwt")
    error = found["sample"]["peak_live_error"]
    assert 0 < error < 0.3 * truth
    assert abs(found["peak_live_bytes"] - truth) < 5 * error


@pytest.mark.long
def test_threads_that_wait_while_the_sample_is_thinned_do_not_count_too_much(program: Build, tmp_path: Path) -> None:
    record(
        tmp_path / "p.hwt", [program("record_resizes"), "countdowns", "8000000"], "--sample", "2", "--max-size", "4M"
    )
    found = info(tmp_path / "p.hwt")
    rate = found["sample"]["rate"]
    assert rate >= 8, "it was not thinned"
    count = sum(words[2:3] == ["malloc"] and words[-1] == "777" for words in dump(tmp_path / "p.hwt")) * rate
    truth = 200 * 200
    assert abs(count - truth) < 5 * (truth * rate) ** 0.5


def test_a_bound_that_cannot_be_kept_in_mind_does_not_end_the_program(program: Build, tmp_path: Path) -> None:
    env = {
        **os.environ,
        "LD_PRELOAD": str(native_program("heapwright-trace").parent / "lib" / LIBRARY),
        "HEAPWRIGHT_RECORD": str(tmp_path),
        "HEAPWRIGHT_RECORD_SAMPLE": "64",
        "HEAPWRIGHT_RECORD_MAX_SIZE": "18000000000000000000",
    }
    done = subprocess.run([program("record_resizes"), "edge"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "the file has no bound" in done.stderr


def test_large_objects_are_nearly_all_there(tmp_path: Path) -> None:
    code = "blocks = [bytearray(300_000 + i) for i in range(200)]; print(len(blocks))"
    record(tmp_path / "p.hwt", [sys.executable, "-c", code], "--sample", "64")
    large = [line for line in dump(tmp_path / "p.hwt") if line[2] in ("malloc", "calloc") and int(line[4]) >= 300_000]
    assert len(large) >= 190


def test_the_touched_part_of_a_block_that_is_live_at_exit(program: Build, tmp_path: Path) -> None:
    """Its memory was used before, so its resident pages say nothing."""
    command: list[str | Path] = [program("record_large"), "1000000", "100", "10", "keep"]
    found = []
    for options in ((), ("--sample", "1"), ("--sample", "64")):
        record(tmp_path / "p.hwt", command, *options)
        found += [int(line[4]) for line in dump(tmp_path / "p.hwt") if line[2] == "touched" and int(line[4]) > 50_000]
    assert len(found) == 3
    assert all(touched < 400_000 for touched in found), found


@pytest.mark.long
def test_bounded_file_keeps_its_bound_and_its_time_span(program: Build, tmp_path: Path) -> None:
    command: list[str | Path] = [program("record_churn"), "4000000"]
    (process,) = record(tmp_path / "b.hwt", command, "--sample", "4", "--max-size", "4M")
    assert process["raw_bytes"] <= 4 * MIB
    assert process["sample"]["rate"] > 4
    assert process["lost_events"] == process["lost_bytes"] == 0
    found = info(tmp_path / "b.hwt")
    times = [int(line[0]) for line in dump(tmp_path / "b.hwt") if line[2] in ("malloc", "free")]
    assert min(times) < 0.05e9 * found["duration_s"]
    assert max(times) > 0.95e9 * found["duration_s"]
    record(tmp_path / "full.hwt", command)
    full = info(tmp_path / "full.hwt")
    assert abs(found["allocations"] / full["allocations"] - 1) < 0.001
    assert (
        abs(found["mean_live_bytes"] / full["mean_live_bytes"] - 1)
        < 5 / (full["peak_live_objects"] / process["sample"]["rate"]) ** 0.5
    )


@pytest.mark.long
@pytest.mark.timeout(900)
def test_bounded_file_over_a_billion_events(program: Build, tmp_path: Path) -> None:
    (process,) = record(tmp_path / "b.hwt", [program("record_churn"), "420000000"], "--max-size", "16M", seconds=600)
    assert process["raw_bytes"] <= 16 * MIB
    found = info(tmp_path / "b.hwt")
    assert found["events"] > 900_000_000
    times = [int(line[0]) for line in dump(tmp_path / "b.hwt") if line[2] in ("malloc", "free")]
    assert max(times) > 0.99e9 * found["duration_s"]


def begun(folder: Path) -> bool:
    """Whether a raw file in a folder has its header."""
    return any(raw.read_bytes()[:8].strip(b"\0") for raw in folder.glob("*.raw"))


@pytest.mark.parametrize("bound", ["", "4M"])
@pytest.mark.few(1)
@pytest.mark.longer
def test_killed_at_any_moment_it_is_readable(bound: str, program: Build, tmp_path: Path) -> None:
    churn, library = program("record_churn"), native_program("heapwright-trace").parent / "lib" / LIBRARY
    for number in range(0, 20, needs.repeats(1, 4)):
        folder = tmp_path / str(number)
        folder.mkdir()
        env = {
            **os.environ,
            "LD_PRELOAD": str(library),
            "HEAPWRIGHT_RECORD": str(folder),
            "HEAPWRIGHT_RECORD_SAMPLE": "2",
            "HEAPWRIGHT_RECORD_MAX_COST": "0",
        }
        env |= {"HEAPWRIGHT_RECORD_MAX_SIZE": str(4 * MIB)} if bound else {}
        with subprocess.Popen([churn, "100000000"], env=env, stdout=subprocess.DEVNULL) as process:
            wait_for(lambda folder=folder: begun(folder))  # type: ignore[misc]
            time.sleep(PACE * (0.02 + 0.04 * number))
            process.send_signal(signal.SIGKILL)
        raw = next(folder.glob("*.raw"))
        packed, _ = pack(raw, raw.with_suffix(".hwt"))
        assert packed.allocations > 100
        assert packed.lost_events <= 1
        assert raw.stat().st_size <= 4 * MIB or not bound
        raw.unlink()


def test_window_begins_with_what_is_live(program: Build, tmp_path: Path) -> None:
    (process,) = record(tmp_path / "w.hwt", [program("record_window")], "--after", "0.3", "--for", "0.4")
    lines = dump(tmp_path / "w.hwt")
    mark = next(number for number, line in enumerate(lines) if line[2] == "phase")
    born = [line for line in lines[:mark] if line[2] == "malloc"]
    assert len(born) >= 999  # the window may open between a free and the malloc that replaces the block
    assert all(line[0] == "0" for line in born)
    sizes = [int(line[4]) for line in born if 100 <= int(line[4]) < 107]
    assert len(sizes) > 500
    assert 0.3 < max(int(line[0]) for line in lines) / 1e9 < 0.5
    assert process["lost_events"] == 0
    assert not process["cut_short"]


def test_signal_begins_and_ends_the_window(program: Build, tmp_path: Path) -> None:
    record(tmp_path / "w.hwt", [program("record_window"), "signals"], "--window-signal", "USR2")
    lines = dump(tmp_path / "w.hwt")
    assert sum(line[2] == "phase" for line in lines) == 1
    assert max(int(line[0]) for line in lines) / 1e9 < 0.6


def test_window_that_never_begins_is_said(program: Build, tmp_path: Path) -> None:
    done = heapwright("record", "--after", "1h", "-o", tmp_path / "w.hwt", "--", program("record_window"), status=1)
    assert "the window did not begin" in done.stderr


def test_export_needs_no_python(program: Build, tmp_path: Path) -> None:
    raw, folder = tmp_path / "raw", tmp_path / "kit"
    raw.mkdir()
    done = heapwright("record", "--export", folder, "--sample", "8", "--max-size", "8M", "-o", raw)
    name, _, library = done.stdout.strip().partition("=")
    assert (name, Path(library)) == ("LD_PRELOAD", folder / LIBRARY)
    assert len(list(folder.iterdir())) == 2
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert {line.split("[")[1] for line in needed.splitlines() if "NEEDED" in line} <= {
        "libc.so.6]",
        "ld-linux-x86-64.so.2]",
        "libdl.so.2]",  # of glibc too, in a library that `make platforms` built
        "libpthread.so.0]",
    }
    subprocess.run([program("record_churn"), "100000"], env={"LD_PRELOAD": library}, check=True, capture_output=True)
    (file,) = raw.glob("*.raw")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    file.rename(elsewhere / file.name)
    heapwright("record", "--recover", elsewhere, "-o", tmp_path / "r.hwt")
    record(tmp_path / "full.hwt", [program("record_churn"), "100000"])
    full = info(tmp_path / "full.hwt")["allocations"]
    assert abs(info(tmp_path / "r.hwt")["allocations"] - full) < 100


def test_folder_that_cannot_be_written_is_one_line(program: Build, tmp_path: Path) -> None:
    heapwright("record", "--export", tmp_path / "kit", "--sample", "8", "-o", "/nowhere/at/all")
    env = {"LD_PRELOAD": str(tmp_path / "kit" / LIBRARY)}
    done = subprocess.run([program("record_churn"), "1000"], env=env, check=True, capture_output=True, text=True)
    assert done.stderr.count("\n") == 1
    assert "nothing is recorded" in done.stderr


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--max-size", "1M"), "is not a size of at least 4M"),
        (("--after", "soon"), "is not a time above 0"),
        (("--sample", "0"), "whole number of at least 1"),
        (("--sample", "100000"), "at most 65,536"),
        (("--window-signal", "KILL"), "is not a signal that a program can handle"),
    ],
)
def test_bad_usage_is_one_line(options: tuple[str, ...], what: str, tmp_path: Path) -> None:
    done = heapwright("record", *options, "-o", tmp_path / "x.hwt", "--", "true", status=2)
    assert what in done.stderr
