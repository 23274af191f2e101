"""Tests that bad input gives one clear line (the error and its remedy), with status 2 for usage and 1 for failure."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import needs

from .conftest import Heapwright

CASES = {
    "command not found": (["tune", "--", "no-such-program"], 2, r"command not found: no-such-program"),
    "path not found": (["tune", "--", "./no-such"], 2, r"command not found: \./no-such \(looked in /"),
    "forgotten ./": (["tune", "--", "plain.txt"], 2, r"command not found: plain\.txt \(did you mean \./plain\.txt"),
    "not executable": (["tune", "--", "./plain.txt"], 2, r"not executable: \./plain\.txt \(chmod \+x \./plain\.txt\)"),
    "a directory": (["tune", "--", "./folder"], 2, r"not a program: \./folder is a directory"),
    "no command": (["tune"], 2, r"no command to run \(put it after --"),
    "nothing after --": (["tune", "--"], 2, r"no command to run"),
    "empty command": (["tune", "--", ""], 2, r"no command to run"),
    "measure, empty command": (["measure", "--", ""], 2, r"no command to run"),
    "measure, not found": (["measure", "--", "no-such-program"], 2, r"command not found"),
    "unknown metric": (["tune", "--minimize", "peek_rss", "--", "true"], 2, r"'peek_rss' \(did you mean 'peak_rss'"),
    "unknown parameter": (["tune", "--params", "mxfats", "--", "true"], 2, r"'mxfats' \(did you mean 'mxfast'"),
    "unknown allocator": (["tune", "--allocators", "glibcc", "--", "true"], 2, r"'glibcc' \(did you mean 'glibc'"),
    "unknown method": (["tune", "--method", "nsga", "--", "true"], 2, r"'nsga' \(did you mean 'nsga2'"),
    "unknown verb": (["tuna", "--", "true"], 2, r"unknown verb 'tuna' \(did you mean 'tune'\?\)"),
    "unknown option": (["tune", "--bugdet", "3", "--", "true"], 2, r"arguments: --bugdet 3 \(did you mean --budget\?"),
    "no --": (["tune", "./prog", "x"], 2, r"the command comes after --: heapwright tune … -- ./prog x"),
    "option without a verb": (["--bugdet"], 2, r"see 'heapwright --help'"),
    "half a metric": (["tune", "--minimize", "rss", "--", "true"], 2, r"did you mean .*'mean_rss'"),
    "budget": (["tune", "--budget", "soon", "--", "true"], 2, r"'soon' is neither a count nor a time \(for example"),
    "seed": (["tune", "--seed", "0", "--", "true"], 2, r"'0' is not a whole number of at least 1"),
    "margin": (["tune", "--margin", "x", "--", "true"], 2, r"'x' is not a percentage"),
    "pairs": (["tune", "--pairs", "2", "--", "true"], 2, r"'2' is not MIN or MIN:MAX with MIN at least 6"),
    "timeout": (["tune", "--timeout", "-1", "--", "true"], 2, r"'-1' is not a number of seconds above 0"),
    "negative time": (["record", "--for", "-1s", "--", "true"], 2, r"--for: '-1s' is not a time above 0, such as 90s"),
    "massif by polling": (
        ["measure", "--massif-compat", "--meter", "poll", "--", "true"],
        2,
        r"needs the back end ptrace",
    ),
    "page to stdout": (["measure", "--html", "-", "--", "true"], 2, r"--html cannot write to stdout"),
    "plots: no folder": (["bench", "--plots", "no/plots"], 2, r"there is no directory no \(create it first\)"),
    "two results": (
        ["compare", "-q", "--csv", "-", "--json", "-", "--", "true"],
        2,
        r"--json and --csv both write to st",
    ),
    "two results of a grid": (
        ["landscape", "-q", "--param", "mmap_threshold", "--csv", "-", "--json", "-", "--", "true"],
        2,
        r"--json and --csv both write to st",
    ),
    "no allocator named": (["compare", "--allocators", "", "--", "true"], 2, r"--allocators: it names no allocator"),
    "no ratio": (["tune", "--minimize", "huge_bytes", "--", "true"], 2, r"it can be 0, which has no ratio"),
    "no quantity": (["tune", "--minimize", "output_sha256", "--", "true"], 2, r"it is not a quantity"),
    "not planned": (["plan", "jobs", "compare", "--", "true"], 2, r"'compare' cannot be planned, only tune and landsc"),
    "plan of a wrong command": (["plan", "no/jobs", "tune", "--allocators", "none", "--", "true"], 2, r"'none'"),
    "no process id": (["diagnose", "0"], 2, r"'0' is not a process id"),
    "negative process id": (["diagnose", "-1"], 2, r"'-1' is not a process id"),
    "runs": (["measure", "-n", "none", "--", "true"], 2, r"'none' is not a whole number"),
    "command for a verb without": (["allocators", "--", "true"], 2, r"'allocators' takes no command after --"),
    "no such workload": (["tune", "--workload", "no.toml"], 2, r"cannot read no\.toml: No such file"),
    "workload: not TOML": (["tune", "--workload", "broken.toml"], 2, r"broken\.toml:2: not TOML"),
    "workload: wrong type": (["tune", "--workload", "type.toml"], 2, r"type\.toml:2: timeout: "),
    "workload: unknown key": (["tune", "--workload", "key.toml"], 2, r"key\.toml:3: .*'output\.compere'.*'compare'"),
    "workload and command": (["tune", "--workload", "type.toml", "--", "true"], 2, r"cannot both be given"),
    "space: unknown key": (["tune", "--space", "space.toml", "--", "true"], 2, r"space\.toml:4: .*'lowest'|.*lowest"),
    "report of an empty name": (["report", ""], 2, r"no such study: \. \("),
    "study with an empty name": (["tune", "--study", "", "--", "true"], 1, r"cannot open the study \.: Is a directory"),
    "no such study": (["report", "no.study"], 2, r"no such study: no\.study \('heapwright tune -- CMD' makes one\)"),
    "not a study": (["apply", "plain.txt"], 1, r"plain\.txt is not a heapwright study \(name another file\)"),
    "tune onto something else": (["tune", "--study", "plain.txt", "--", "true"], 1, r"is not a heapwright study"),
    "run without study": (["run", "no.study", "--", "true"], 2, r"no such study"),
    "no such folder": (["tune", "--study", "no/x.study", "--", "true"], 1, r"cannot open the study no/x\.study"),
    "metric that cannot be had": (
        ["tune", "--minimize", "idle_rss", "--", "touch", "ran"],
        2,
        r"cannot be measured here \(it needs a workload file with 'idle = SECONDS' in its \[server\]\)",
    ),
    "requirement that cannot be judged": (
        ["tune", "--require", "p99_ms<=1x", "--", "touch", "ran"],
        2,
        r"\(p99_ms\) cannot be measured here \(it needs a workload file with \[server\.load_metrics\]",
    ),
    "column that nothing can fill": (
        ["compare", "--metrics", "p99", "--allocators", "glibc", "--", "touch", "ran"],
        2,
        r"\(p99_ms\) cannot be measured here \(it needs a workload file with \[server\.load_metrics\]",
    ),
}


@pytest.fixture
def folder(heapwright: Heapwright) -> Path:
    (heapwright.folder / "plain.txt").write_text("plain text\n")
    (heapwright.folder / "folder").mkdir()
    (heapwright.folder / "broken.toml").write_text('command = ["true"]\ntimeout = \n')
    (heapwright.folder / "type.toml").write_text('command = ["true"]\ntimeout = "soon"\n')
    (heapwright.folder / "key.toml").write_text('command = ["true"]\n[output]\ncompere = "stdout"\n')
    space = '[allocator]\nname = "mine"\n[[param]]\nlowest = 1\nkey = "k"\nexplain = "e"\n'
    (heapwright.folder / "space.toml").write_text(space)
    return heapwright.folder


def one_line(err: str) -> str:
    """Returns the last line of stderr, which must be the error; progress may precede it, but no traceback."""
    assert "Traceback" not in err
    lines = err.splitlines()
    assert lines, "nothing was said"
    assert lines[-1].startswith("heapwright: ")
    return lines[-1]


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_one_line_and_leaves_no_file(case: str, heapwright: Heapwright, folder: Path) -> None:
    words, status, message = CASES[case]
    before = sorted(folder.iterdir())
    done = heapwright(*words)
    assert done.status == status, done.err
    assert re.search(message, one_line(done.err)), done.err
    assert done.out == ""
    assert sorted(folder.iterdir()) == before, "it left something behind"


@pytest.mark.parametrize("words", [["tune"], ["compare", "--allocators", "glibc,exgen"]], ids=lambda words: words[0])
def test_a_command_that_cannot_be_repeated_is_told_so(words: list[str], heapwright: Heapwright) -> None:
    done = heapwright(*words, "--", "mkdir", "made")
    assert done.status == 1
    message = r"the command succeeded at first and failed when repeated,? .*: exit status 1: mkdir: .*File exists \(if "
    assert re.search(message, one_line(done.err)), done.err
    assert "by `setup` or `cleanup` of a workload file)" in done.err
    assert "--success" not in done.err


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo no such config >&2; exit 3", r"with nothing changed: exit status 3: no such config \(if status 3 "),
        ("kill -SEGV $$", r"fails by itself, with nothing changed: killed by SIGSEGV"),
        ("sleep 60", r"fails by itself, with nothing changed: timed out after 1 s"),
    ],
)
@pytest.mark.few(1)
def test_a_command_that_fails_by_itself_is_one_line(script: str, message: str, heapwright: Heapwright) -> None:
    done = heapwright("tune", "--timeout", "1", "--", "sh", "-c", script)
    assert done.status == 1
    assert re.search(message, one_line(done.err))
    assert list(heapwright.folder.iterdir()) == []


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, program: Callable[..., Path]) -> Path:
    """A short finished study of moody.c."""
    heapwright = Heapwright(tmp_path_factory.mktemp("finished"), report=False, forked=True)
    words = ["tune", "--allocators", "glibc", "--budget", "1", "--pairs", "6:6", "--method", "sobol"]
    done = heapwright(*words, "--minimize", "peak_heap", "--study", "s.study", "--", str(program("moody")))
    assert done.status == 0, done.err
    return heapwright.folder / "s.study"


@pytest.fixture
def study(heapwright: Heapwright, finished: Path) -> Path:
    """A copy of that study in the test's folder."""
    return Path(shutil.copy(finished, heapwright.folder))


