"""Drives `tune --trace` and `compare --trace` on real recordings, and proves the prediction on the program."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heapwright.errors import HeapwrightError
from heapwright.interleaving.records import StoredRun
from heapwright.study.store import read_study
from tests import needs

from .conftest import Heapwright

SHORT = (
    "--minimize",
    "peak_rss",
    "--budget",
    "6",
    "--pairs",
    "6",
    "--no-minify",
    "--study",
    "s.study",
    "--json",
    "t.json",
)
FILES = ("--trace", "a.hwt", "--test", "b.hwt", "--study", "s.study", "--json", "t.json")
TUNE = ("tune", *FILES, "--allocators", "glibc,exgen", *SHORT)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, program: Callable[..., Path]) -> Heapwright:
    """A directory with ./prog and two recordings of it."""
    page = bool(needs.repeats(1, 0))  # only the long form reads it
    heapwright = Heapwright(tmp_path_factory.mktemp("recorded"), report=page, forked=True)
    shutil.copy(program("tiny_blocks", "-DBLOCKS=200000"), heapwright.folder / "prog")
    for name in ("a.hwt", "b.hwt"):
        done = heapwright("record", "-q", "-o", name, "--", "./prog")
        assert done.status == 0, done.err
    return heapwright


@pytest.fixture(scope="module")
def tuned(recorded: Heapwright) -> Heapwright:
    """That directory with a study of the recordings, which predicts a gain."""
    done = recorded(*TUNE, "--exit-code")
    assert done.status == 4, "a prediction is no proof: " + done.err
    assert "Predicted by replays, not proven: with exgen" in done.out
    return recorded


@pytest.fixture
def there(tuned: Heapwright, tmp_path: Path) -> Heapwright:
    """A copy of that directory for a test to change."""
    shutil.copytree(tuned.folder, tmp_path / "copy")
    return Heapwright(tmp_path / "copy", forked=True)


def json_of(heapwright: Heapwright, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((heapwright.folder / name).read_text())
    return found


def runs_of(path: Path) -> list[StoredRun]:
    with read_study(path) as store:
        return store.runs()


@pytest.mark.long
def test_a_prediction_is_judged_on_recordings_that_the_search_did_not_use(tuned: Heapwright) -> None:
    found = json_of(tuned, "t.json")
    assert found["proven"] is False
    assert [(t["input"], t["held_out"]) for t in found["traces"]] == [("a.hwt", False), ("b.hwt", True)]
    assert all(len(t["sha256"]) == 64 for t in found["traces"])
    assert found["usual_error"]["rows"][0]["page"] == "docs/results/fidelity.md"
    assert found["usual_error"]["sentence"] in found["claim"]
    assert "heapwright verify s.study -- CMD" in found["claim"]
    assert found["recorded_on"]["reference"] == "glibc"
    for pick in found["picks"].values():
        assert "confirmed" not in pick
        memory = pick["predicted"]["peak_rss_bytes"]
        assert memory["verdict"] == "better"
        assert memory["high"] < 0.9, "16 bytes in place of 32"
    runs = runs_of(tuned.folder / "s.study")
    assert {r.input for r in runs if r.phase == "search"} == {"a.hwt"}
    assert {r.input for r in runs if r.phase == "confirm"} == {"b.hwt"}
    page = (tuned.folder / "s.html").read_text()
    assert "Predicted by replays, not proven" in page
    assert "No program ran in this study" in page
    assert "Proven on fresh runs" not in page


def test_the_program_proves_the_prediction_and_the_verbs_say_so(
    there: Heapwright, program: Callable[..., Path]
) -> None:
    done = there("apply", "s.study")
    assert done.status == 4
    assert done.out.startswith("# heapwright")
    assert "Predicted by replays, not proven: " in done.out
    assert "export LD_PRELOAD=" in done.out
    assert "predicted by replays, not proven" in there("run", "s.study", "--", "./prog").err
    (there.folder / "a.c").write_text("int main(void) { return 0; }")
    done = there("link", "--study", "s.study", "--", needs.command("gcc"), "a.c", "-o", "a")
    assert done.status == 0
    assert "predicted, not proven; to prove it with the real load: heapwright verify " in done.err
    done = there("verify", "s.study")
    assert done.status == 2
    assert "give the real load: -- CMD" in done.err

    changed = 'echo "$GLIBC_TUNABLES $LD_PRELOAD $MALLOC_ARENA_MAX"'
    shutil.copy(there.folder / "s.study", there.folder / "lost.study")
    done = there("verify", "lost.study", "--", "sh", "-c", changed)
    assert "its output differs from the default's" in done.out, "outputs are compared, though those of replays are not"
    shutil.copy(there.folder / "s.study", there.folder / "undecided.study")
    done = there("verify", "undecided.study", "--max-time", "3s", "--", "sh", "-c", "sleep 1; exec ./prog")
    assert done.status == 4, done.out + done.err
    undecided = done.out.splitlines()[0].rstrip()
    assert undecided.startswith("Undecided after ")
    done = there("apply", "undecided.study")
    assert done.status == 4
    assert f"predicted, not proven on sh -c 'sleep 1; exec ./prog': {undecided[:60]}" in done.err
    (there.folder / "s.html").touch()  # the short form writes no report
    done = there("verify", "s.study", "--json", "v.json", "--", "./prog")
    assert done.status == 0, done.out + done.err
    assert done.out.startswith("The gain is proven: peak resident memory ")
    assert json_of(there, "v.json")["now"]["peak_rss_bytes"]["high"] < 0.9
    assert "s.html was written before this verdict; to write it again: heapwright report s.study\n" in done.err
    done = there("apply", "s.study")
    assert done.status == 0
    assert "The gain is proven: " in done.out
    assert "On the program: ./prog" in done.out
    assert "not proven" not in there("run", "s.study", "--", "./prog").err

    done = there("verify", "s.study", "--", "./prog")
    assert "fresh pairs, with 1 earlier verification)." in done.out

    shutil.copy(program("tiny_blocks", "-DBLOCKS=210000"), there.folder / "prog")
    done = there("verify", "s.study", "--", "./prog")
    assert "fresh pairs)." in done.out, "a new build is a new question"

    before = runs_of(there.folder / "s.study")
    shutil.move(there.folder / "s.study", there.folder / "kept.study")
    done = there("report", "kept.study", "-o", "r.html")
    assert "Predicted by replays, then proven on the program" in (there.folder / "r.html").read_text()
    assert runs_of(there.folder / "kept.study") == before


@pytest.mark.long
def test_another_program_refutes_the_prediction(there: Heapwright) -> None:
    (there.folder / "w.toml").write_text('command = ["perl", "-e", "$x += $_ for 1..300000"]\n')
    done = there("verify", "s.study", "--workload", "w.toml")
    assert done.status == 3, done.out + done.err
    assert done.out.startswith("The predicted gain is refuted: peak resident memory is not ")
    done = there("apply", "s.study")
    assert done.status == 3
    assert "Keep the default, not " in done.out
    assert ": the predicted gain is refuted" in done.out
    assert "export" not in done.out


@pytest.mark.long
def test_a_changed_recording_begins_a_new_study(recorded: Heapwright) -> None:
    shutil.copy(recorded.folder / "a.hwt", recorded.folder / "c.hwt")
    words = ("tune", "--trace", "c.hwt", "--allocators", "glibc", "--budget", "1", "--pairs", "6", "--study", "c.study")
    assert recorded(*words).status == 0
    shutil.copy(recorded.folder / "b.hwt", recorded.folder / "c.hwt")
    process = recorded.start(*words)
    try:
        assert process.stderr is not None
        assert "a recording has changed since the study was made" in process.stderr.readline()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert (recorded.folder / "c.1.study").exists()


@pytest.mark.long
def test_a_killed_study_goes_on(recorded: Heapwright) -> None:
    words = [word.replace("s.study", "killed.study") for word in TUNE]
    process = recorded.start(*words)
    path, kept = recorded.folder / "killed.study", list[StoredRun]()
    try:
        until = time.monotonic() + 120
        while len(kept) < 20 and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
            try:
                kept = runs_of(path)
            except HeapwrightError:  # not begun yet
                continue
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    kept = runs_of(path)
    assert len(kept) >= 20
    done = recorded(*words)
    assert done.status == 0, done.err
    assert "from an earlier session" in done.err
    assert runs_of(path)[: len(kept)] == kept, "no run is lost or made again"
    assert "Predicted by replays, not proven" in done.out


def test_compare_plays_allocators_on_recordings(recorded: Heapwright) -> None:
    words = ("compare", "--trace", "a.hwt", "b.hwt", "--allocators", "glibc,exgen", "-n", "2", "--json", "c.json")
    done = recorded(*words, "--markdown", "c.md")
    assert done.status == 0, done.err
    assert done.out.startswith("Predicted by replays, not proven.\n")
    assert "Usual error of replays of complete traces of programs with one thread" in done.out
    found = json_of(recorded, "c.json")
    assert (found["proven"], found["reference"], len(found["traces"])) == (False, "glibc", 2)
    exgen = found["allocators"]["exgen"]
    assert {run["input"] for run in exgen["runs"]} == {"a.hwt", "b.hwt"}
    ratio = exgen["ratio"]["peak_rss_bytes"]
    assert ratio["value"] < 0.9
    assert ratio["high"] > ratio["value"] + 0.1, "the interval has the error of predictions"
    assert (
        "heapwright compare -n 2 --allocators glibc,exgen --trace a.hwt b.hwt" in (recorded.folder / "c.md").read_text()
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("tune", "--trace", "a.hwt", "--", "./prog"), "a command and --trace cannot both be given"),
        (("tune", "--trace", "a.hwt", "--minimize", "p99_ms"), "a replay does not measure 99th percentile latency"),
        (("compare", "--trace", "a.hwt", "--metrics", "instructions"), "a replay does not measure instructions"),
        (("tune", "--trace", "a.hwt", "--proxy", "none"), "--proxy cannot be given with --trace"),
        (("tune", "--trace", "a.hwt", "--massif", "valgrind"), "Massif itself cannot measure a replay"),
        (("compare", "--trace", "a.hwt", "--cluster", "x"), "--cluster cannot be given with --trace"),
        (("tune", "--test", "a.hwt", "--", "./prog"), "--test needs --trace"),
        (("compare", "--trace", "none.hwt"), "no such trace: none.hwt"),
        (("plan", "jobs", "tune", "--trace", "a.hwt"), "--trace cannot be planned as files"),
    ],
)
def test_bad_usage_is_one_line(recorded: Heapwright, words: tuple[str, ...], line: str) -> None:
    done = recorded(*words)
    assert done.status == 2
    assert done.err.startswith("heapwright: ")
    assert done.err.count("\n") == 1
    assert line in done.err


@pytest.mark.long
def test_a_setting_that_no_replay_shows_is_left_out_and_named(recorded: Heapwright) -> None:
    needs.peer("jemalloc")
    words = ("--allocators", "jemalloc", "--expert", "--budget", "2", "--pairs", "6", "--json", "j.json")
    done = recorded("tune", "--trace", "a.hwt", *words)
    assert done.status == 0, done.err
    assert "background_thread not searched, because a replay does not show the effect" in done.err
    found = json_of(recorded, "j.json")
    # percpu_arena stands before it if the program is taken to have threads.
    assert found["hidden"]["jemalloc"][-1] == "background_thread"
    assert found["recorded_on"]["reference"] == "jemalloc", "its own defaults, because only it is searched"
    assert Path(found["study"]).name.startswith("heapwright-a-"), "named after the recording"
    assert not any("background_thread" in c.settings for c in configs_of(recorded.folder / found["study"]))


def configs_of(path: Path) -> list[Any]:
    with read_study(path) as store:
        return [store.config_by_id(id_) for id_ in {r.config for r in store.runs()}]


def test_a_replay_as_a_command_gets_a_hint(recorded: Heapwright) -> None:
    done = recorded("measure", "--", str(recorded.path), "replay", "-q", "a.hwt")
    assert done.status == 0, done.err
    assert "'heapwright compare --trace FILE' compares replays" in done.err
