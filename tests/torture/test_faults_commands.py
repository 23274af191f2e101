"""Tests commands on full and read-only disks, when killed, when two run at once, and when clocks jump."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import random
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from heapwright.errors import NO_GAIN
from heapwright.files import write_whole
from tests import needs
from tests.processes import wait_for
from tests.system.conftest import Heapwright
from tests.torture.commands import STUDY, SWEEP, VERBS, Marked, check_whole, outputs_of, words_of

KILLS = 20
SLOW = ("tune", "landscape", "compare", "replay", "report")  # each takes a second or more
RENAME = {"x86_64": "82", "aarch64": "38"}[platform.machine()]
BEFORE = b"the old content\n"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory, program: Callable[..., Path]) -> Path:
    """A folder with a trace, its model, its wl form and a study."""
    heapwright = Heapwright(tmp_path_factory.mktemp("inputs"), report=False, forked=True)
    prog = str(program("moody"))
    for words in (
        ("record", "-q", "-o", "t.hwt", "--", prog),
        ("fit", "t.hwt", "-q", "-o", "t.json"),
        ("export", "t.hwt", "-q", "-o", "t.wl"),
        ("tune", *STUDY, "--study", "s.study", "--", prog),
    ):
        done = heapwright(*words)
        assert done.status == 0, done.err
    return heapwright.folder


@pytest.fixture
def heapwright(tmp_path: Path, inputs: Path) -> Iterator[Marked]:
    """The installed command in a folder with the inputs; kills all remaining processes at the end."""
    for name in ("t.hwt", "t.json", "t.wl", "s.study"):
        shutil.copy(inputs / name, tmp_path)
    started = Marked(tmp_path)
    yield started
    started.end_all()


@pytest.fixture
def prog(program: Callable[..., Path]) -> Path:
    """A command to run: it allocates memory, prints a line and exits with status 0."""
    return program("moody")


def mounted(folder: Path, *options: str) -> None:
    """Mounts a tmpfs of 64 KiB on a folder."""
    folder.mkdir(exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", ",".join(["size=64k", *options]), "small", str(folder)]
    if os.geteuid() != 0 or subprocess.run(words, check=False, capture_output=True).returncode:
        needs.machine_cannot("mount a small disk (root only)")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB."""
    folder = tmp_path / "disk"
    mounted(folder)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(disk: Path) -> None:
    """Fills the disk to its last byte."""
    with pytest.raises(OSError, match="No space left"):
        (disk / "fill").write_bytes(b"x" * (1 << 20))


def one_line(err: str) -> None:
    """Checks that stderr has no traceback, and that its last line is our error message."""
    assert "Traceback" not in err, err
    assert "Exception ignored" not in err, err
    assert err.splitlines()[-1].startswith("heapwright: "), err


STATES = [needs.long_unless(s == "full" or v not in SLOW, v, s) for v in VERBS for s in ("full", "read-only")]


@pytest.mark.parametrize(("verb", "state"), STATES)
@pytest.mark.few(2)
def test_a_full_or_read_only_disk_leaves_no_partial_file(
    verb: str, state: str, heapwright: Marked, disk: Path, prog: Path
) -> None:
    """The command prints one clear line and writes no partial file; existing files stay unchanged."""
    kept = [name for name in outputs_of(verb) if not name.endswith(".study")]
    for name in kept:
        (disk / name).write_bytes(BEFORE)
    if state == "full":
        fill(disk)
    else:
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    there = sorted(path.name for path in disk.iterdir())
    done = heapwright(*words_of(verb, "disk", prog))
    assert done.status in (1, 2), done.err
    one_line(done.err)
    for name in kept:
        assert (disk / name).read_bytes() == BEFORE, name
    assert sorted(path.name for path in disk.iterdir()) == there, "it left something behind"
    # With room again, the same command works.
    subprocess.run(["mount", "-o", "remount,rw,size=64m", disk], check=True)
    again = heapwright(*words_of(verb, "disk", prog))
    assert again.status == 0, again.err
    for name in outputs_of(verb):
        check_whole(disk / name, heapwright)
    assert not heapwright.left()


@pytest.mark.parametrize("left", [0, 8], ids=["full", "nearly full"])
@pytest.mark.parametrize("verb", ["measure", "replay", "tune"])
@pytest.mark.few(2)
def test_no_room_for_temporary_files(verb: str, left: int, heapwright: Marked, disk: Path, prog: Path) -> None:
    """$TMPDIR is full: the command uses another folder. With only 8 KiB left, it fails with one line."""
    words = words_of(verb, ".", prog)
    if verb == "tune":  # it keeps the compared output in a temporary file
        output = '[output]\ncompare = "command"\ncommand = ["cmp", "{reference}", "{output}"]\n'
        (heapwright.folder / "w.toml").write_text(f'command = ["head", "-c", "100K", "/dev/zero"]\n{output}')
        words = ["tune", *STUDY, "--study", "n.study", "--workload", "w.toml"]
    fill(disk)
    os.truncate(disk / "fill", (disk / "fill").stat().st_size - (left << 10))
    done = heapwright(*words, env={"TMPDIR": str(disk)})
    assert done.status == (1 if left and verb != "measure" else 0), done.err  # measure writes no temporary files
    if done.status:
        one_line(done.err)
        assert "No space left" in done.err
    assert [path.name for path in disk.iterdir()] == ["fill"]