def test_a_study_of_another_command_or_option_is_refused(program: Callable[..., Path], finished: Path) -> None:
    heapwright, study = Heapwright(finished.parent, report=False, forked=True), finished  # where the study was made
    before = study.read_bytes()

    def refused(message: str, *words: str, **env: str) -> None:
        done = heapwright("tune", "--study", "s.study", *words, env=env)
        assert done.status == 1
        assert re.search(message, one_line(done.err)), done.err

    moody = str(program("moody"))
    refused(r"s\.study is a study of another command: command was .*moody, is .*moody more", "--", moody, "more")
    refused(r"begun with objectives peak_heap_bytes, not wall_s", "--minimize", "wall", "--", moody)
    refused(r"begun with seed 1, not 2", "--seed", "2", "--", moody)
    refused(r"measured with .* in the environment", "--", moody, GLIBC_TUNABLES="glibc.malloc.mxfast=0")
    (heapwright.folder / "space.toml").write_text(
        '[allocator]\nname = "glibc"\nenv = "X"\n[[param]]\nkey = "k"\nexplain = "e"\ntype = "bool"\n'
    )
    refused(r"searches another parameter space", "--space", "space.toml", "--", moody)
    with sqlite3.connect(study) as db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        db.execute("PRAGMA user_version = 99")
    refused(r"was made by heapwright \S+ \(study format 99\); this is .* \(use that version, or", "--", moody)
    with sqlite3.connect(study) as db:
        db.execute(f"PRAGMA user_version = {version}")
    db.close()
    assert study.read_bytes()[100:] == before[100:], "a refused study was changed"


