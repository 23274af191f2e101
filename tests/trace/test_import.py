"""`heapwright import` and `export`, as installed, and what damaged files do to them."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heapwright.errors import HeapwrightError, UsageError
from heapwright.trace.convert import export_wl, import_heaptrack, import_wl, recognise
from heapwright.trace.info import read_info
from heapwright.trace.model import PackedCounts, RandMallocModel, expand_sample, synthesise
from tests import needs
from tests.trace.recording import Event, dump, record_told
from tests.trace.test_pack import parse, texts
from tests.trace.test_replay import heapwright, random_text, replay

CARRIED = ("malloc", "calloc", "aligned", "realloc", "free")
TEXT = "v 10400 3\nX prog\nI 1000 ff\nc 1\n+ 20 1 10\n+ 30 1 20\n- 10\nR 5\nc 2\n+ 8 2 10\n"


def told(*words: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(heapwright(*words, "--json", "-").stdout)
    return found


def carried(events: list[Event]) -> list[tuple[int, str, tuple[int, ...]]]:
    """Return the calls of each thread that a wl file can hold, with the numbers of objects."""
    lines = []
    for event in events:
        kind = event.kind.removesuffix("_sized")
        if kind in CARRIED:
            lines.append((event.thread, kind, event.values[:1] if kind == "free" else event.values))
    return lines


def one_thread(events: list[Event]) -> list[tuple[str, tuple[int, ...]]]:
    return [line[1:] for line in carried(events)]


@settings(max_examples=needs.examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=texts())
def test_export_and_import_keep_the_events_of_one_thread(tmp_path: Path, text: str) -> None:
    lines = [line.split() for line in text.splitlines()]
    # One thread: wl cannot order threads that share nothing. And no block that no machine has:
    # importers refuse it.
    single = "".join(f"{w[0]} 0 {' '.join(w[2:])}\n" for w in lines if w[2] not in ("thread_start", "thread_end"))
    trace = parse(tmp_path, single)
    if any(e.kind in (*CARRIED[:4], "free_sized") and e.values[1] > 1 << 47 for e in dump(trace)):
        return
    export_wl(trace, tmp_path / "t.wl")
    made = import_wl(tmp_path / "t.wl", tmp_path / "back.hwt")
    assert one_thread(dump(tmp_path / "back.hwt")) == one_thread(dump(trace))
    assert (made.loss.events, made.loss.bytes, made.loss.cut_short) == (0, 0, False)


def test_export_and_import_keep_the_threads(tmp_path: Path) -> None:
    trace = parse(tmp_path, random_text(4, 3000, 4))
    told("export", trace, "-o", tmp_path / "t.wl")
    told("import", tmp_path / "t.wl", "-o", tmp_path / "back.hwt")
    before, after = dump(trace), dump(tmp_path / "back.hwt")
    assert Counter(line[1] for line in carried(before)) == Counter(line[1] for line in carried(after))
    truth, found = read_info(trace)[0], read_info(tmp_path / "back.hwt")[0]
    assert found.end_live_bytes == truth.end_live_bytes
    assert found.remote_frees["count"] == truth.remote_frees["count"]
    assert found.duration_s is None
    assert replay(tmp_path / "back.hwt")["checks"]["events_dropped"] == 0


def test_a_real_program_to_wl_and_back(tmp_path: Path) -> None:
    record_told(tmp_path, "perl", "-e", "my %h; $h{$_ % 500} .= 'x' x ($_ % 50) for 1..20000;")
    said = told("export", tmp_path / "t.hwt", "--format", "wl", "-o", tmp_path / "t.wl")
    assert said["events"] > 5000  # without a locale Perl allocates a little less
    told("import", tmp_path / "t.wl", "-o", tmp_path / "back.hwt")
    truth, found = read_info(tmp_path / "t.hwt")[0], read_info(tmp_path / "back.hwt")[0]
    assert (found.peak_live_bytes, found.allocations) == (truth.peak_live_bytes, truth.allocations)
    assert "no times" in heapwright("info", tmp_path / "back.hwt").stdout


@pytest.mark.parametrize("packed", ["plain", "gz", "zst"])
def test_heaptrack_text(tmp_path: Path, packed: str) -> None:
    path = tmp_path / "heaptrack.prog.1"
    path.write_text(TEXT)
    if packed == "gz":
        path.write_bytes(gzip.compress(TEXT.encode()))
    elif packed == "zst":
        needs.command("zstd")
        subprocess.run(["zstd", "-q", path, "-o", tmp_path / "x.zst"], check=True)
        path = tmp_path / "x.zst"
    said = told("import", path, "-o", tmp_path / "t.hwt")
    assert (said["format"], said["allocations"], said["peak_live_bytes"]) == ("heaptrack", 3, 0x50)
    kinds = [(e.time, e.kind, e.values) for e in dump(tmp_path / "t.hwt")]
    assert kinds == [
        (999_936, "malloc", (0, 32)),  # 1 ms, in ticks of 256 ns
        (999_936, "malloc", (1, 48)),
        (999_936, "free", (0,)),
        (999_936, "resident", (5 * 4096,)),
        (1_999_872, "malloc", (2, 8)),
    ]


def test_a_compressed_file_cut_short_is_used_as_far_as_it_goes(tmp_path: Path) -> None:
    rng = random.Random(1)
    text = "v 10400 3\n" + "".join(f"+ {rng.randrange(1, 1 << 20):x} 1 {16 * n + 16:x}\n" for n in range(20000))
    (tmp_path / "h").write_text(text)
    needs.command("zstd")
    subprocess.run(["zstd", "-q", tmp_path / "h", "-o", tmp_path / "h.zst"], check=True)
    files = {"h.gz": gzip.compress(text.encode()), "h.zst": (tmp_path / "h.zst").read_bytes()}
    for name, whole in files.items():
        (tmp_path / name).write_bytes(whole[: len(whole) * 2 // 3])
        done = heapwright("import", tmp_path / name, "-o", tmp_path / "t.hwt", "--json", tmp_path / "told.json")
        said = json.loads((tmp_path / "told.json").read_text())
        assert said["cut_short"]
        assert "ends early" in done.stderr
        assert said["events"] < 20000
    # gzip unpacks up to the cut. zstd unpacks only whole blocks, and so small a file may have none.
    (tmp_path / "h.gz").write_bytes(files["h.gz"][: len(files["h.gz"]) * 2 // 3])
    assert import_heaptrack(tmp_path / "h.gz", tmp_path / "t.hwt").events > 5000


@needs.with_command("heaptrack")
@pytest.mark.parametrize("raw", [False, True])
def test_files_of_heaptrack_are_imported(tmp_path: Path, raw: bool) -> None:
    words: list[str | Path] = ["heaptrack", *(["--raw"] if raw else []), "-o", tmp_path / "h"]
    subprocess.run([*words, "perl", "-e", "my @a = map { 'x' x 1000 } 1..3000;"], capture_output=True, check=True)
    path = next(p for p in tmp_path.iterdir() if p.name.startswith("h."))
    said = told("import", path, "-o", tmp_path / "t.hwt")
    assert said["allocations"] > 3000
    assert said["peak_live_bytes"] > 3000 * 1000
    assert said["lost_events"] < said["events"] / 100
    assert replay(tmp_path / "t.hwt")["checks"]["events_dropped"] == 0


@settings(max_examples=needs.examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300), st.sampled_from(["wl", "heaptrack"]), st.integers(0, 30))
def test_junk_never_crashes_an_importer(tmp_path: Path, junk: bytes, kind: str, keep: int) -> None:
    start = bytes([8, 40, 9, 9, 10, 2, 11, 11, 11, 20, 1]) if kind == "wl" else TEXT.encode()[: 12 + keep]
    (tmp_path / "f").write_bytes(start + junk)
    importing = import_wl if kind == "wl" else import_heaptrack
    said = ""
    try:
        made: PackedCounts | None = importing(tmp_path / "f", tmp_path / "t.hwt")
    except HeapwrightError as error:
        said, made = error.message, None
    if made is None:
        assert said
        assert "status" not in said
    else:
        assert read_info(tmp_path / "t.hwt")[0].events == made.events
        assert read_info(tmp_path / "t.hwt")[0].loss.events >= made.loss.events


def test_a_file_of_no_known_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"neither")
    with pytest.raises(UsageError, match="neither"):
        recognise(tmp_path / "f")
    for words, status in (
        (("import", tmp_path / "f", "-o", tmp_path / "t"), 2),
        (("import", tmp_path / "f", "--format", "wl", "-o", tmp_path / "t"), 1),
        (("import", tmp_path / "none", "-o", tmp_path / "t"), 2),
        (("import", tmp_path, "-o", tmp_path / "t"), 2),
        (("export", tmp_path / "f", "-o", tmp_path / "t"), 1),
        (("export", tmp_path / "none", "-o", tmp_path / "t"), 2),
    ):
        done = heapwright(*words, status=status)
        assert len(done.stderr.splitlines()) == 1, done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["f"]


def native_stand_in(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a shell script take the place of the native program."""
    program = folder / "heapwright-trace"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr("heapwright.trace.pack.native_program", lambda name: folder / name)


