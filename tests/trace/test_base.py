"""Tests the prediction of a program's memory from replays: replay + base is the program, for address space too."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heapwright.allocators.registry import get_allocator
from heapwright.errors import UsageError
from heapwright.measure.meter import MeterOptions, run_metered
from heapwright.trace.base import PREDICTED, ProgramMeasurement, find_base, predict, read_measured, replay_as_recorded
from heapwright.trace.replay import environment, make_ready, replay_once
from tests import needs
from tests.trace.recording import heapwright_record
from tests.trace.test_pack import parse
from tests.trace.test_replay import heapwright, replay

PEAKS = ("massif_peak_bytes", "peak_heap_bytes", "peak_vm_bytes")
MASSIF = MeterOptions(massif=True)
PAGES = 2 * os.sysconf("SC_PAGE_SIZE")  # of the initial stack, which holds the environment with the settings
SETTINGS: tuple[dict[str, str], ...] = (
    {"mmap_threshold": "32768"},
    {"mmap_threshold": "4194304"},
    {"top_pad": "1048576"},
    {"trim_threshold": "65536"},
    {"arena_max": "1"},
    {"tcache_count": "0"},
    {"mxfast": "0"},
)
CXX = """#include <string>
#include <vector>
int main() {
  std::vector<std::string> kept;
  for (int at = 0; at < 20000; at++) kept.emplace_back(at % 900, 'x');
}
"""

WRITES = """#include <stdlib.h>
#include <string.h>
int main(int words, char** argv) {
  for (int at = 0; at < 500; at++) {
    char* block = malloc(60000);
    if (words > 1) memset(block, argv[1][0], 60000);
  }
}
"""


def recorded(folder: Path, *command: str | Path) -> Path:
    """Records a command; returns its trace."""
    done = heapwright_record("-q", "-o", "t.hwt", "--force", "--", *command, folder=folder)
    assert done.returncode == 0, done.stderr.decode()
    return folder / "t.hwt"


def peaks(command: list[str], env: dict[str, str]) -> dict[str, float]:
    """The program's peaks under the meter."""
    if platform.machine() != "x86_64":
        needs.machine_cannot("place brk and mappings as Valgrind does: that is emulated for x86-64")
    ran = run_metered(command, MASSIF, env=env)
    assert ran.exit_code == 0
    assert not ran.warnings
    return {peak: ran.metrics[peak] or 0.0 for peak in PEAKS}


def errors(trace: Path, command: list[str], allocator: str, *settings: dict[str, str]) -> list[dict[str, float]]:
    """The errors of the predicted peaks in bytes under an allocator with each of the settings."""
    name, glibc, found = get_allocator(allocator), get_allocator("glibc"), []
    with make_ready(trace) as ready:
        default = peaks(command, environment(glibc, {}, os.environ))
        program = ProgramMeasurement(command, {peak: {"median": value} for peak, value in default.items()})
        base = find_base(program, replay_as_recorded(ready, MASSIF, "page", 1))
        assert set(base) == set(PEAKS)
        for chosen in settings:
            env = environment(name, chosen, os.environ)
            predicted = predict(base, [replay_once(ready, MASSIF, env)])
            real = peaks(command, env)
            found.append({peak: predicted[peak] - real[peak] for peak in PEAKS})
    return found


@pytest.mark.parametrize("words", [("blocks", "20000", "300"), ("realloc", "60"), ("waves", "40")], ids=lambda w: w[0])
@pytest.mark.longer
def test_address_space_peaks_are_the_programs_but_for_a_constant(
    words: tuple[str, ...], program: Callable[..., Path], tmp_path: Path
) -> None:
    command = [str(program("massif_heap")), *words]
    trace = recorded(tmp_path, *command)
    some = SETTINGS[:: needs.repeats(1, 3)]  # the next test has others in the short form
    for allocator, settings in (("glibc", some), ("exgen", ({},))):
        for chosen, found in zip(settings, errors(trace, command, allocator, *settings), strict=True):
            assert all(abs(error) <= PAGES for error in found.values()), (allocator, chosen, found)


def test_a_program_in_cpp_has_its_pool_for_exceptions_once(tmp_path: Path) -> None:
    """libstdc++ allocates 71 KiB when it is loaded: in the program, so it is recorded, and in the replay's process."""
    (tmp_path / "p.cpp").write_text(CXX)
    command = [str(tmp_path / "p")]
    subprocess.run(["g++", "-O1", "-o", tmp_path / "p", tmp_path / "p.cpp"], check=True)
    trace = recorded(tmp_path, *command)
    with make_ready(trace) as ready:
        assert "libstdc++.so.6" in ready.libraries
    settings = {"mmap_threshold": "32768"}, {"top_pad": "0"}, {"tcache_count": "0"}
    for chosen, found in zip(settings, errors(trace, command, "glibc", *settings), strict=True):
        assert all(abs(error) <= PAGES for error in found.values()), (chosen, found)