def test_a_study_in_use_is_refused(heapwright: Heapwright, study: Path, program: Callable[..., Path]) -> None:
    import fcntl

    with study.open("rb+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = heapwright("tune", "--study", "s.study", "--", str(program("moody")))
    assert done.status == 1
    assert "in use by another heapwright" in one_line(done.err)


@pytest.fixture
def small_disk(heapwright: Heapwright) -> Iterator[Path]:
    disk = heapwright.folder / "disk"
    disk.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "small", disk]).returncode:
        needs.machine_cannot("mount a small disk (root only)")
    yield disk
    subprocess.run(["umount", disk], check=True)


READERS = [
    *(["info"], ["replay"], ["fit", "-o", "m"], ["synth"], ["import", "-o", "t"], ["export", "-o", "t"], ["inspect"]),
    *(["compare", "--trace"], ["tune", "--trace"], ["tune", "--space"], ["tune", "--add-space"], ["tune", "--cluster"]),
    *([verb, "--workload"] for verb in ("tune", "measure", "record", "compare")),
    *(["landscape", "--param", "mxfast", "--workload"], ["tune", "--warm-start"], ["measure", "--stdin"]),
    *([verb] for verb in ("report", "apply", "run", "verify", "watch", "experiment")),
    ["record", "-o", "t", "--recover"],
]


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_a_file_that_does_not_exist_is_wrong_usage(words: list[str], heapwright: Heapwright) -> None:
    takes_command = {"--space", "--add-space", "--cluster", "--warm-start", "--stdin"} & set(words) or words == ["run"]
    command = ["--", "true"] if takes_command else []
    for name in ("no-such-file.toml", "n" * 300):
        done = heapwright(*words, name, *command)
        assert (done.status, done.out) == (2, "")
        assert name in one_line(done.err)
        assert list(heapwright.folder.iterdir()) == []


