"""Records a command: preloads the recorder into it and its children, and packs their raw files into traces.

Each process writes a raw file PID-K.raw into a folder beside the future trace. K counts the programs that one process
executes one after the other. When the command has ended, its raw files are packed. The process with the most events
becomes the requested trace; all others go into one folder beside it (`others_folder`). The folder of raw files is
removed only when everything is packed. So if anything fails, `recover` can make traces of it.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
import re
import shlex
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from heapwright.allocators.preload_obstacles import find_obstacle
from heapwright.allocators.program_file import read_program
from heapwright.allocators.registry import Allocator, own_library
from heapwright.allocators.space_spec import preload_variables
from heapwright.errors import FAILED, INTERRUPTED, HeapwrightError, UsageError
from heapwright.files import is_stream
from heapwright.platforms import INSIDE, need_platform
from heapwright.trace.pack import Packed, pack
from heapwright.trace.process_ends import ending_now, noting_ends
from heapwright.trace.raw_files import (
    SUFFIX,
    begun_files,
    check_writable,
    executable,
    first_rate,
    first_word,
    packing_folder,
    process_ids,
    raw_files_in,
    raw_folder,
)
from heapwright.trace.sampling import LIBRARY, Sampling
from heapwright.trace.watched_command import recording_processes, run_command
from heapwright.workload.execute import Executor, Outcome
from heapwright.workload.model import Input

RECORDER = "libheapwright-record.so"
COMPLETE = Sampling()
# Of an outer recording; its other variables hold for an inner one too.
_OWN_VARIABLES = {
    f"HEAPWRIGHT_RECORD_{name}"
    for name in ("PARENT", "SAMPLE", "MAX_SIZE", "MAX_COST", "AFTER", "FOR", "WINDOW_SIGNAL")
}
_OF_PROCESS = re.compile(r"\d+(-\d+)?\.hwt")  # a trace in `others_folder`
_TITLE = re.compile(r"-|.*[\s:]")  # of a login shell, or a title that the process has given itself


@dataclass(frozen=True)
class RecordedProcess:
    """One recorded process.

    Attributes:
        trace: its packed trace.
        raw_bytes: size of the file that the recorder wrote.
        pid, parent: process ids.
        executable: the file of the program, or empty if unknown.
        name: the program as the user calls it, which may be a link to the file; empty if unknown.
        packed: counts of the trace.
        warning: one line about lost events, or why there are none; or empty.
        unseen: whether the recorder ran in the process, but cannot see the calls of its malloc.
        first_rate: at which its sample began; 0 of a complete recording.
    """

    trace: Path
    raw_bytes: int
    pid: int
    parent: int
    executable: str
    name: str
    packed: Packed
    warning: str
    unseen: bool = False
    first_rate: int = 0


@dataclass
class RecordedCommand:
    """A recorded command.

    Attributes:
        status: its exit status (128 + signal).
        processes: those with the most events first.
        failure: why the run of a workload does not count, or empty.
        running: ids of recorded processes that still run; their traces end early.
    """

    status: int
    processes: list[RecordedProcess] = field(default_factory=list)
    failure: str = ""
    running: list[int] = field(default_factory=list)


def recorder(name: str = RECORDER) -> Path:
    """Returns the path of a recorder, a library to preload.

    Raises:
        HeapwrightError: it is not installed, or LD_PRELOAD cannot name its path.
    """
    path = own_library(name)
    if not path.is_file():
        raise HeapwrightError(f"there is no recorder {path}", "run 'make build', or reinstall heapwright")
    return path


def recording_environment(
    folder: Path,
    allocator: Allocator | None,
    children: bool,
    base: Mapping[str, str],
    sampling: Sampling = COMPLETE,
    platform: str = "",
) -> dict[str, str]:
    """Returns the environment that records a program.

    Args:
        folder: where the recorder writes raw files.
        allocator: preloaded behind the recorder; None for the malloc that the program has.
        children: record child processes too.
        base: the environment to start from.
        sampling: what to record.
        platform: of the container in which it runs; empty for this machine.
    """
    env = {key: value for key, value in base.items() if key not in _OWN_VARIABLES}
    if allocator is not None:
        env |= allocator.environment(env)
    name = RECORDER if sampling.complete else LIBRARY
    library = Path(INSIDE, "lib", name) if platform else recorder(name)
    env |= preload_variables(str(library), env) | sampling.variables()
    env["HEAPWRIGHT_RECORD"] = str(folder.resolve())
    if not children:
        env["HEAPWRIGHT_RECORD_PARENT"] = str(os.getpid())
    return env


def others_folder(trace: Path) -> Path:
    """Returns the folder for traces of all processes except the busiest: `prog.processes` for `prog.hwt`."""
    return trace.with_name(f"{trace.name.removesuffix('.hwt')}.processes")


def check_target(trace: Path, force: bool) -> None:
    """Fails with one clear line unless a trace, and a folder for other processes, can be written there.

    Raises:
        UsageError: one of them exists or is of another kind, or the folder above is missing or not writable.
    """
    if trace.is_dir():
        raise UsageError(f"{trace} is a directory", "name a file: -o prog.hwt")
    if is_stream(trace):  # a regular file would take its place
        raise UsageError(f"{trace} is a device or a pipe", "name a regular file: -o prog.hwt")
    others = others_folder(trace)
    if others.exists() and not others.is_dir():
        raise UsageError(f"the folder {others} cannot be made: it is a file", "name another trace with -o")
    for path in (trace, others):
        if path.exists() and not force:
            raise UsageError(f"{path} exists already", "--force overwrites it")
    if not trace.parent.is_dir():
        raise UsageError(f"no such directory: {trace.parent}")
    if not os.access(trace.parent, os.W_OK | os.X_OK):
        raise UsageError(f"the folder {trace.parent} is not writable", "-o names a trace in another folder")


def record(
    command: Sequence[str],
    trace: Path,
    allocator: Allocator | None = None,
    children: bool = True,
    force: bool = False,
    stdin: Path | None = None,
    sampling: Sampling = COMPLETE,
) -> RecordedCommand:
    """Runs a command and records it.

    Args:
        command: run as it is, with our stdin, stdout and stderr.
        trace: the file for the trace of its busiest process.
        allocator: run the command on this one; None for the malloc that it has.
        children: record its children too.
        force: overwrite an existing trace.
        stdin: a file that it reads instead of our stdin.
        sampling: what to record.

    Raises:
        HeapwrightError: it could not be started or recorded, or its raw files could not be packed; the hint names the
            files that are left.
    """

    def run(folder: Path) -> tuple[int, str]:
        env = recording_environment(folder, allocator, children, os.environ, sampling)
        with ExitStack() as stack:
            source = stack.enter_context(stdin.open("rb")) if stdin else None
            return run_command(command, env, source, folder if children else None), ""

    return _recorded(command[0], trace, force, run)


def record_workload(
    executor: Executor,
    input_: Input,
    trace: Path,
    allocator: Allocator | None = None,
    children: bool = True,
    force: bool = False,
    sampling: Sampling = COMPLETE,
) -> RecordedCommand:
    """Runs one input of a workload and records it. A server is started, loaded and stopped.

    The status of the result is 0 if the run succeeded by the rules of the workload: a server that its signal
    stopped has not failed.

    Args:
        executor: runs the workload.
        input_: the input to run.
        trace: the file for the trace of its busiest process.
        allocator: run the program on this one; None for the malloc that it has.
        children: record its children too.
        force: overwrite an existing trace.
        sampling: what to record.

    Raises:
        HeapwrightError: as `record` does.
    """

    def run(folder: Path) -> tuple[int, str]:
        outcome = run_recorded(executor, input_, folder, allocator, children, sampling)
        return executor.exit_status(outcome), outcome.failure

    if executor.workload.container is not None:
        need_platform(executor.workload.container.image.platform)
    return _recorded(executor.workload.program(input_), trace, force, run)


def run_recorded(
    executor: Executor,
    input_: Input,
    folder: Path,
    allocator: Allocator | None = None,
    children: bool = True,
    sampling: Sampling = COMPLETE,
) -> Outcome:
    """Runs an input of a workload once and leaves raw files in a folder. See `Executor.run`.

    A shell of ours starts a server, and the meter starts any program. These must not be recorded. So one more shell
    switches the recorder on and then becomes the program.

    Args:
        executor: runs the workload.
        input_: the input to run.
        folder: for the raw files.
        allocator: run the program on this one; None for the malloc that it has.
        children: record its children too.
        sampling: what to record.
    """
    workload = executor.workload
    base = {**workload.base_environment(), **input_.env}
    if workload.container is not None:
        env = recording_environment(folder, allocator, True, base, sampling, workload.container.image.platform)
        if not children:
            env["HEAPWRIGHT_RECORD_PARENT"] = "1"  # the meter is static, and the first process of the container
        return executor.run(input_, env)
    env = recording_environment(folder, allocator, True, base, sampling)
    only = "" if children else "export HEAPWRIGHT_RECORD_PARENT=$PPID; "
    start = ["/bin/sh", "-c", f'{only}export HEAPWRIGHT_RECORD="$0"; exec "$@"', env.pop("HEAPWRIGHT_RECORD")]
    recording = copy.copy(executor)
    file = msgspec.structs.replace(workload.file, command=[*start, *workload.file.command])
    recording.workload = dataclasses.replace(workload, file=file)
    return recording.run(input_, env)


def _recorded(program: str, trace: Path, force: bool, run: Callable[[Path], tuple[int, str]]) -> RecordedCommand:
    """Calls `run(folder)`, which fills a folder with raw files and returns status and failure; packs the files."""
    check_target(trace, force)
    obstacle = find_obstacle(program)
    if obstacle is not None and obstacle.certain:
        raise HeapwrightError(obstacle.why, obstacle.instead)
    folder = raw_folder(trace)
    try:
        with noting_ends(folder):
            status, failure = run(folder)
    except (HeapwrightError, OSError, KeyboardInterrupt) as error:
        if not any(raw.stat().st_size for raw in raw_files_in(folder)):
            shutil.rmtree(folder, ignore_errors=True)
            raise
        if not isinstance(error, KeyboardInterrupt):
            raise _kept(folder, trace, "the recording ended early", error) from None
        status, failure = INTERRUPTED, "it was interrupted"
    if not raw_files_in(folder):
        try:
            check_writable(folder)  # the disk may have become full meanwhile
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        raise nothing_recorded(program, status)
    running = recording_processes(folder)
    return RecordedCommand(status, recover(folder, trace, program, status, running), failure, running)


def recover(
    folder: Path,
    trace: Path,
    program: str = "",
    status: int = 0,
    running: Collection[int] = (),
    *,
    remove: bool = True,
) -> list[RecordedProcess]:
    """Packs the raw files of a folder, which may be on another file system than the trace.

    Args:
        folder: of the raw files.
        trace: the file for the trace of the busiest process.
        program: the recorded program, to explain why nothing was recorded.
        status: its exit status, which the error gets if nothing was recorded.
        running: ids of processes that still run.
        remove: remove the packed files, and the folder if `record` made it.

    Returns:
        The processes, those with the most events first.

    Raises:
        HeapwrightError: no process allocated anything; or a file could not be packed, and all raw files are left.
    """
    raws = raw_files_in(folder)
    own = _with_own_malloc(program)
    if not raws:
        raise UsageError(
            f"there are no recordings in {folder}",
            f"the folder of a recording is called .TRACE.*{SUFFIX}, beside the future trace",
        )
    try:
        with packing_folder(trace) as packing, ending_now(raws, running):
            drafts = [_Draft(raw, packing / f"{raw.stem}.hwt") for raw in begun_files(raws)]
            sampled = any(draft.packed.sample for draft in drafts)  # each at its own rate
            drafts.sort(key=lambda draft: -(draft.packed.requests if sampled else draft.packed.events))
            empty = not any(draft.packed.allocations for draft in drafts if not own or executable(draft.raw) != own)
            result = [] if empty else _place_all(drafts, trace, running)
    except (HeapwrightError, OSError, KeyboardInterrupt) as error:
        raise _kept(folder, trace, "the recordings could not be packed", error) from None
    if remove:
        with contextlib.suppress(OSError):  # somebody else's files, or a file system that is read-only
            for raw in raws:
                raw.unlink()
            if folder.name.endswith(SUFFIX):
                folder.rmdir()
    if empty:
        if late := next((draft.warning for draft in drafts if "the window did not begin" in draft.warning), ""):
            hint = (
                "give a shorter --after, or send the signal of --window-signal earlier; if the program handles that"
                " signal itself, choose another one, such as RTMAX"
            )
            raise HeapwrightError(f"nothing was recorded: {late.rpartition(': ')[2]}", hint, status or 1)
        stopped = next((draft.warning for draft in drafts if "recording stopped" in draft.warning), "")
        if stopped:
            why = "nothing was recorded, because the " + stopped[stopped.index("recording stopped") :]
            raise HeapwrightError(why, "free some space, or record on another disk", status or 1)
        raise nothing_recorded(program, status)
    return result


def _kept(folder: Path, trace: Path, what: str, error: BaseException) -> HeapwrightError:
    """Returns the error that says what failed, why, and how to make a trace of the raw files, which are kept."""
    why = error.message if isinstance(error, HeapwrightError) else str(error) or "interrupted"
    command = shlex.join(["heapwright", "record", "--recover", str(folder), "-o", str(trace)])
    status = INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED
    return HeapwrightError(f"{what}: {why}", f"the raw files are kept; to pack them: {command}", status)


def _with_own_malloc(program: str) -> str:
    """Returns the real path of a program with its own malloc, of which only the start-up is recorded; else empty."""
    found = read_program(program)
    return str(found.path.resolve()) if found is not None and found.own_malloc and not found.passes_on else ""


class NoCallsError(HeapwrightError):
    """Nothing was recorded of a program that can be recorded: it made no call of malloc."""


def nothing_recorded(program: str, status: int = 0) -> HeapwrightError:
    """Returns the error that explains why nothing was recorded of a program that ran; it has its exit status, or 1."""
    obstacle, what = find_obstacle(program), f"nothing was recorded{f' of {Path(program).name}' if program else ''}"
    if obstacle is not None:
        return HeapwrightError(f"{what}: {obstacle.reason}", obstacle.instead, status or 1)
    hint = "it may have an allocator of its own, or need none"
    return NoCallsError(f"{what}: no call of malloc was seen", hint, status or 1)


def program_name(executable: str, word: str) -> str:
    """Returns the name under which a program was started: 'redis-server', though that is a link to redis-check-rdb.

    Args:
        executable: the path of its file.
        word: the first word of its command line.
    """
    name = Path(word).name
    return Path(executable).name if not name or _TITLE.match(word) else name


class _Draft:
    """A raw file and its packed trace, which has not its final name yet."""

    def __init__(self, raw: Path, trace: Path) -> None:
        self.raw = raw
        self.trace = trace
        self.packed, self.warning = pack(raw, trace)


def _place_all(drafts: Sequence[_Draft], trace: Path, running: Collection[int]) -> list[RecordedProcess]:
    """Renames packed traces: the first to `trace`, the others into its folder.

    Removes traces that an older recording has left in the folder.
    """
    others = others_folder(trace)
    for old in others.glob("*.hwt"):
        if _OF_PROCESS.fullmatch(old.name):
            old.unlink()
    if len(drafts) > 1:
        others.mkdir(exist_ok=True)
    elif others.is_dir() and not any(others.iterdir()):
        others.rmdir()
    names = [trace, *(others / f"{draft.raw.stem.removesuffix('-0')}.hwt" for draft in drafts[1:])]
    return [_place(draft, name, running) for draft, name in zip(drafts, names, strict=True)]


def _place(draft: _Draft, name: Path, running: Collection[int]) -> RecordedProcess:
    """Renames a packed trace and returns its process."""
    raw, packed = draft.raw, draft.packed
    pid, parent = process_ids(raw)
    raw_bytes, file, word = raw.stat().st_size, executable(raw), first_word(raw)
    draft.trace.replace(name)
    warning = draft.warning.removeprefix(f"{raw}: ")
    if pid in running and packed.cut_short:  # nothing has killed it
        warning = f"process {pid} still runs; its trace ends here"
    obstacle = None if packed.allocations or not file else find_obstacle(file)
    unseen = obstacle is not None and obstacle.certain
    if obstacle is not None and unseen:  # a script or another program has started it
        warning = f"nothing is recorded: {obstacle.reason}"
    program, rate = program_name(file, word), first_rate(raw)
    return RecordedProcess(name, raw_bytes, pid, parent, file, program, packed, warning, unseen, rate)
