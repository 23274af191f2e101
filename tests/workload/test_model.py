"""workload.toml: every key, and every mistake with its file, line and key."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from heapwright.errors import UsageError
from heapwright.workload.model import Input, Output, Server, first_command, from_identity, load_workload
from heapwright.workload.model import from_command as bare

FULL = """\
name = "everything"
command = ["sh", "-c", "cat", "{args}", "last"]
cwd = "data"
timeout = 2.5
success = [0, 3]
stdin = "data/in.txt"
setup = ["true"]
cleanup = ["rm", "-f", "x"]

[env]
THREADS = "2"

[output]
compare = "command"
files = ["out.bin"]
command = ["cmp", "{reference}", "{output}"]

[server]
ready = ["true"]
ready_port = 7777
ready_timeout = 5
load = ["sleep", "0"]
stop = "SIGINT"

[[input]]
name = "small"
args = ["one", "two words"]

[[input]]
name = "large"
split = "test"
stdin = "data/large.txt"
env = { SIZE = "9" }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/in.txt").write_text("in")
    (tmp_path / "data/large.txt").write_text("large")
    return tmp_path


def test_every_key_of_a_workload_file_is_read(folder: Path) -> None:
    (folder / "w.toml").write_text(FULL)
    workload = load_workload(folder / "w.toml")
    file = workload.file
    assert (file.name, file.timeout, file.success) == ("everything", 2.5, [0, 3])
    assert (file.setup, file.cleanup, file.env) == (["true"], ["rm", "-f", "x"], {"THREADS": "2"})
    assert file.output == Output("command", ["out.bin"], ["cmp", "{reference}", "{output}"])
    assert file.server == Server(["sleep", "0"], ["true"], 7777, 5.0, "SIGINT")
    assert workload.cwd == folder / "data"
    assert file.stdin == str(folder / "data/in.txt"), "relative to the file, not to the working directory"
    small, large = workload.inputs
    assert small == Input("small", args=["one", "two words"])
    assert large == Input("large", "test", [], str(folder / "data/large.txt"), {"SIZE": "9"})
    assert (workload.train, workload.test) == ((small,), (large,))


def test_arguments_go_where_the_command_says(folder: Path) -> None:
    (folder / "w.toml").write_text(FULL)
    workload = load_workload(folder / "w.toml")
    small, large = workload.inputs
    assert workload.command(small) == ["sh", "-c", "cat", "one", "two words", "last"]
    assert workload.command(large) == ["sh", "-c", "cat", "last"]


def test_arguments_go_to_the_end_otherwise(folder: Path) -> None:
    (folder / "w.toml").write_text('command = ["echo", "x{args}"]\n[[input]]\nname = "a"\nargs = ["1", "2"]\n')
    workload = load_workload(folder / "w.toml")
    assert workload.command(workload.inputs[0]) == ["echo", "x{args}", "1", "2"]


def test_a_short_file_gets_the_rest_by_default(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    Path("w.toml").write_text('command = ["true"]\n')
    workload = load_workload(Path("w.toml"))
    assert workload.inputs == workload.train == workload.test == (Input("default"),)
    assert workload.cwd == folder
    assert (workload.file.success, workload.file.output, workload.file.server) == ([0], Output(), None)


@pytest.mark.parametrize(("split", "train", "test"), [("train", "ab", "ab"), ("test", "ab", "ab")])
def test_inputs_of_one_kind_serve_for_both(split: str, train: str, test: str, folder: Path) -> None:
    inputs = "".join(f'[[input]]\nname = "{n}"\nsplit = "{split}"\n' for n in "ab")
    (folder / "w.toml").write_text('command = ["true"]\n' + inputs)
    workload = load_workload(folder / "w.toml")
    assert [i.name for i in workload.train] == list(train)
    assert [i.name for i in workload.test] == list(test)


def test_a_program_beside_the_file_is_found_from_anywhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "data/prog").write_text("#!/bin/sh\n")
    (folder / "data/prog").chmod(0o755)
    (folder / "w.toml").write_text('command = ["./prog"]\ncwd = "data"\n')
    monkeypatch.chdir("/")
    assert load_workload(folder / "w.toml").program() == str(folder / "data/prog")