def test_diagnose_names_a_process_that_does_not_exist(heapwright: Heapwright) -> None:
    with subprocess.Popen(["sleep", "600"]) as sleeping:
        done = heapwright("diagnose", str(sleeping.pid), "4194305")
        sleeping.kill()
    assert done.status == 0
    assert "there is no process 4194305 (any more); it is left out" in one_line(done.err)
    assert f"process {sleeping.pid}:" in done.out
    assert "4194305" not in done.out


def test_diagnose_counts_a_process_once(heapwright: Heapwright) -> None:
    own = str(os.getpid())
    done = heapwright("diagnose", own, f"0{own}", own)
    assert done.status == 0
    assert f"\nprocess {own}: " in done.out


@pytest.mark.parametrize(
    "words", [["info", "t.hwt"], ["inspect", "/bin/true"], ["doctor"], ["allocators"], ["diagnose"]]
)
def test_quiet_verbs_print_nothing(words: list[str], heapwright: Heapwright) -> None:
    """Files such as that of --json and the exit status tell the result then."""
    if words[0] == "info":
        assert heapwright("record", "-q", "-o", "t.hwt", "--", "perl", "-e", "1").status == 0
    words = [*words, str(os.getpid())] if words[0] == "diagnose" else words
    done = heapwright(*words, "-q", "--json", "found.json")
    assert (done.status, done.out, done.err) == (heapwright(*words, "-q").status, "", "")
    assert (heapwright.folder / "found.json").stat().st_size > 0


@pytest.mark.long
def test_a_full_disk_loses_nothing(heapwright: Heapwright, small_disk: Path, program: Callable[..., Path]) -> None:
    words = [
        "tune",
        "--allocators",
        "glibc",
        "--budget",
        "40",
        "--method",
        "sobol",
        "--pairs",
        "6:6",
        "--study",
        "disk/s.study",
    ]
    done = heapwright(*words, "--", str(program("moody")))
    assert done.status == 1
    message = r"cannot write the study disk/s\.study: .*full \(free some space and give the same command again"
    assert re.search(message, one_line(done.err)), done.err
    with sqlite3.connect(f"file:{small_disk}/s.study?mode=ro", uri=True) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        kept = db.execute("SELECT id, phase, block, config, metrics FROM run ORDER BY id").fetchall()
    db.close()
    assert kept
    subprocess.run(["mount", "-o", "remount,size=32m", small_disk], check=True)
    assert heapwright(*words, "--", str(program("moody"))).status == 0
    with sqlite3.connect(small_disk / "s.study") as db:
        now = db.execute("SELECT id, phase, block, config, metrics FROM run ORDER BY id").fetchall()
    db.close()
    assert now[: len(kept)] == kept


def test_a_full_disk_for_the_report(heapwright: Heapwright, small_disk: Path, study: Path) -> None:
    assert study.exists()
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "fill").write_bytes(b"x" * (1 << 20))
    done = heapwright("report", "s.study", "-o", "disk/r.html")
    assert done.status == 1
    assert re.search(r"No space left", one_line(done.err))
    assert [p.name for p in small_disk.iterdir()] == ["fill"]


def test_no_permission_for_the_meter(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    (heapwright.folder / "meter").write_text("not a program")
    done = heapwright(
        "measure", "--", str(program("moody")), env={"HEAPWRIGHT_METER": str(heapwright.folder / "meter")}
    )
    assert done.status == 1
    assert re.search(r"the meter is not at .*meter \(run 'make build'", one_line(done.err))


def test_no_permission_to_write(heapwright: Heapwright) -> None:
    """Runs as an unprivileged user in a directory that belongs to root."""
    needs.root("run as another user")
    setpriv = needs.command("setpriv")
    locked = heapwright.folder / "locked"
    locked.mkdir(mode=0o755)
    words: list[str | Path] = [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", heapwright.path]
    words += ["tune", "--study", locked / "s.study", "--", "/bin/true"]
    for parent in [heapwright.folder, *heapwright.folder.parents]:  # pytest's own folders are closed to others
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if "Permission denied" in done.stderr and "locked" not in done.stderr:
        needs.machine_cannot("let another user read heapwright where it stands")
    assert done.returncode == 1
    assert re.search(r"cannot open the study .*locked/s\.study: Permission denied", one_line(done.stderr))
