"""Reads and checks a workload: a command after `--`, or a workload.toml.

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
[objective]                                  # a number to minimise, computed after each run (--minimize objective)
command = ["./score", "{output}"]            # prints it; {output}: a file with the run's stdout. Not measured
[[input]]
name = "small"
split = "train"                              # train: searched on; test: held out for the confirmation
args = ["small.cnf"]                         # appended to command, or put in place of "{args}"
stdin = "small.txt"
[server]                                     # the command is a server: started, loaded, stopped
ready = ["redis-cli", "ping"]                # polled until it exits 0 (or ready_port = 6379)
load = ["redis-benchmark", "-q"]             # its wall time is the run's wall time
stop = "SIGTERM"
idle = 5                                     # seconds after the load until idle memory is read
[server.load_metrics]                        # the format of the load's output; see load_metrics.py
format = "redis-benchmark"
[[server.phase]]                             # in place of load: loads and pauses, in order
load = ["redis-benchmark", "-q"]
[[server.phase]]
pause = 5
[prefix]                                     # only the beginning of every run is measured (not with a server)
seconds = 30                                 # it ends after this time: memory can be compared, time cannot
output = "iteration 100"                     # or once it has printed this text: then time can be compared, too
```
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from heapwright.allocators.program_file import uses_musl
from heapwright.errors import UsageError, unknown
from heapwright.measure.container import Container, open_container
from heapwright.measure.prefix import Prefix
from heapwright.measure.process_group import find_signal
from heapwright.tomlfile import Seconds, key_line, load_toml_and_text
from heapwright.workload.command import check_command
from heapwright.workload.load_metrics import LoadMetrics, wrong_key

_MAX_PAUSE_S = 86400.0


class Output(msgspec.Struct, forbid_unknown_fields=True):
    """How the output of a run is compared with the output of the default."""

    compare: Literal["stdout", "files", "command", "none"] = "stdout"
    files: list[str] = []
    command: list[str] = []


class Objective(msgspec.Struct, forbid_unknown_fields=True):
    """How the metric `objective` is computed after a run.

    Attributes:
        command: prints the number as its last word; "{output}" stands for a file with the run's stdout.
        function: in place of a command, a name that an installed package offers (`plugins`): a function of the path of
            that file and the run's metrics, which returns the number.
    """

    command: list[str] = []
    function: str = ""


class LoadPhase(msgspec.Struct, forbid_unknown_fields=True):
    """A phase of a load: a command, or a pause in seconds."""

    load: list[str] = []
    pause: Seconds = 0.0


class Server(msgspec.Struct, forbid_unknown_fields=True):
    """The server form: the command runs until the load is done."""

    load: list[str] = []
    ready: list[str] = []
    ready_port: int = 0
    ready_timeout: Seconds = 30.0
    stop: str = "SIGTERM"
    idle: Seconds = 0.0
    phase: list[LoadPhase] = []
    load_metrics: LoadMetrics | None = None

    def __post_init__(self) -> None:
        """Give the stop signal its whole name; `_check` refuses a text that names none."""
        found = find_signal(self.stop)
        self.stop = found.name if found else self.stop

    @property
    def phases(self) -> list[LoadPhase]:
        """The phases of the load, also of a load that is one command."""
        return self.phase or [LoadPhase(self.load)]

    @property
    def quiet_s(self) -> float:
        """The seconds of a run without load that the file asks for."""
        return self.idle + sum(p.pause for p in self.phase)


_SINCE_PHASES: dict[str, Any] = {"idle": 0.0, "phase": [], "load_metrics": None}  # keys that older studies do not have


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
    timeout: Seconds = 0.0
    success: list[int] = msgspec.field(default_factory=lambda: [0])
    stdin: str = ""
    setup: list[str] = []
    cleanup: list[str] = []
    env: dict[str, str] = {}
    output: Output = msgspec.field(default_factory=Output)
    objective: Objective | None = None
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
        replays: whether its inputs are recordings, whose replays take the place of runs (`trace.recordings`).
        container: where the command runs; None for this machine.
    """

    file: WorkloadFile
    cwd: Path
    inputs: tuple[Input, ...]
    path: str = ""
    replays: bool = False
    container: Container | None = None

    @property
    def train(self) -> tuple[Input, ...]:
        """The inputs that the search uses."""
        return tuple(i for i in self.inputs if i.split == "train") or self.inputs

    @property
    def test(self) -> tuple[Input, ...]:
        """The inputs that the confirmation uses: those held out, or all if none are."""
        return tuple(i for i in self.inputs if i.split == "test") or self.inputs

    @property
    def quiet_s(self) -> float:
        """The seconds of a run that are not in its wall time: a server's pauses and idle time."""
        return self.file.server.quiet_s if self.file.server else 0.0

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
        """Return the program: a path relative to heapwright's working directory, or a name on PATH.

        Args:
            input_: the input. If None, the result is empty for a workload whose program depends on the input.

        Returns:
            Empty for a program in a container too: its file is not on this machine.
        """
        if self.container is not None:
            return ""
        word = self.file.command[0] if input_ is None else (*self.command(input_), "")[0]
        if word == "{args}":
            return ""
        return str(self.cwd / word) if "/" in word else word

    def name(self, input_: Input | None = None) -> str:
        """Return the file name of the program as the command gives it; see `program`."""
        word = self.file.command[0] if input_ is None else (*self.command(input_), "")[0]
        return Path(word).name

    def base_environment(self) -> dict[str, str]:
        """Return the environment of the command before any setting: heapwright's, or the image's, and the file's."""
        return {**(os.environ if self.container is None else self.container.image.env), **self.file.env}

    @property
    def tells_bindings(self) -> bool:
        """Whether the program's loader can tell whose malloc it bound: that of glibc can, that of musl cannot."""
        return not (self.container.image.platform.endswith("-musl") if self.container else uses_musl(self.program()))

    def where(self) -> dict[str, str]:
        """Return facts for reports about the place of the runs, beside those of the machine: the image, or none."""
        return self.container.facts() if self.container is not None else {}

    def identity(self) -> dict[str, Any]:
        """Return the values that must agree for two studies to measure the same workload."""
        result: dict[str, Any] = msgspec.to_builtins(self.file)
        result["cwd"] = str(self.cwd)
        if self.file.prefix is None:
            del result["prefix"]  # older studies do not have this key
        if self.file.objective is None:
            del result["objective"]
        if self.file.server is not None:
            new = {name: default for name, default in _SINCE_PHASES.items() if result["server"][name] == default}
            result["server"] = {key: value for key, value in result["server"].items() if key not in new}
        if self.file.input:
            result["input"] = msgspec.to_builtins(list(self.inputs))  # with absolute paths
        if self.container is not None:
            result["container"] = {"image": self.container.image.name, "args": list(self.container.args)}
        return result