def test_an_import_that_fails_while_it_is_fed_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk. The native program ends before it has read the text, so its pipe is broken."""
    native_stand_in(tmp_path, 'echo "heapwright-trace: $2: No space left on device" >&2; exit 1', monkeypatch)
    (tmp_path / "h.txt").write_text(TEXT + "- 10\n" * 500_000)
    with pytest.raises(HeapwrightError) as error:
        import_heaptrack(tmp_path / "h.txt", tmp_path / "t.hwt")
    assert error.value.message == f"{tmp_path / 'h.txt'}: {tmp_path / 't.hwt'}: No space left on device"


@pytest.mark.parametrize("kind", ["wl", "heaptrack", "export", "synth", "complete"])
def test_an_interrupted_native_program_leaves_nothing(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot remove its own draft."""
    (tmp_path / "in").write_text(TEXT)
    model = RandMallocModel("heapwright-model", 2, 1, 1, 2, 1, 8, [(8, 1, 1)], [])
    calls: dict[str, tuple[str, Callable[[Path], object]]] = {
        "wl": ("$3", lambda to: import_wl(tmp_path / "in", to)),
        "heaptrack": ("$2", lambda to: import_heaptrack(tmp_path / "in", to)),
        "export": ("$3", lambda to: export_wl(tmp_path / "in", to)),
        "synth": ("$5", lambda to: synthesise(model, to)),
        "complete": ("$3", lambda to: expand_sample(tmp_path / "in", to)),
    }
    place, call = calls[kind]
    native_stand_in(tmp_path, f'echo begun > "{place}.$$.part"; kill -INT $$', monkeypatch)
    with pytest.raises(HeapwrightError, match="ended with status -2"):
        call(tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["heapwright-trace", "in"]
