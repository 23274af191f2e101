"""Tests studies that are damaged, of another kind or malicious.

Each is refused in one line, with little time and memory.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from heapwright.cli.main import main
from heapwright.errors import NO_GAIN

from .fuzz.targets import template
from .hostile import refused, run

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT"


def other_tables(db: sqlite3.Connection, table: str, instead: str) -> None:
    db.execute(f"ALTER TABLE {table} RENAME TO was")
    db.executescript(instead)


# Of each case, the change to a valid study, and a part of the error message that it must give.
WRONG_TYPE = "has a value of the wrong type"

SPOILT: dict[str, tuple[Callable[[sqlite3.Connection], object], str]] = {
    "a view without end": (
        lambda db: other_tables(
            db, "run", f"CREATE VIEW run AS {ENDLESS} x AS id, 'search' AS phase, x AS block, 'i' AS input, 1 AS"
            " config, '' AS started, 1.0 AS elapsed_s, '' AS failure, '' AS digest, '{}' AS metrics, '{}' AS extra,"
            " '' AS series FROM c"
        ),
        "its tables are not ours",
    ),
    "a trigger": (
        lambda db: db.execute("CREATE TRIGGER t AFTER INSERT ON run BEGIN DELETE FROM run; END"),
        "its tables are not ours",
    ),
    "one table too many": (lambda db: db.execute("CREATE TABLE more (x)"), "its tables are not ours"),
    "no table": (lambda db: db.execute("DROP TABLE run"), "its tables are not ours"),
    "an expression that is run": (
        lambda db: db.execute("CREATE INDEX i ON run (upper(phase))"),
        "its tables are not ours",
    ),
    "another version, and nothing in it": (
        lambda db: db.executescript("PRAGMA user_version = 99; DROP TABLE meta"),
        "was made by heapwright an unknown version",
    ),
    "another version with a hostile one": (
        lambda db: db.executescript("PRAGMA user_version = 99; UPDATE meta SET value = '[[[' WHERE key = 'version'"),
        "was made by heapwright an unknown version",
    ),
    "another application's": (lambda db: db.execute("PRAGMA application_id = 1"), "is not a heapwright study"),
    "a value of 100 MiB": (
        lambda db: db.execute("UPDATE meta SET value = ? WHERE key = 'host'", ("x" * (100 << 20),)),
        "is damaged: string or blob too big",
    ),
    "brackets without end": (
        lambda db: db.execute("UPDATE meta SET value = ? WHERE key = 'host'", ("[" * 100_000,)),
        "is damaged: ",
    ),
    "NaN": (lambda db: db.execute("UPDATE run SET metrics = '{\"cpu_s\": NaN}'"), "is damaged: NaN"),
    "infinity": (lambda db: db.execute("UPDATE run SET elapsed_s = 9e999"), "infinite value: elapsed_s"),
    "numbers of 5000 digits": (
        lambda db: db.execute("UPDATE run SET metrics = ?", ('{"cpu_s": ' + "9" * 5000 + "}",)),
        "is damaged: ",
    ),
    "text for a number": (lambda db: db.execute("UPDATE run SET block = 'x' WHERE id = 3"), WRONG_TYPE),
    "bytes for text": (lambda db: db.execute("UPDATE run SET input = x'00ff' WHERE id = 3"), WRONG_TYPE),
    "words for metrics": (lambda db: db.execute("UPDATE run SET metrics = '{\"cpu_s\": \"x\"}'"), "is damaged: "),
    "a list for settings": (lambda db: db.execute("UPDATE config SET settings = '[1]'"), "is damaged: "),
    "runs of no configuration": (lambda db: db.execute("UPDATE run SET config = 77 WHERE id = 8"), "configuration 77"),
    "a pick of no configuration": (
        lambda db: db.execute("UPDATE meta SET value = '{\"memory\": 77}' WHERE key = 'picks'"),
        "no configuration 77",
    ),
    "an unknown metric": (
        lambda db: db.execute("UPDATE meta SET value = '{\"objectives\": [\"x\"]}' WHERE key = 'options'"),
        "is damaged: its content is invalid",
    ),
    "an unknown option": (
        lambda db: db.execute("UPDATE meta SET value = '{\"x\": 1}' WHERE key = 'options'"),
        "is damaged: its content is invalid",
    ),
    "shell code for a variable's name": (
        lambda db: db.execute("UPDATE config SET env = ? WHERE id = 2", ('{"X; touch pwned; Y": "1"}',)),
        "is damaged: configuration 2 has an invalid allocator or variable",
    ),
    "a list for the identity": (
        lambda db: db.execute("UPDATE meta SET value = '[]' WHERE key = 'identity'"),
        "is damaged: ",
    ),
    "a number for the command": (
        lambda db: db.execute("UPDATE meta SET value = '{\"command\": [1]}' WHERE key = 'identity'"),
        "is damaged: ",
    ),
    "negative memory": (
        lambda db: db.execute("UPDATE run SET metrics = '{\"peak_rss_bytes\": -1e308, \"cpu_s\": -1}'"),
        "has a negative or infinite value: peak_rss_bytes",
    ),
    "a course of another length": (
        lambda db: db.execute("UPDATE run SET series = '{\"t\": [1], \"rss\": [], \"heap\": [1], \"vm\": [1]}'"),
        "has an invalid series of memory over time",
    ),
}  # fmt: skip
VERBS = (["report"], ["apply"], ["run"], ["apply", "--format", "json"])


def words_of(verb: list[str], path: Path) -> list[str]:
    return [verb[0], str(path), *verb[1:], *(["--", "/bin/true"] if verb[0] == "run" else [])]


def spoil(folder: Path, case: str) -> Path:
    path = folder / "s.study"
    path.write_bytes(template())
    with closing(sqlite3.connect(path)) as db:
        SPOILT[case][0](db)
        db.commit()
    return path


@pytest.mark.parametrize("case", SPOILT)
@pytest.mark.few(6)
def test_a_spoilt_study_is_one_line(
    case: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = spoil(tmp_path, case)
    for verb in VERBS:
        status = main(words_of(verb, path))
        out, err = capfd.readouterr()
        assert status == 1, (verb, out, err)
        assert SPOILT[case][1] in err
        assert err.startswith("heapwright: ")
        assert err.count("\n") == 1
    status = main(["tune", "--study", str(path), "--quiet", "--", "/bin/true"])
    out, err = capfd.readouterr()
    assert status == 1
    assert err.splitlines()[-1].startswith("heapwright: ")
    assert {p.name.partition("-")[0] for p in tmp_path.iterdir()} == {"s.study"}, "something was made of it"


@pytest.mark.parametrize("case", ["a view without end", "a value of 100 MiB", "brackets without end"])
def test_a_spoilt_study_takes_little_memory_and_time(case: str, tmp_path: Path) -> None:
    """Runs the installed command with limits on memory and time."""
    assert SPOILT[case][1] in refused(run("report", spoil(tmp_path, case), cwd=tmp_path))


def test_the_unchanged_study_is_read(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The template of the cases above is valid, so only their changes make them invalid."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.study").write_bytes(template())
    assert main(["report", "s.study"]) == 0
    assert main(["apply", "s.study", "--pick", "memory"]) == 0
    assert "export TUNED=mxfast=8" in capfd.readouterr().out


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.long
def test_any_page_may_be_broken(
    seed: int, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With random bytes changed or the end cut off, a study is read or refused in one line, and never hangs."""
    monkeypatch.chdir(tmp_path)
    rng = random.Random(seed)
    whole, read = template(), 0
    for _ in range(1000):
        changed = bytearray(whole)
        for _ in range(rng.choice((1, 1, 3, 30))):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        if rng.random() < 0.2:
            del changed[rng.randrange(len(changed)) :]
        (tmp_path / "s.study").write_bytes(changed)
        status = main(
            ["apply", "s.study", "--pick", "memory", "--format", rng.choice(("env", "json", "docker", "shell"))]
        )
        out, err = capfd.readouterr()
        read += status == 0
        assert status in (0, 1), err
        assert "Traceback" not in err
        assert (err.count("\n") == 1) == (status == 1)
        assert not status or not out
    assert read > 2