def file_of(identity: dict[str, Any]) -> WorkloadFile:
    """Return the definition of the workload that `Workload.identity` described."""
    return msgspec.convert({key: value for key, value in identity.items() if key != "container"}, WorkloadFile)


def first_command(identity: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Return the command of the first input of the workload that `Workload.identity` described, and its variables.

    Neither the program nor its directory needs to be on this machine.
    """
    file = file_of(identity)
    input_ = (file.input or [Input("default")])[0]
    return Workload(file, Path(file.cwd), (input_,)).command(input_), {**file.env, **input_.env}


def from_identity(identity: dict[str, Any]) -> Workload:
    """Return the workload that `Workload.identity` described.

    Raises:
        UsageError: its directory or its program is not on this machine.
    """
    where, file = identity.get("container"), file_of(identity)
    cwd = Path(file.cwd)
    if where is not None:
        container = open_container(where["image"], shlex.join(where["args"]))
        return Workload(file, cwd, tuple(file.input or [Input("default")]), container=container)
    if not cwd.is_dir():
        raise UsageError(f"no such directory: {cwd}", "give the command after --, or --workload FILE")
    check_command(file.command[0], cwd, file.env.get("PATH"))
    return Workload(file, cwd, tuple(file.input or [Input("default")]))


def with_stdin(workload: Workload, path: str) -> Workload:
    """Return the workload with another standard input.

    Args:
        workload: the workload.
        path: an absolute path; empty for none.
    """
    return dataclasses.replace(workload, file=msgspec.structs.replace(workload.file, stdin=path))


def with_prefix(workload: Workload, prefix: Prefix | None) -> Workload:
    """Return the workload with runs that end at the end of this prefix."""
    return dataclasses.replace(workload, file=msgspec.structs.replace(workload.file, prefix=prefix))


def whole_only(file: WorkloadFile) -> str:
    """Return why the runs of a workload cannot end early; empty if they can."""
    if file.server is not None:
        return "a server runs until its load has ended; use a shorter load instead"
    if file.output.compare in ("files", "command"):
        return f"output.compare = '{file.output.compare}' needs whole runs; use 'stdout' or 'none'"
    return ""


def check_stdin(workload: Workload) -> None:
    """Check that the files of standard input exist.

    Raises:
        UsageError: one does not exist.
    """
    for name in filter(None, (workload.file.stdin, *(i.stdin for i in workload.inputs))):
        if not Path(name).is_file():
            raise UsageError(f"the standard input file {name} does not exist", "give another with --stdin FILE")


def from_command(
    words: list[str],
    timeout: float = 0.0,
    success: Sequence[int] = (0,),
    prefix: Prefix | None = None,
    container: Container | None = None,
) -> Workload:
    """Return the workload of a command after `--`.

    Args:
        words: the command.
        timeout: maximum seconds of a run; 0 for the default of the study.
        success: exit statuses that count as success.
        prefix: where runs end; None if they end by themselves.
        container: where it runs; None for this machine.

    Raises:
        UsageError: the command is empty, not found or not executable.
    """
    if not words or not words[0]:
        raise UsageError("there is no command to run", "put it after --, for example: heapwright tune -- ./prog")
    if container is None:
        check_command(words[0], Path.cwd())
    file = WorkloadFile(command=words, timeout=timeout, success=list(success), prefix=prefix)
    return Workload(file, Path.cwd(), (Input("default"),), container=container)


def _wrong_load(server: Server) -> tuple[list[str], str] | None:
    """Return the key of a server's load that is wrong, and why; None if all are right."""
    if server.load and server.phase:
        return ["load"], "either load or [[server.phase]], not both"
    if not server.load and not server.phase:
        return ["load"], "is empty; give the command that loads the server"
    for number, phase in enumerate(server.phase):
        if bool(phase.load) == bool(phase.pause):
            return ["phase", str(number)], "needs either load (a command) or pause (seconds)"
        if not 0 <= phase.pause < _MAX_PAUSE_S:
            return ["phase", str(number), "pause"], f"must be from 0 to {_MAX_PAUSE_S:g} seconds"
    if server.phase and not any(phase.load for phase in server.phase):
        return ["phase", "0"], "no phase has a load, only pauses"
    if not 0 <= server.idle < _MAX_PAUSE_S:
        return ["idle"], f"must be from 0 to {_MAX_PAUSE_S:g} seconds"
    wrong = wrong_key(server.load_metrics) if server.load_metrics else None
    return (["load_metrics", wrong[0]], wrong[1]) if wrong else None


def _check(file: WorkloadFile, fail: Callable[[list[str], str], UsageError]) -> None:
    """Raise the error that `fail` makes of keys and a reason, for the first invalid value of a workload file."""
    if file.output.compare == "files" and not file.output.files:
        raise fail(["output", "files"], "compare = 'files' needs the files to compare")
    if file.output.compare == "command" and not file.output.command:
        raise fail(["output", "command"], "compare = 'command' needs the comparing command")
    if file.objective is not None and bool(file.objective.command) == bool(file.objective.function):
        raise fail(["objective"], "needs either a command or a function")
    if not 0 <= file.timeout < 1e9:
        raise fail(["timeout"], "must be from 0 to 1e9 seconds")
    for number, env in enumerate([file.env, *(i.env for i in file.input)]):
        if any(not name or "=" in name for name in env):
            raise fail(
                ["input", str(number - 1), "env"] if number else ["env"],
                "the name of a variable must not be empty or contain '='",
            )
    if not file.success:
        raise fail(["success"], "is empty, so no run could succeed; list the exit statuses, for example [0]")
    if file.server is not None:
        if wrong := _wrong_load(file.server):
            raise fail(["server", *wrong[0]], wrong[1])
        if file.server.stop not in signal.Signals.__members__:
            raise fail(["server", "stop"], f"no such signal: {file.server.stop} (for example SIGTERM)")
        if not 0 <= file.server.ready_port < 1 << 16:
            raise fail(["server", "ready_port"], f"{file.server.ready_port} is not a port from 0 to 65535")
        if file.server.ready_timeout <= 0:
            raise fail(["server", "ready_timeout"], "must be above 0")
    if file.prefix is not None:
        if not 0 <= file.prefix.seconds < 1e9 or bool(file.prefix.seconds) == bool(file.prefix.output):
            raise fail(
                ["prefix"], "needs either seconds (above 0) or output (a text that the command prints), not both"
            )
        if why := whole_only(file):
            raise fail(["prefix"], why)


def load_workload(path: Path, container: Container | None = None) -> Workload:
    """Read and check a workload.toml.

    Args:
        path: the file.
        container: where its command runs; None for this machine.

    Raises:
        UsageError: the file is invalid; the message names the file, the line and the key.
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
        if container is None:
            check_command(file.command[0], cwd, file.env.get("PATH"))
    except UsageError as error:
        raise fail(["command"], error.message) from None
    _check(file, fail)
    names = [i.name for i in file.input]
    for number, item in enumerate(file.input):
        if names.index(item.name) != number:
            raise fail(["input", str(number), "name"], f"two inputs are named '{item.name}'")
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
    return Workload(file, cwd, inputs, str(path.absolute()), container=container)