def test_a_pool_is_replayed_where_the_process_has_none(tmp_path: Path) -> None:
    """A recording of another machine, whose program is not here: then nothing loads libstdc++."""
    blocks = "".join(f"{n} 0 malloc {n} 72704\n" for n in range(100))
    found = replay(parse(tmp_path, blocks), "--massif", "kernel", "--set", "mmap_threshold=65536")
    assert found["summary"]["mapping_calls"]["median"] >= 100
    assert found["checks"]["events_replayed"] == 100


def test_the_replayers_own_memory_is_in_no_prediction(tmp_path: Path) -> None:
    """More blocks that are live at once make its tables larger, and the program's memory not: nothing is touched."""
    trace = parse(tmp_path, "".join(f"{n} 0 malloc {n} 16\n{n} 0 usable_size {n}\n" for n in range(300_000)))
    with make_ready(trace) as ready:
        done = replay_once(ready, MASSIF, environment(get_allocator("glibc"), {}, os.environ))
    assert done.report is not None
    assert done.report.own_rss_bytes > 300_000 * 8
    figures = done.metrics()
    for peak in (*PEAKS, "peak_rss_bytes"):
        whole = done.run.metrics[peak]
        assert whole is not None
        assert figures[peak] == whole - done.report.own_rss_bytes


def test_a_peak_that_misses_the_replayers_tables_is_not_known(tmp_path: Path) -> None:
    """A polling meter may read the heap of a short replay only before its tables are mapped; no figure is negative."""
    with make_ready(parse(tmp_path, "0 0 malloc 0 16\n")) as ready:
        done = replay_once(ready, MASSIF, environment(get_allocator("glibc"), {}, os.environ))
    assert done.report is not None
    own = done.report.own_rss_bytes
    early = replace(done.run, metrics=done.run.metrics | {"peak_heap_bytes": own - 1.0, "peak_vm_bytes": own + 0.0})
    figures = replace(done, run=early).metrics()
    assert figures["peak_heap_bytes"] is None
    assert figures["peak_vm_bytes"] == 0


def measured(folder: Path, *command: str) -> Path:
    """The JSON of `heapwright measure` of a command."""
    heapwright("measure", "-q", "--massif", "emulation", "--json", folder / "m.json", "--", *command)
    return folder / "m.json"


def test_replay_tells_the_programs_memory_beside_its_own(program: Callable[..., Path], tmp_path: Path) -> None:
    command = [str(program("massif_heap")), "waves", "40"]
    trace, base = recorded(tmp_path, *command), measured(tmp_path, *command)
    words = ("--base", str(base), "--massif", "emulation", "--set", "top_pad=4194304")
    found = replay(trace, *words)
    real = json.loads(
        heapwright(
            "measure", "-q", "--massif", "emulation", "--json", "-", "--", *command,
            GLIBC_TUNABLES="glibc.malloc.top_pad=4194304",
        ).stdout
    )["summary"]  # fmt: skip
    assert set(found["program"]) == set(found["base"]) == set(PREDICTED)
    for peak in PEAKS:
        assert found["program"][peak] == pytest.approx(real[peak]["median"], abs=PAGES), peak
        assert found["program"][peak] != found["summary"][peak]["median"], "the table is of the replay's process"
        own = found["summary"][peak]["median"] - found["own_rss_bytes"]
        assert found["program"][peak] == own + found["base"][peak]
    text = " ".join(heapwright("replay", trace, *words).stdout.split())
    assert "The table is of the replay's process" in text
    assert "Predicted for the program:" in text
    assert "Massif peak" in text.partition("Predicted for the program:")[2]


def test_without_a_base_the_figures_are_said_to_be_the_replays(tmp_path: Path) -> None:
    trace = parse(tmp_path, "0 0 malloc 0 100\n")
    found = replay(trace)
    assert found["base"] is None
    assert found["program"] is None
    text = " ".join(heapwright("replay", trace).stdout.split())
    assert "The table is of the replay's process" in text
    assert "--base predicts the program's" in text


def test_a_base_of_another_program_is_said(tmp_path: Path) -> None:
    trace, base = recorded(tmp_path, "/bin/ls"), measured(tmp_path, "/bin/true")
    done = heapwright("replay", trace, "-q", "--base", base)
    assert "--base measured" in done.stderr
    assert heapwright("replay", trace, "-q", "--base", measured(tmp_path, "/bin/ls")).stderr == ""