def test_the_identity_of_a_workload_changes_with_its_content(folder: Path) -> None:
    (folder / "w.toml").write_text(FULL)
    first = load_workload(folder / "w.toml").identity()
    assert first == load_workload(folder / "w.toml").identity()
    (folder / "w.toml").write_text(FULL.replace('SIZE = "9"', 'SIZE = "8"'))
    assert load_workload(folder / "w.toml").identity() != first


def test_the_identity_of_a_server_is_that_of_older_versions(tmp_path: Path) -> None:
    """Studies of servers made before loads had phases still belong to their workload."""
    (tmp_path / "w.toml").write_text('command = ["true"]\n[server]\nload = ["true"]\n')
    plain = load_workload(tmp_path / "w.toml")
    assert set(plain.identity()["server"]) == {"load", "ready", "ready_port", "ready_timeout", "stop"}
    more = "idle = 2\nload_metrics = {format = 'wrk'}\n[[server.phase]]\nload = ['true']\n[[server.phase]]\npause = 3\n"
    (tmp_path / "w.toml").write_text('command = ["true"]\n[server]\n' + more)
    phased = load_workload(tmp_path / "w.toml")
    assert phased.quiet_s == 5
    assert from_identity(phased.identity()).file.server == phased.file.server
    assert from_identity(plain.identity()).file.server == plain.file.server


