"""What to run, as people write it: a command after `--`, or a workload.toml.

```toml
command = ["./solver", "--threads", "2"]     # run without a shell
cwd = "data"                                 # relative to this file
timeout = 60                                 # seconds; default: ten times the default's time, at least 10 s
success = [0]                                # exit statuses that count as success
setup = ["sh", "-c", "rm -rf out"]           # before every run, not measured
cleanup = ["rm", "-rf", "out"]               # after every run, not measured
[env]
OMP_NUM_THREADS = "2"
[output]
compare = "stdout"                           # stdout | files | command | none
files = ["out/result.bin"]                   # for compare = "files"
command = ["cmp", "{reference}", "{output}"] # for compare = "command": both are files with a run's stdout
[[input]]
name = "small"
split = "train"                              # train: searched on; test: held out for the confirmation
args = ["small.cnf"]                         # appended to command, or put where it says "{args}"
stdin = "small.txt"
[server]                                     # the command is a server: started, loaded, stopped
ready = ["redis-cli", "ping"]                # polled until it exits 0 (or ready_port = 6379)
load = ["redis-benchmark", "-q"]             # its wall time is the run's wall time
stop = "SIGTERM"
[prefix]                                     # only the beginning of every run is measured (not with a server)
seconds = 30                                 # it ends after this time: memory can be compared, time cannot
output = "iteration 100"                     # or when it has printed this: then time can be compared, too
```
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from heapwright.errors import UsageError, unknown
from heapwright.measure.prefix import Prefix
from heapwright.tomlfile import key_line, load_toml_and_text


class Output(msgspec.Struct, forbid_unknown_fields=True):
    """How a run's output is compared with the default's."""

    compare: Literal["stdout", "files", "command", "none"] = "stdout"
    files: list[str] = []
    command: list[str] = []


class Server(msgspec.Struct, forbid_unknown_fields=True):
    """The server form: the command runs until the load is done."""

    load: list[str]
    ready: list[str] = []
    ready_port: int = 0
    ready_timeout: float = 30.0
    stop: str = "SIGTERM"


class Input(msgspec.Struct, forbid_unknown_fields=True):
    """One input of the workload."""

    name: str
    split: Literal["train", "test"] = "train"
    args: list[str] = []
    stdin: str = ""
    env: dict[str, str] = {}


class WorkloadFile(msgspec.Struct, forbid_unknown_fields=True):
    """A whole workload.toml."""

    command: list[str]
    name: str = ""
    cwd: str = ""
    timeout: float = 0.0
    success: list[int] = msgspec.field(default_factory=lambda: [0])
    stdin: str = ""
    setup: list[str] = []
    cleanup: list[str] = []
    env: dict[str, str] = {}
    output: Output = msgspec.field(default_factory=Output)
    input: list[Input] = []
    server: Server | None = None
    prefix: Prefix | None = None


@dataclass(frozen=True)
class Workload:
    """A workload ready to run: paths absolute, at least one input.

    Attributes:
        file: the definition.
        cwd: the directory the command runs in.
        inputs: all of them; a bare command has one, named 'default'.
        path: the workload file, absolute; empty for a bare command. Not part of the identity.
    """

    file: WorkloadFile
    cwd: Path
    inputs: tuple[Input, ...]
    path: str = ""

    @property
    def train(self) -> tuple[Input, ...]:
        """The inputs to search on."""
        return tuple(i for i in self.inputs if i.split == "train") or self.inputs

    @property
    def test(self) -> tuple[Input, ...]:
        """The inputs to confirm on: those held out, or all where none are."""
        return tuple(i for i in self.inputs if i.split == "test") or self.inputs

    def command(self, input_: Input) -> list[str]:
        """The words to run for one input."""
        words = self.file.command
        if "{args}" in words:
            at = words.index("{args}")
            return [*words[:at], *input_.args, *words[at + 1 :]]
        return [*words, *input_.args]

    def input(self, name: str) -> Input:
        """The input of this name.

        Raises:
            UsageError: there is none.
        """
        found = next((i for i in self.inputs if i.name == name), None)
        if found is None:
            raise unknown("input", name, [i.name for i in self.inputs])
        return found

    def program(self, input_: Input | None = None) -> str:
        """What is started: a path from our own working directory, or a name on PATH.

        Args:
            input_: for this input; without one empty where it depends on the input.
        """
        word = self.file.command[0] if input_ is None else (*self.command(input_), "")[0]
        if word == "{args}":
            return ""
        return str(self.cwd / word) if "/" in word else word

    def identity(self) -> dict[str, Any]:
        """What must agree for two studies to be of the same thing."""
        result: dict[str, Any] = msgspec.to_builtins(self.file)
        result["cwd"] = str(self.cwd)
        if self.file.prefix is None:
            del result["prefix"]  # studies of before know none
        if self.file.input:
            result["input"] = msgspec.to_builtins(list(self.inputs))  # with absolute paths
        return result


def from_identity(identity: dict[str, Any]) -> Workload:
    """The workload that `Workload.identity` described.

    Raises:
        UsageError: its directory or its program is not here.
    """
    file = msgspec.convert(identity, WorkloadFile)
    cwd = Path(file.cwd)
    if not cwd.is_dir():
        raise UsageError(f"no such directory: {cwd}", "give the command after --, or --workload FILE")
    check_command(file.command[0], cwd)
    return Workload(file, cwd, tuple(file.input or [Input("default")]))


def with_stdin(workload: Workload, path: str) -> Workload:
    """The workload with another standard input.

    Args:
        path: an absolute path; empty for none.
    """
    return dataclasses.replace(workload, file=msgspec.structs.replace(workload.file, stdin=path))


def with_prefix(workload: Workload, prefix: Prefix | None) -> Workload:
    """The workload whose runs end at the end of this prefix."""
    return dataclasses.replace(workload, file=msgspec.structs.replace(workload.file, prefix=prefix))


def whole_only(file: WorkloadFile) -> str:
    """Why its runs cannot be prefixes, or empty."""
    if file.server is not None:
        return "a server is stopped when its load has ended; make the load shorter instead"
    if file.output.compare in ("files", "command"):
        return f"output.compare = '{file.output.compare}' needs whole runs; say 'stdout' or 'none'"
    return ""


def check_stdin(workload: Workload) -> None:
    """Fails with one clear line where a file with a standard input is gone.

    Raises:
        UsageError: one is.
    """
    for name in filter(None, (workload.file.stdin, *(i.stdin for i in workload.inputs))):
        if not Path(name).is_file():
            raise UsageError(f"the standard input {name} is not here", "give it with --stdin FILE")


def from_command(
    words: list[str], timeout: float = 0.0, success: Sequence[int] = (0,), prefix: Prefix | None = None
) -> Workload:
    """The workload of a bare command after `--`.

    Args:
        timeout: seconds a run may take; 0 for the study's own rule.
        success: exit statuses that count as success.
        prefix: where runs end; None: they end by themselves.

    Raises:
        UsageError: empty, not found, not executable.
    """
    if not words or not words[0]:
        raise UsageError("there is no command to run", "put it after --, for example: heapwright tune -- ./prog")
    check_command(words[0], Path.cwd())
    file = WorkloadFile(command=words, timeout=timeout, success=list(success), prefix=prefix)
    return Workload(file, Path.cwd(), (Input("default"),))


def check_command(program: str, cwd: Path) -> None:
    """Fails with one clear line unless the program can be started.

    Raises:
        UsageError: not found, a directory, not executable.
    """
    if "/" in program:
        path = cwd / program
        if not path.exists():
            raise UsageError(f"command not found: {program}", f"looked in {cwd}" if program[0] != "/" else "")
        if path.is_dir():
            raise UsageError(f"not a program: {program} is a directory")
        if not os.access(path, os.X_OK):
            raise UsageError(f"not executable: {program}", f"chmod +x {shlex.quote(program)}")
    elif shutil.which(program) is None:
        hint = f"did you mean ./{program}?" if (cwd / program).is_file() else "is it on PATH?"
        raise UsageError(f"command not found: {program}", hint)


def load_workload(path: Path) -> Workload:
    """Reads and checks a workload.toml.

    Raises:
        UsageError: with file, line and key.
    """
    file, text = load_toml_and_text(path, WorkloadFile)

    def fail(keys: list[str], what: str) -> UsageError:
        line = key_line(text, keys)
        where = ".".join(k for k in keys if not k.isdecimal())
        return UsageError(f"{path}:{line if line else 1}: {where}: {what}")

    if not file.command or not file.command[0]:
        raise fail(["command"], "is empty; give the program and its arguments")
    cwd = (path.parent / file.cwd).resolve()
    if not cwd.is_dir():
        raise fail(["cwd"], f"no such directory: {cwd}")
    try:
        check_command(file.command[0], cwd)
    except UsageError as error:
        raise fail(["command"], error.message) from None
    if file.output.compare == "files" and not file.output.files:
        raise fail(["output", "files"], "compare = 'files' needs the files to compare")
    if file.output.compare == "command" and not file.output.command:
        raise fail(["output", "command"], "compare = 'command' needs the comparing command")
    if not 0 <= file.timeout < 1e9:
        raise fail(["timeout"], "must not be negative, nor longer than a life")
    for number, env in enumerate([file.env, *(i.env for i in file.input)]):
        if any(not name or "=" in name for name in env):
            raise fail(["input", str(number - 1), "env"] if number else ["env"], "a variable has a name without '='")
    if not file.success:
        raise fail(["success"], "is empty; no run could ever succeed")
    if file.server is not None:
        if not file.server.load:
            raise fail(["server", "load"], "is empty; give the command that loads the server")
        if file.server.stop not in signal.Signals.__members__:
            raise fail(["server", "stop"], f"no such signal: {file.server.stop} (for example SIGTERM)")
        if not 0 <= file.server.ready_port < 1 << 16:
            raise fail(["server", "ready_port"], f"{file.server.ready_port} is no port")
        if file.server.ready_timeout <= 0:
            raise fail(["server", "ready_timeout"], "must be above 0")
    if file.prefix is not None:
        if not 0 <= file.prefix.seconds < 1e9 or bool(file.prefix.seconds) == bool(file.prefix.output):
            raise fail(["prefix"], "takes either seconds, above 0, or output, a text that is printed")
        if why := whole_only(file):
            raise fail(["prefix"], why)
    names = [i.name for i in file.input]
    for number, item in enumerate(file.input):
        if names.index(item.name) != number:
            raise fail(["input", str(number), "name"], f"'{item.name}' stands twice")
        if item.stdin and not (path.parent / item.stdin).is_file():
            raise fail(["input", str(number), "stdin"], f"no such file: {item.stdin}")
    if file.stdin and not (path.parent / file.stdin).is_file():
        raise fail(["stdin"], f"no such file: {file.stdin}")
    inputs = tuple(
        msgspec.structs.replace(i, stdin=str((path.parent / i.stdin).resolve()) if i.stdin else "")
        for i in file.input or [Input("default")]
    )
    if file.stdin:
        file = msgspec.structs.replace(file, stdin=str((path.parent / file.stdin).resolve()))
    return Workload(file, cwd, inputs, str(path.absolute()))