def test_files_beside_it_are_not_believed(tmp_path: Path) -> None:
    """SQLite judges a foreign write-ahead log, index or journal; none of them leads to a crash."""
    rng = random.Random(5)
    (tmp_path / "s.study").write_bytes(template())
    for beside in ("-wal", "-shm", "-journal"):
        (tmp_path / f"s.study{beside}").write_bytes(bytes(rng.randrange(256) for _ in range(40_000)))
    done = run("apply", "s.study", "--pick", "memory", cwd=tmp_path)
    assert done.status in (0, 1)
    assert "Traceback" not in done.err


@pytest.mark.long
def test_paths_that_a_study_names_are_not_touched(tmp_path: Path) -> None:
    """Paths in a study are only shown: reading a study runs nothing and writes only the report."""
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    script = tmp_path / "evil.sh"
    script.write_text("#!/bin/sh\ntouch pwned\n")
    script.chmod(0o755)
    folder = tmp_path / "here"
    folder.mkdir()
    path = folder / "s.study"
    path.write_bytes(template())
    with closing(sqlite3.connect(path)) as db:
        evil = ["../evil.sh"]
        output = {"compare": "command", "command": [*evil, "../victim"]}
        said = {"command": evil, "cwd": "..", "setup": evil, "cleanup": evil, "output": output}
        recorded = {"../victim": {"executable": "../evil.sh"}, "../new": {"executable": "../evil.sh"}}
        for key, value in {"identity": said, "reproduce": evil, "recorded": recorded}.items():
            db.execute("DELETE FROM meta WHERE key = ?", (key,))
            db.execute("INSERT INTO meta VALUES (?, ?)", (key, json.dumps(value)))
        db.commit()
    for words in (["report", "s.study"], ["apply", "s.study"], ["report", "s.study", "s.study", "-o", "two.html"]):
        done = run(*words, cwd=folder)
        assert done.status == (NO_GAIN if words[0] == "apply" else 0), done.err
    assert sorted(p.name for p in folder.iterdir()) == ["s.html", "s.study", "two.html"]
    assert victim.read_text() == "untouched"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["evil.sh", "here", "victim"]
