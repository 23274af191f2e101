"""Recording a command: the recorder preloaded into it and its children, and what they leave packed into traces.

Each process writes a raw file PID-K.raw into a folder beside the trace to be (K counts what one process executed in
turn). When the command has ended they are packed: the process with the most events becomes the trace asked for, each
other one gets a name of its own beside it. The folder goes when everything is packed, and not before: whatever happens,
`recover` makes traces of it.
"""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from heapwright.allocators.registry import Allocator, library_folder
from heapwright.allocators.space import preloading
from heapwright.errors import HeapwrightError, UsageError
from heapwright.trace.pack import Packed, pack

SUFFIX = ".recording"
# raw_format.h: magic, version, block_bytes, clock, page_size, pid, parent … allocator at 128, executable at 640.
_RAW_START = struct.Struct("<QIIIIQQ")
_RAW_EXECUTABLE = slice(640, 640 + 1024)


@dataclass(frozen=True)
class Recorded:
    """One process as recorded.

    Attributes:
        trace: its packed trace.
        raw_bytes: what the recorder wrote of it.
        pid, parent: process ids.
        executable: the program, or empty where that is not known.
        packed: what is in the trace.
        warning: what was lost, or empty.
    """

    trace: Path
    raw_bytes: int
    pid: int
    parent: int
    executable: str
    packed: Packed
    warning: str


@dataclass
class Recording:
    """What became of a command: its exit status (128 + signal), and its processes, the busiest first."""

    status: int
    processes: list[Recorded] = field(default_factory=list)


def recorder() -> Path:
    """The library to preload.

    Raises:
        HeapwrightError: it is not installed, or lies where LD_PRELOAD cannot name it.
    """
    path = library_folder() / "libheapwright-record.so"
    if not path.is_file():
        raise HeapwrightError(f"there is no recorder {path}", "run 'make build', or reinstall heapwright")
    if any(c in ":" or c.isspace() for c in str(path)):
        raise HeapwrightError(
            f"LD_PRELOAD cannot name {path}", "install heapwright under a path without spaces and colons"
        )
    return path


def environment(folder: Path, allocator: Allocator | None, children: bool, base: Mapping[str, str]) -> dict[str, str]:
    """The variables that record a program into a folder, on top of an allocator if one is given."""
    env = {key: value for key, value in base.items() if key != "HEAPWRIGHT_RECORD_PARENT"}
    if allocator is not None:
        env |= allocator.environment(env)
    env |= preloading(str(recorder()), env)
    env["HEAPWRIGHT_RECORD"] = str(folder.resolve())
    if not children:
        env["HEAPWRIGHT_RECORD_PARENT"] = str(os.getpid())
    return env


def check_target(trace: Path, force: bool) -> None:
    """Fails with one clear line unless a trace can be written there.

    Raises:
        UsageError: it exists, is a directory, or its folder is not there or cannot be written to.
    """
    if trace.is_dir():
        raise UsageError(f"{trace} is a directory", "name a file: -o prog.hwt")
    if trace.exists() and not force:
        raise UsageError(f"{trace} exists already", "--force overwrites it")
    if not trace.parent.is_dir():
        raise UsageError(f"no such directory: {trace.parent}")
    if not os.access(trace.parent, os.W_OK | os.X_OK):
        raise UsageError(f"nothing can be written to {trace.parent}")


def record(
    command: Sequence[str],
    trace: Path,
    allocator: Allocator | None = None,
    children: bool = True,
    force: bool = False,
) -> Recording:
    """Runs a command and records it.

    Args:
        command: run as it is, with our stdin, stdout and stderr.
        trace: where the trace of its busiest process goes.
        allocator: recorded on top of this one; None is whatever malloc it has.
        children: record its children, too.
        force: overwrite an existing trace.

    Raises:
        HeapwrightError: it could not be started, was not recorded, or could not be packed; the hint says what is left.
    """
    check_target(trace, force)
    folder = Path(tempfile.mkdtemp(prefix=f".{trace.name}.", suffix=SUFFIX, dir=trace.parent))
    try:
        status = _run(command, environment(folder, allocator, children, os.environ))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if not any(folder.glob("*.raw")):
        shutil.rmtree(folder, ignore_errors=True)
        raise HeapwrightError(why_not_recorded(command[0]), status=status or 1)
    return Recording(status, recover(folder, trace))


def recover(folder: Path, trace: Path) -> list[Recorded]:
    """Packs what is in a folder of raw files, and removes it.

    Raises:
        HeapwrightError: a file could not be packed; all raw files are left.
    """
    raws = sorted(folder.glob("*.raw"))
    if not raws:
        raise UsageError(
            f"there are no recordings in {folder}", f"it is called .TRACE.*{SUFFIX}, beside the trace to be"
        )
    try:
        drafts = [(raw, *pack(raw, raw.with_suffix(".hwt"))) for raw in raws]
        drafts.sort(key=lambda draft: -draft[1].events)
        result = [_place(*draft, trace if number == 0 else None, trace) for number, draft in enumerate(drafts)]
    except (HeapwrightError, OSError, KeyboardInterrupt) as error:
        what = error.message if isinstance(error, HeapwrightError) else str(error) or "interrupted"
        how = f"what was recorded is kept: heapwright record --recover {folder} -o {trace}"
        raise HeapwrightError(f"the recordings could not be packed: {what}", how) from None
    shutil.rmtree(folder, ignore_errors=True)
    return result


def why_not_recorded(program: str) -> str:
    """Why nothing was recorded of a program that ran."""
    path = Path(shutil.which(program) or program)
    if path.exists() and path.stat().st_mode & 0o6000:
        return f"nothing was recorded: {program} runs set-user-ID or set-group-ID, and nothing is preloaded then"
    if _is_static(path):
        return f"nothing was recorded: {program} is linked statically, so nothing can be preloaded into it"
    return f"nothing was recorded: the recorder was not loaded into {program}"


def _is_static(path: Path) -> bool:
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with path.open("rb") as file:
            return not any(segment["p_type"] == "PT_INTERP" for segment in ELFFile(file).iter_segments())
    except (OSError, ELFError):
        return False


def _run(command: Sequence[str], env: Mapping[str, str]) -> int:
    """Its exit status. Ctrl-C reaches it from the terminal, TERM and HUP from us; it makes of them what it likes."""
    # Signals that come before the command is there are kept for it: in no moment can one end us and leave it running.
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if process is None:
            early.append(number)
        elif number != signal.SIGINT:
            process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        try:
            process = subprocess.Popen(command, env=env)
        except OSError as error:
            raise UsageError(f"{command[0]}: {error.strerror}") from None
        for number in early:
            process.send_signal(number)
        status = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status


def _place(raw: Path, packed: Packed, warning: str, name: Path | None, trace: Path) -> Recorded:
    """Puts a packed trace under its name."""
    start = raw.open("rb").read(_RAW_EXECUTABLE.stop)
    pid, parent = _RAW_START.unpack_from(start)[5:7]
    executable = start[_RAW_EXECUTABLE].split(b"\0", 1)[0].decode(errors="replace")
    if name is None:
        stem = raw.stem.removesuffix("-0")
        name = trace.with_name(f"{trace.stem}.{stem}.hwt")
        again = 1
        while name.exists():
            again += 1
            name = trace.with_name(f"{trace.stem}.{stem}.{again}.hwt")
    raw_bytes = raw.stat().st_size
    raw.with_suffix(".hwt").replace(name)
    return Recorded(name, raw_bytes, pid, parent, executable, packed, warning.removeprefix(f"{raw}: "))