@pytest.mark.parametrize(
    "words",
    [
        ("apply", "s.study"),
        ("completion", "bash"),
        ("doctor",),
        ("report", "--extract", "r.html"),
        ("info", "t.hwt", "--json", "-"),
        ("allocators", "--json", "-"),
        ("measure", "--json", "-", "--", "true"),
        ("replay", "t.hwt", "--json", "-"),
        ("export", "t.hwt", "-o", "x.wl"),
    ],
    ids=lambda words: words[0],
)
@pytest.mark.few(3)
def test_a_full_stdout_is_an_error_of_one_line(words: tuple[str, ...], heapwright: Marked) -> None:
    """The command fails with one line if it cannot write to stdout."""
    if words[0] == "report":
        assert heapwright("report", "s.study", "-o", "r.html").status == 0
    buffered = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}  # as users run it
    line: list[str | Path] = [heapwright.path, *words]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            line, cwd=heapwright.folder, env=buffered, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    one_line(done.stderr)
    assert "stdout: No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.few(1)
def test_closed_standard_streams_drop_the_output(closed: str, heapwright: Marked, prog: Path) -> None:
    """With closed standard streams, output is dropped and never ends up in a study or another file."""
    for words, status in (
        (["apply", "s.study"], NO_GAIN),
        (["measure", "--json", "m.json", "--", prog], 0),
        (["record", "-o", "c.hwt", "--", prog], 0),
    ):
        line = ["sh", "-c", f'exec "$@" {closed}', "sh", heapwright.path, *words]
        done = subprocess.run(line, cwd=heapwright.folder, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
    check_whole(heapwright.folder / "m.json", heapwright)
    check_whole(heapwright.folder / "c.hwt", heapwright)
    check_whole(heapwright.folder / "s.study", heapwright)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("verb", [needs.long_unless(verb not in SLOW, verb) for verb in VERBS])
def test_killed_at_random(verb: str, heapwright: Marked, prog: Path, long: bool) -> None:
    """After a kill, existing files are complete, no process remains, and the same command works again."""
    chance = random.Random(verb)
    began = time.monotonic()
    assert heapwright(*words_of(verb, ".", prog)).status == 0
    length = time.monotonic() - began
    for kill in range(KILLS if long else 1):
        if kill % 2 == 0:  # otherwise the command replaces or continues its files
            forget(verb, heapwright)
        process = heapwright.start(*words_of(verb, ".", prog))
        time.sleep(chance.uniform(0.2, 1) * length)
        process.kill()
        process.communicate()
        wait_for(lambda: not heapwright.left(), 20)
        for name in outputs_of(verb):
            if (heapwright.folder / name).exists():
                check_whole(heapwright.folder / name, heapwright)
    works(verb, heapwright, prog)


@pytest.mark.parametrize(
    "verb", [needs.long_unless(verb not in SLOW, verb) for verb in ("measure", "fit", "report", "compare")]
)
def test_killed_before_a_file_gets_its_name(
    verb: str, heapwright: Marked, prog: Path, program: Callable[..., Path]
) -> None:
    """A kill between writing a draft and renaming it leaves the previous file unchanged."""
    for name in outputs_of(verb):
        (heapwright.folder / name).write_bytes(BEFORE)
    words: list[str | Path] = [program("kill_at"), RENAME, "1", heapwright.path, *words_of(verb, ".", prog)]
    done = subprocess.run(words, cwd=heapwright.folder, capture_output=True, check=False)
    if done.returncode == 4:
        needs.machine_cannot("trace a process")
    assert done.returncode == 0, "it renames nothing"
    for name in outputs_of(verb):
        assert (heapwright.folder / name).read_bytes() == BEFORE
    works(verb, heapwright, prog)


def forget(verb: str, heapwright: Marked) -> None:
    """Removes the files that a verb wrote."""
    for name in outputs_of(verb):
        (heapwright.folder / name).unlink(missing_ok=True)


def works(verb: str, heapwright: Marked, prog: Path) -> None:
    """Checks that the command succeeds and that its files are complete."""
    done = heapwright(*words_of(verb, ".", prog))
    assert done.status == 0, done.err
    for name in outputs_of(verb):
        check_whole(heapwright.folder / name, heapwright)


@pytest.mark.parametrize("verb", ["tune", "landscape"])
@pytest.mark.long
def test_a_second_command_on_a_study_fails_in_one_line(verb: str, heapwright: Marked, prog: Path) -> None:
    """The second command fails with one line, the first succeeds, and `report` can read meanwhile."""
    words = words_of(verb, ".", prog)
    study = heapwright.folder / outputs_of(verb)[0]
    pair = [heapwright.start(*words) for _ in range(2)]
    wait_for(lambda: study.exists() and study.stat().st_size > 0)
    read = heapwright("report", study.name, "-o", "meanwhile.html")
    assert "Traceback" not in read.err
    ended = sorted((process.communicate(timeout=120)[1], process.returncode) for process in pair)
    statuses = sorted(status for _, status in ended)
    assert statuses in ([0, 1], [0, 0]), ended
    if statuses == [0, 1]:
        (said,) = [err for err, status in ended if status == 1]
        assert said.endswith("is in use by another heapwright (wait for it, or name another file with --study)\n"), said
        one_line(said)
    for name in outputs_of(verb):
        check_whole(heapwright.folder / name, heapwright)


@pytest.mark.long
def test_two_on_one_file(heapwright: Marked, prog: Path) -> None:
    """When two commands write the same file, one of them wins; the file is complete at all times."""
    for verb in ("record", "report", "fit"):
        pair = [heapwright.start(*words_of(verb, ".", prog)) for _ in range(2)]
        seen: dict[str, set[bytes]] = {name: set() for name in outputs_of(verb)}
        while any(process.poll() is None for process in pair):
            for name in seen:
                with contextlib.suppress(FileNotFoundError):
                    seen[name].add((heapwright.folder / name).read_bytes())
        for process in pair:
            _, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
        for name, contents in seen.items():
            check_whole(heapwright.folder / name, heapwright)
            for content in contents:
                (heapwright.folder / f"seen-{name}").write_bytes(content)
                check_whole(heapwright.folder / f"seen-{name}", heapwright)
        assert not list(heapwright.folder.glob(".*"))


def test_many_on_one_file(tmp_path: Path) -> None:
    """`write_whole`, which writes all of our Python files, is atomic: four threads write 100 times, one reads."""
    path, size = tmp_path / "a.json", 300_000

    def write(letter: bytes) -> None:
        for _ in range(25):
            write_whole(path, letter * size)

    write_whole(path, b"0" * size)
    with ThreadPoolExecutor(4) as threads:
        writers = [threads.submit(write, letter) for letter in (b"1", b"2", b"3", b"4")]
        while not all(writer.done() for writer in writers):
            content = path.read_bytes()
            assert content == content[:1] * size
        for writer in writers:
            writer.result()
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.long
def test_clocks_that_jump(heapwright: Marked, prog: Path, program: Callable[..., Path], long: bool) -> None:
    """The time of day jumps back and forth by a day; no measured time depends on it."""
    jumps = {"LD_PRELOAD": str(program("jumping_clock", "-shared", "-fPIC"))}
    told = heapwright("measure", "-n", "3", "--json", "m.json", "-q", "--", str(prog), env=jumps)
    assert told.status == 0, told.err
    for run in json.loads((heapwright.folder / "m.json").read_text())["runs"]:
        assert 0 < run["wall_s"] < 60
    done = heapwright("record", "-q", "-o", "j.hwt", "--", str(prog), env=jumps)
    assert done.status == 0, done.err
    info = json.loads(heapwright("info", "j.hwt", "--json", "-").out)
    assert 0 <= info["duration_s"] < 60
    for words in (["tune", *STUDY], ["landscape", *SWEEP]) if long else (["landscape", *SWEEP],):
        done = heapwright(*words, "--study", f"{words[0]}.study", "--", str(prog), env=jumps)
        assert done.status == 0, done.err
        with contextlib.closing(sqlite3.connect(heapwright.folder / f"{words[0]}.study")) as db:
            taken = [row[0] for row in db.execute("SELECT elapsed_s FROM run")]
        assert len(taken) > 3
        assert all(0 < seconds < 60 for seconds in taken), taken  # the budget is charged these


def test_clocks_that_began_long_ago(heapwright: Marked, prog: Path) -> None:
    """Measures in a time namespace whose clocks are ten years ahead of the machine's."""
    ahead = ["unshare", "-T", "--monotonic", "315360000", "--boottime", "315360000"]
    if subprocess.run([*ahead, "true"], check=False, capture_output=True).returncode:
        needs.machine_cannot("make a time namespace")
    words = ["measure", "--json", "m.json", "-q", "--", str(prog)]
    done = subprocess.run([*ahead, heapwright.path, *words], cwd=heapwright.folder, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    (run,) = json.loads((heapwright.folder / "m.json").read_text())["runs"]
    assert 0 < run["wall_s"] < 60
    assert run["peak_rss_bytes"] > 0