LOAD = 'load = ["sleep", "0"]'
LAST = LOAD + '\nstop = "SIGINT"'
MISTAKES = {
    "unknown key": ("timeout", "timout", r"w\.toml:4: unknown key 'timout' did you mean 'timeout'\?"),
    "unknown key in a table": (
        "compare",
        "compere",
        r"w\.toml:14: unknown key 'output\.compere' .* 'compare'",
    ),
    "unknown key in an input": ('args = ["one', 'arg = ["one', r"w\.toml:27: unknown key 'input\.arg' .* 'args'\?"),
    "unknown key in the second input": ("split", "spilt", r"w\.toml:31: unknown key 'input\.spilt' .* 'split'\?"),
    "unknown table": ("[server]", "[sever]", r"w\.toml:18: unknown key 'sever' did you mean 'server'\?"),
    "no command": ('command = ["sh", "-c", "cat", "{args}", "last"]\n', "", r"missing required field `command`"),
    "command as text": (
        '["sh", "-c", "cat", "{args}", "last"]',
        '"cat -n"',
        r'w\.toml:2: command: expected a list of words, got one text write command = \["cat", "-n"\]$',
    ),
    "command empty": ('["sh", "-c", "cat", "{args}", "last"]', "[]", r"w\.toml:2: command: is empty"),
    "first word empty": ('["sh", "-c"', '[""', r"w\.toml:2: command: is empty"),
    "command not found": ('["sh", "-c"', '["no-such"', r"w\.toml:2: command: command not found: no-such"),
    "command a folder": ('["sh", "-c"', '["../data"', r"w\.toml:2: command: not a program: \.\./data is a directory"),
    "number in the command": ('"cat"', "5", r"w\.toml:2: command: expected `str`, got `int`"),
    "no such folder": ('cwd = "data"', 'cwd = "date"', r"w\.toml:3: cwd: no such directory: .*/date"),
    "negative timeout": ("2.5", "-1", r"w\.toml:4: timeout: must be from 0 to 1e9 seconds"),
    "timeout in words": ("2.5", '"soon"', r"w\.toml:4: timeout: expected a number of seconds, got `str`"),
    "success as text": ("[0, 3]", '"0"', r"w\.toml:5: success: expected `array`, got `str`$"),
    "success in words": ("[0, 3]", '["ok"]', r"w\.toml:5: success: expected `int`, got `str`"),
    "success never": ("[0, 3]", "[]", r"w\.toml:5: success: is empty"),
    "no such stdin": ("data/in.txt", "in.txt", r"w\.toml:6: stdin: no such file: in\.txt"),
    "number in env": ('THREADS = "2"', "THREADS = 2", r"w\.toml:10: env: expected `str`, got `int`"),
    "unknown comparison": ('"command"', '"diff"', r"w\.toml:14: output\.compare: unknown value 'diff' known: command"),
    "no files to compare": (
        '"command"\nfiles = ["out.bin"]',
        '"files"',
        r"w\.toml:13: output\.files: compare = 'files' needs",
    ),
    "no comparer": ('command = ["cmp", "{reference}", "{output}"]', "", r"w\.toml:1[34]: output\.command: .* needs"),
    "idle time in words": (LOAD, LOAD + '\nidle = "5s"', r"server\.idle: expected a number of seconds, got `str`"),
    "port misspelt": (LOAD, LOAD + "\nready_prt = 1", r"unknown key 'server\.ready_prt' did you mean 'ready_port'\?"),
    "server without load": ('load = ["sleep", "0"]\n', "", r"w\.toml:18: server\.load: is empty; give"),
    "load and phases": (
        'stop = "SIGINT"',
        "[[server.phase]]\npause = 1",
        r"w\.toml:22: server\.load: either load or \[\[server\.phase\]\]",
    ),
    "a phase of nothing": (LAST, "[[server.phase]]", r"w\.toml:22: server\.phase: needs either load .* or pause"),
    "a phase of both": (LAST, "[[server.phase]]\npause = 1\n" + LOAD, r"server\.phase: needs either load .* or pause"),
    "only pauses": (LAST, "[[server.phase]]\npause = 1", r"server\.phase: no phase has a load, only pauses"),
    "a negative pause": (LAST, "[[server.phase]]\npause = -1", r"w\.toml:23: server\.phase\.pause: must be from 0"),
    "endless idle time": (LOAD, LOAD + "\nidle = 1e9", r"w\.toml:23: server\.idle: must be from 0 to 86400 seconds"),
    "load metrics of nothing": (LOAD, LOAD + "\nload_metrics = {}", r"server\.load_metrics\.format: neither a format"),
    "unknown format": (LOAD, LOAD + "\nload_metrics = {format = 'wkr'}", r"unknown value 'wkr' did you mean 'wrk'\?"),
    "no operations": (
        LOAD,
        LOAD + "\nload_metrics = {operations = 0}",
        r"load_metrics\.operations: must be at least 1",
    ),
    "not an expression": (LOAD, LOAD + "\nload_metrics = {p99_ms = '('}", r"load_metrics\.p99_ms: not a regular expr"),
    "no group": (LOAD, LOAD + "\nload_metrics = {p99_ms = 'p99'}", r"load_metrics\.p99_ms: needs a group"),
    "empty load": ('["sleep", "0"]', "[]", r"w\.toml:22: server\.load: is empty"),
    "unknown signal": ("SIGINT", "SIGSTOPP", r"w\.toml:23: server\.stop: no such signal: SIGSTOPP"),
    "no such port": ("7777", "77777", r"w\.toml:20: server\.ready_port: 77777 is not a port"),
    "no time to get ready": ("ready_timeout = 5", "ready_timeout = 0", r"w\.toml:21: server\.ready_timeout: must be"),
    "unknown split": ('"test"', '"tets"', r"w\.toml:31: input\.split: unknown value 'tets' did you mean 'test'\?"),
    "two of a name": ('"large"', '"small"', r"w\.toml:30: input\.name: two inputs are named 'small'"),
    "no name": ('name = "large"\n', "", r"w\.toml:29: input: .*missing required field `name`"),
    "no such stdin of an input": ("data/large.txt", "lrg", r"w\.toml:32: input\.stdin: no such file: lrg"),
    "not TOML": ("timeout = 2.5", "timeout: 2.5", r"w\.toml:4: not TOML: "),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_mistake_is_named(mistake: str, folder: Path) -> None:
    old, new, complaint = MISTAKES[mistake]
    assert old in FULL
    (folder / "w.toml").write_text(FULL.replace(old, new, 1))
    with pytest.raises(UsageError) as caught:
        load_workload(folder / "w.toml")
    said = f"{caught.value.message} {caught.value.hint}".strip()
    assert re.search(complaint, said), said
    assert "\n" not in said


@pytest.mark.parametrize("kind", ["missing", "folder", "binary"])
def test_an_unreadable_workload_file_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "w.toml"
    if kind == "folder":
        path.mkdir()
    elif kind == "binary":
        path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"^cannot read .*w\.toml: "):
        load_workload(path)