def test_allocators_see_the_time_of_the_measured_program(tmp_path: Path) -> None:
    """Recorded time has no waits for a processor; memory was measured while there were some."""
    trace, base = recorded(tmp_path, "/bin/ls"), measured(tmp_path, "/bin/ls")
    before = json.loads(base.read_text())
    recorded_s = replay(trace)["recorded_s"]

    def slowdown(*words: str, to: Path = trace, **more: Any) -> float:
        summary = {**before["summary"], "wall_s": {"median": 8 * recorded_s}}
        base.write_text(json.dumps({**before, "summary": summary, **more}))
        found = replay(to, "--base", str(base), *words)
        assert ("--slowdown" in found["command"]) == (found["slowdown"] != 1)
        return float(found["slowdown"])

    assert slowdown() == pytest.approx(8)
    assert slowdown("--pace", "real") == 1
    assert slowdown(command=["/bin/sh", "-c", "ls"]) == 1, "another process may take most of the time"
    assert slowdown(inputs={"a": {}}) == 1, "a load may decide how long it takes"
    done = heapwright_record("-q", "-o", "w.hwt", "--for", "60", "--", "/bin/ls", folder=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    assert slowdown(to=tmp_path / "w.hwt") == 1, "a window is a part of the run"
    assert replay(trace)["slowdown"] == 1


def test_a_base_that_misses_the_program_is_said(tmp_path: Path) -> None:
    """A program that writes nothing to its blocks needs less than its replay, which touches each block."""
    (tmp_path / "p.c").write_text(WRITES)
    subprocess.run(["gcc", "-O1", "-fno-builtin", "-o", tmp_path / "p", tmp_path / "p.c"], check=True)
    for words, missed in ((["write"], False), ([], True)):
        command = [str(tmp_path / "p"), *words]
        trace = recorded(tmp_path, *command)
        done = heapwright("replay", trace, "-q", "--base", measured(tmp_path, *command))
        assert ("more than malloc had in the measured program" in done.stderr) is missed, done.stderr


THREADS = """#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
static void* maps(void* unused) {
  for (int at = 0; at < 3000; at++) munmap(mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
  void* block = malloc(9999);
  free(memset(block, 1, 9999));
  return unused;
}
int main(void) {
  pthread_t thread[2];
  for (int at = 0; at < 2; at++) pthread_create(&thread[at], NULL, maps, NULL);
  for (int at = 0; at < 2; at++) pthread_join(thread[at], NULL);
}
"""


def test_threads_that_the_meter_stops_often_are_said(tmp_path: Path) -> None:
    """By `measure`, and by `replay --base`; with '--meter poll' nothing is stopped."""
    (tmp_path / "t.c").write_text(THREADS)
    command = str(tmp_path / "t")
    subprocess.run(["gcc", "-O1", "-fno-builtin", "-pthread", "-o", command, tmp_path / "t.c"], check=True)
    trace = recorded(tmp_path, command)
    for meter in ("notify", "poll"):
        words = ("--meter", meter, "--json", str(tmp_path / "m.json"), "--", command)
        done = heapwright("measure", "-q", *words)
        replayed = heapwright("replay", trace, "-q", "--base", tmp_path / "m.json")
        if "does not work here" in done.stderr:
            needs.machine_cannot(f"measure by {meter}")
        assert ("stopped the program's threads at many mapping calls" in done.stderr) is (meter == "notify")
        assert ("with many stops of the program's threads" in replayed.stderr) is (meter == "notify")


def test_words_that_are_not_utf_8_can_be_read_again(tmp_path: Path) -> None:
    measured = {"command": ["prog", "\udcff"], "summary": {"peak_rss_bytes": {"median": 5.0}}}
    (tmp_path / "m.json").write_text(json.dumps(measured))
    assert read_measured(tmp_path / "m.json").value("peak_rss_bytes") == 5.0


def test_a_damaged_measurement_is_refused(tmp_path: Path) -> None:
    for content in (b"\xff\xfe", b"[" * 100_000):
        (tmp_path / "m.json").write_bytes(content)
        with pytest.raises(UsageError, match="is not a JSON file"):
            read_measured(tmp_path / "m.json")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read"),
        ("[]", "is not a JSON file of 'heapwright measure'"),
        ('{"command": []}', "is not a JSON file of 'heapwright measure'"),
        ({"command": ["a"], "summary": {}, "inputs": {"x": {}, "y": {}}}, "has 2 inputs"),
    ],
)
def test_a_file_that_is_no_measurement_is_refused(content: Any, why: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "m.json").write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(UsageError, match=why):
        read_measured(tmp_path / "m.json")
