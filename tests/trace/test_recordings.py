"""Tests the facts of recordings, the workload made of them, and the reference allocator."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from heapwright.allocators.registry import find_allocators, library_folder
from heapwright.errors import HeapwrightError, UsageError
from heapwright.interleaving.replays import ReplayExecutor, Replays, recorded_replays
from heapwright.measure.meter import MeterOptions
from heapwright.trace.model import fit, to_text
from heapwright.trace.recordings import (
    Recording,
    Recordings,
    as_replayed,
    read_recording,
    read_recordings,
    recorded_workload,
    reference_allocator,
)
from heapwright.trace.replay import ReadyTrace, ReplayRun, replay_once
from heapwright.workload.model import Input
from tests import needs
from tests.trace.recording import heapwright_record

PROGRAMS = Path(__file__).parents[1] / "programs"
SECURE = "exgen-secure"


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory, program: Callable[..., Path]) -> Path:
    """A folder with a complete trace, a sample, a model and a trace recorded on another malloc."""
    folder = tmp_path_factory.mktemp("recordings")
    tiny = program("tiny_blocks", "-DBLOCKS=50000")
    for name, options, env in (
        ("complete.hwt", (), {}),
        ("sample.hwt", ("--sample", "16", "--max-cost", "0"), {}),
        ("other.hwt", (), {"LD_PRELOAD": str(library_folder() / f"lib{SECURE}.so")}),
        ("gone.hwt", (), {"LD_PRELOAD": str(shutil.copy(library_folder() / "libexgen.so", folder / "libgone.so"))}),
    ):
        done = heapwright_record("-o", name, "--force", *options, "--", tiny, env=env, folder=folder)
        assert done.returncode == 0, done.stderr.decode()
    (folder / "libgone.so").unlink()
    (folder / "model.json").write_text(to_text(fit(folder / "complete.hwt")[0]))
    return folder


def test_each_kind_is_told_apart(traces: Path) -> None:
    complete = read_recording(traces / "complete.hwt")
    assert (complete.kind, complete.rate, complete.threads, complete.held_out) == ("complete", 0, 1, False)
    assert complete.allocator.startswith("glibc ")
    assert complete.events > 100_000
    assert len(complete.sha256) == 64
    sample = read_recording(traces / "sample.hwt", held_out=True)
    assert (sample.kind, sample.rate, sample.held_out) == ("sample", 16, True)
    assert sample.peak_live_bytes == pytest.approx(complete.peak_live_bytes, rel=0.2), "the program's, not the sample's"
    model = read_recording(traces / "model.json")
    assert (model.kind, model.allocator, model.threads) == ("model", "", 1)
    assert model.peak_live_bytes == pytest.approx(complete.peak_live_bytes, rel=0.01)


def test_the_reference_is_the_malloc_of_the_recording(traces: Path) -> None:
    glibc = read_recordings(recorded_workload([traces / "complete.hwt"]))
    assert (glibc.reference, glibc.own_malloc) == ("glibc", False)
    assert reference_allocator(glibc).preload == ""
    other = read_recordings(recorded_workload([traces / "other.hwt"]))
    assert (other.reference, other.own_malloc) == (SECURE, True)
    assert SECURE in other.reference_why
    assert as_replayed(find_allocators()["glibc"], other).preload, "the program would keep its own malloc"
    mixed = read_recordings(recorded_workload([traces / "other.hwt"], [traces / "complete.hwt"]))
    assert mixed.reference == "glibc"
    assert "different mallocs" in mixed.reference_why
    assert "models do not name" in read_recordings(recorded_workload([traces / "model.json"])).reference_why


def test_a_malloc_that_a_program_is_linked_with_stays_loaded(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = library_folder() / f"lib{SECURE}.so"
    source, linked = PROGRAMS / "tiny_blocks.c", tmp_path / "linked"
    options = ["-DBLOCKS=1000", "-o", str(linked), str(source), str(library), f"-Wl,-rpath,{library.parent}"]
    subprocess.run([needs.command("gcc"), "-pthread", *options], check=True)
    assert heapwright_record("-o", "linked.hwt", "--", linked, folder=tmp_path).returncode == 0
    seen: list[str] = []

    def replay(
        ready: ReadyTrace, options: MeterOptions, env: dict[str, str], stop: Event | None = None, slowdown: float = 1.0
    ) -> ReplayRun:
        seen.append(env["LD_PRELOAD"])
        return replay_once(ready, options, env, stop=stop, slowdown=slowdown)

    monkeypatch.setattr("heapwright.interleaving.replays.replay_once", replay)
    exgen = library_folder() / "libexgen.so"
    for trace, stays in ((tmp_path / "linked.hwt", [library]), (traces / "other.hwt", [])):
        workload = recorded_workload([trace])
        with recorded_replays(workload, MeterOptions()) as replays:
            outcome = replays.run(workload.inputs[0], find_allocators()["exgen"].environment({}))
        assert outcome.failure == ""
        assert [Path(one).resolve() for one in seen.pop().split(":")] == [one.resolve() for one in (exgen, *stays)]


def test_a_malloc_that_is_not_here_gives_way_to_glibc(traces: Path) -> None:
    workload = recorded_workload([traces / "gone.hwt"])
    found = read_recordings(workload)
    assert (found.reference, found.own_malloc) == ("glibc", True)
    assert "libgone.so) cannot be loaded here" in found.reference_why
    with recorded_replays(workload, MeterOptions()) as replays:
        env = reference_allocator(found).environment({})
        outcome = ReplayExecutor(replays, MeterOptions(timeout=30), traces).run(workload.inputs[0], env)
    assert outcome.failure == ""


@pytest.mark.parametrize("name", ["complete.hwt", "sample.hwt", "model.json", "other.hwt"])
def test_every_kind_is_replayed_by_the_executor(traces: Path, name: str) -> None:
    workload = recorded_workload([traces / name])
    with recorded_replays(workload, MeterOptions()) as replays:
        executor = ReplayExecutor(replays, MeterOptions(timeout=30), traces / "references")
        plain = executor.run(workload.inputs[0], {})
        preloaded = executor.run(workload.inputs[0], {"LD_PRELOAD": str(library_folder() / "libexgen.so")})
    assert (plain.failure, preloaded.failure) == ("", "")
    assert preloaded.run.metrics["peak_rss_bytes"] != plain.run.metrics["peak_rss_bytes"]
    assert plain.digest == "", "replays print nothing that could be compared"


RESIDENT = ("peak_rss_bytes", "mean_rss_bytes")


def resident(replays: Replays, input_: Input, env: dict[str, str]) -> dict[str, float]:
    """The resident memory of one replay, in bytes, by metric."""
    metrics = replays.run(input_, env).run.metrics
    return {metric: value for metric in RESIDENT if (value := metrics[metric]) is not None}


def test_memory_beside_malloc_is_added_to_replays(program: Callable[..., Path], traces: Path, tmp_path: Path) -> None:
    own = program("tiny_blocks", "-DBLOCKS=50000", "-DOWN_BYTES=8388608")
    assert heapwright_record("-o", "own.hwt", "--", own, folder=tmp_path).returncode == 0
    workload = recorded_workload([tmp_path / "own.hwt", traces / "model.json"])
    facts = read_recordings(workload)
    peak = facts.inputs["own.hwt"].peak_resident_bytes
    assert list(facts.program_memory) == ["own.hwt"], "a model does not tell the program's memory"
    assert not read_recordings(recorded_workload([traces / "gone.hwt"])).program_memory
    assert list(read_recordings(recorded_workload([traces / "other.hwt"])).program_memory) == ["other.hwt"]
    for malloc in ("/opt/libelsewhere.so", sys.executable, ""):  # elsewhere, in the program, unknown
        moved = replace(facts.inputs["own.hwt"], allocator=malloc)
        assert not Recordings({"own.hwt": moved}, "exgen", own_malloc=True).program_memory
    exgen = {"LD_PRELOAD": str(library_folder() / "libexgen.so")}
    with (
        recorded_replays(workload, MeterOptions()) as plain,
        recorded_replays(workload, MeterOptions(), facts.program_memory) as replays,
    ):
        default, other = (resident(replays, workload.inputs[0], env) for env in ({}, exgen))
        bare, bare_other = (resident(plain, workload.inputs[0], env) for env in ({}, exgen))
        model = [r.run(workload.inputs[1], {}).run.metrics["peak_rss_bytes"] for r in (replays, plain)]
    assert default["peak_rss_bytes"] == pytest.approx(peak, abs=1 << 20), "the program's own peak"
    for metric in RESIDENT:
        outside = default[metric] - bare[metric]
        assert outside > 6 << 20
        assert other[metric] - bare_other[metric] == pytest.approx(outside, abs=1 << 20), metric
    assert model[0] == pytest.approx(model[1], abs=1 << 20)


def test_inputs_are_split_and_named(traces: Path, tmp_path: Path) -> None:
    shutil.copy(traces / "complete.hwt", tmp_path)
    again = tmp_path / "complete.hwt"
    workload = recorded_workload([traces / "complete.hwt", again], [traces / "sample.hwt"])
    assert [i.name for i in workload.inputs] == ["complete.hwt", "complete.hwt 2", "sample.hwt"]
    assert [i.name for i in workload.test] == ["sample.hwt"]
    assert workload.replays
    with pytest.raises(UsageError, match="given twice"):
        recorded_workload([again], [again])


def test_no_two_inputs_have_one_name(traces: Path, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a/x y.hwt", "b/x y.hwt", "a/z.hwt", "a/z.hwt 2", "b/z.hwt")]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        shutil.copy(traces / "complete.hwt", file)
    assert [i.name for i in recorded_workload(files).inputs] == [
        "x y.hwt", "x y.hwt 2", "z.hwt", "z.hwt 2", "z.hwt 3",
    ]  # fmt: skip


def test_files_that_are_no_recordings_are_refused(tmp_path: Path) -> None:
    bad = tmp_path / "bad.hwt"
    bad.write_text("nothing\n")
    with pytest.raises(HeapwrightError, match=r"bad\.hwt"):
        read_recording(bad)
    bad.write_text("{}")
    with pytest.raises(UsageError, match="not a model"):
        read_recording(bad)
    with pytest.raises(UsageError, match="no such trace"):
        recorded_workload([tmp_path / "none"])


def test_facts_about_several_recordings() -> None:
    made = Recordings({k: Recording(k, "complete", 0, n, 1, 1) for k, n in (("/a", 1), ("/b", 3))})
    assert made.threads
    assert made.kinds == ["complete"]
    assert made.command == ["heapwright", "replay", "/a", "/b"]