# a bare command


def test_a_command_without_a_file_is_a_workload(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    workload = bare(["sh", "-c", "exit 0"], timeout=3)
    assert workload.command(workload.inputs[0]) == ["sh", "-c", "exit 0"]
    assert (workload.cwd, workload.file.timeout) == (tmp_path, 3)


def test_a_command_that_cannot_be_run_is_refused_with_a_hint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plain").write_text("")
    Path("folder").mkdir()

    def said(*words: str) -> str:
        with pytest.raises(UsageError) as caught:
            bare(list(words))
        return f"{caught.value.message} | {caught.value.hint}"

    assert said().startswith("there is no command to run | put it after --")
    assert said("").startswith("there is no command to run")
    assert said("no-such") == "command not found: no-such | is it on PATH?"
    assert said("sh -c true") == (
        "command not found: sh -c true | no shell reads the command: leave out the quotes, or run sh -c 'sh -c true'"
    )
    assert said("/bin/sh x").endswith("run sh -c '/bin/sh x'")
    assert said("no-such x") == "command not found: no-such x | is it on PATH?"
    assert said("A=1", "sh").endswith("| no shell reads the command: put env before it")
    assert said("plain") == "command not found: plain | did you mean ./plain?"
    assert said("./none") == f"command not found: ./none | looked in {tmp_path}"
    assert said("/none") == "command not found: /none | "
    assert said("./folder") == "not a program: ./folder is a directory | "
    assert said("./plain") == "not executable: ./plain | chmod +x ./plain"
    assert os.access("./plain", os.X_OK) is False


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "[prefix]\n",
            "3: prefix: needs either seconds (above 0) or output (a text that the command prints), not both",
        ),
        ('[prefix]\nseconds = 2\noutput = "x"\n', "needs either seconds"),
        ("[prefix]\nseconds = -1\n", "needs either seconds"),
        ('[prefix]\nseconds = 2\n[server]\nload = ["true"]\n', "use a shorter load instead"),
        ('[prefix]\nseconds = 2\n[output]\ncompare = "files"\nfiles = ["x"]\n', "'files' needs whole runs"),
        ("[prefix]\nlines = 2\n", "lines"),
    ],
)
def test_an_invalid_prefix_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "w.toml"
    path.write_text(f'command = ["true"]\n\n{text}')
    with pytest.raises(UsageError, match=re.escape(says)):
        load_workload(path)


def test_a_prefix_is_part_of_what_a_study_is_of(tmp_path: Path) -> None:
    """Studies of before, of whole runs, are found again."""
    path = tmp_path / "w.toml"
    path.write_text('command = ["true"]\n')
    whole = load_workload(path)
    assert "prefix" not in whole.identity()
    path.write_text('command = ["true"]\n[prefix]\nseconds = 2\n')
    assert load_workload(path).identity() == whole.identity() | {"prefix": {"seconds": 2.0, "output": ""}}


def test_the_command_of_a_study_is_that_of_its_first_input(tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_text(
        'command = ["true", "{args}", "last"]\n[env]\nA = "1"\nB = "1"\n'
        '[[input]]\nname = "one"\nargs = ["x y"]\nenv = {B = "2"}\n[[input]]\nname = "two"\n'
    )
    identity = load_workload(tmp_path / "w.toml").identity()
    assert first_command(identity) == (["true", "x y", "last"], {"A": "1", "B": "2"})


@pytest.mark.parametrize("name", ["TERM", "term", "SIGTERM"])
def test_the_stop_signal_has_its_name_with_or_without_sig(name: str, tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_text(
        f'command = ["true"]\n[server]\nready_port = 1\nload = ["true"]\nstop = "{name}"\n'
    )
    server = load_workload(tmp_path / "w.toml").file.server
    assert server is not None
    assert server.stop == "SIGTERM"
