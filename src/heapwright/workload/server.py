"""Runs a server under the meter: starts it, loads it, and stops it.

Memory, CPU time and faults are those of the server; wall time is that of the load. The load's own figures, the CPU time
that the server takes for it, and the memory that stays after it become metrics of the run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import signal
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypedDict

from heapwright.errors import HeapwrightError
from heapwright.files import scratch_folder
from heapwright.measure.container import Container, new_name
from heapwright.measure.meter import LOST_CHILDREN, MeterOptions, Run, release_rate, run_metered
from heapwright.measure.process_group import run_group
from heapwright.measure.process_tree import ProcessTree, parent_of
from heapwright.workload.last_line import TAIL_BYTES, last_line
from heapwright.workload.load_metrics import Figures, LoadMetrics, combine, own_keys, read_parts
from heapwright.workload.model import Server
from heapwright.workload.readiness import answers, port_in_use, wait_ready

ENDED_EARLY = "ended before it was ready"
ENDED_UNDER_LOAD = "ended during the load"
LOAD_TIMED_OUT = "the load command timed out"
ANOTHER = "another server may use its port"
NOT_STARTED = 126  # exit statuses from here on mean that a shell could not start the command, or signals
KILLED = "so heapwright killed it"  # in the failure of a server that its stop signal did not end
STOP_S = 10.0  # after its stop signal, heapwright kills a server that still runs
_GRACE_S = 0.3  # between the end of a server and the moment when the load or the meter has noticed it
_MAX_OUTPUT = 8 << 20  # bytes of a load's output that are read, from its end


class MeterArguments(TypedDict):
    """The arguments of `run_metered` that a command and a server share."""

    env: dict[str, str]
    cwd: Path
    keep: IO[bytes] | None
    forward: IO[bytes] | None
    container: Container | None


@dataclass
class _Load:
    """The result of a load's phases.

    Attributes:
        wall_s: the sum of the loads' wall time, in seconds.
        cpu_s: the server's CPU time from the first phase to the last, in seconds; None if the load ended the server.
        idle_bytes: resident memory when the idle time was over.
        parts: the figures that the loads printed.
        trouble: what went wrong, or empty.
        loads: how often the whole load ran.
    """

    wall_s: float = 0.0
    cpu_s: float | None = None
    idle_bytes: float | None = None
    parts: list[Figures] = field(default_factory=list)
    trouble: str = ""
    loads: int = 1


class _ServerThread(threading.Thread):
    """Runs the server under the meter, and ends with its last process.

    Args:
        command: the server's command.
        options: how to measure.
        how: environment, directory and output of the server.

    Attributes:
        ended_at: when it ended, by the monotonic clock in seconds; infinity while it runs.
    """

    def __init__(self, command: list[str], options: MeterOptions, how: MeterArguments) -> None:
        super().__init__(daemon=True)
        self._target_of_meter = command, options, how
        self._result: Run | BaseException = HeapwrightError("the server cannot be stopped")
        self.ended_at = math.inf

    def run(self) -> None:
        """Run the server."""
        command, options, how = self._target_of_meter
        try:
            self._result = run_metered(command, options, **how)
        except BaseException as error:  # handed to the caller's thread
            self._result = error
        finally:
            self.ended_at = time.monotonic()

    def run_or_raise(self) -> Run:
        """Return the measurements of the server that has ended, or raise the error that ended it."""
        if isinstance(self._result, BaseException):
            raise self._result
        return self._result


def run_server(
    command: list[str], options: MeterOptions, how: MeterArguments, plain: Mapping[str, str], server: Server
) -> tuple[Run, str]:
    """Start the server under the meter, wait until it is ready, run the load, and stop the server.

    Args:
        command: the server's command.
        options: how to measure.
        how: environment, directory and output of the server.
        plain: the environment of the load and the ready check, without the settings on trial.
        server: how to load and stop the server.

    Returns:
        The run, and what went wrong, or empty.
    """
    if taken := port_in_use(server, how["cwd"], plain):
        raise HeapwrightError(
            f"port {taken} already answers before the server is started",
            "stop the other server ('ss -ltnp' names it), or choose another port",
        )
    kept = contextlib.ExitStack()
    pid_file = kept.enter_context(scratch_folder()) / "pid"
    pid_file.touch()
    wrapper = ["/bin/sh", "-c", 'echo $$ > "$0"; exec "$@"', str(pid_file), *command]
    container = how["container"]
    if container is not None:  # its runtime knows the process
        container = dataclasses.replace(container, name=new_name(), server=True)
        wrapper, how = command, MeterArguments(**{**how, "container": container})

    thread = _ServerThread(wrapper, dataclasses.replace(options, end_after=0.0), how)
    thread.start()
    load = _Load()
    tree = None
    in_background = False
    try:
        if container is None:  # now, because the server's first process may end before the others
            tree = _tree_of(pid_file, thread)
        failing = wait_ready(server, thread, how["cwd"], plain)
        if not failing:
            if container is not None:
                tree = _tree_inside(container)
            if options.end_after:
                _repeat_load(load, server, thread, how["cwd"], plain, options.end_after, tree)
            else:
                _run_load(load, server, thread, how["cwd"], plain, options.timeout, tree)
        else:
            late = f"not ready within {server.ready_timeout:g} s: {failing}"
            load.trouble = late if thread.is_alive() else ENDED_EARLY
        ended_by_itself = not thread.is_alive()
        in_background = tree is not None and container is None and not parent_of(int(pid_file.read_text()))
    finally:
        if container is None:
            stopped = _stop_server(pid_file, server, thread, tree)
        else:
            stopped = _stop_inside(container, server, thread)
        kept.close()
    run = thread.run_or_raise()
    if not stopped and not load.trouble:
        load.trouble = _why_not_stopped(server, in_background)
    if ended_by_itself and 0 < run.exit_code < NOT_STARTED and answers(server.ready, how["cwd"], plain):
        load.trouble = f"exit status {run.exit_code}, and the ready command succeeds without the server: {ANOTHER}"
    return (_with_load(run, load, server) if load.wall_s else run), load.trouble


def _why_not_stopped(server: Server, in_background: bool) -> str:
    """Say why a server had to be killed, and what to change.

    Args:
        server: how to stop the server.
        in_background: whether its first process ended and left others.
    """
    if in_background:
        return (
            f"the server's first process ended before {server.stop} and left others, {KILLED} (start it in the"
            " foreground, as `nginx -g 'daemon off;'`)"
        )
    return (
        f"the server did not end within {STOP_S:g} s of {server.stop}, {KILLED} (set `stop` in the workload file to a"
        " signal that ends it; if the command is a wrapper that does not pass the signal on, such as runuser, use one"
        " that becomes the server, such as setpriv)"
    )


def _run_load(
    load: _Load,
    server: Server,
    thread: _ServerThread,
    cwd: Path,
    plain: Mapping[str, str],
    timeout: float,
    tree: ProcessTree | None,
) -> None:
    """Run the phases of the load, then wait for the idle time.

    Args:
        load: gets the results, also if this raises an error.
        server: the phases.
        thread: runs the server.
        cwd: the directory of the load.
        plain: the environment of the load.
        timeout: maximum seconds of each phase; 0 for no limit.
        tree: the server's processes; None if it ended at once.
    """
    before = tree.cpu_s() if tree else 0.0
    for number, phase in enumerate(server.phases, 1):
        if phase.load:
            _run_phase(load, phase.load, cwd, plain, timeout, server.load_metrics)
        else:
            thread.join(phase.pause)
        if load.trouble:
            thread.join(_GRACE_S)  # if the server has crashed, the meter is about to end
        last = number == len(server.phases) and server.idle == 0 and not load.trouble
        # The last load may end the server as its last act. A server that is gone earlier was not
        # loaded to the end.
        grace_s = _GRACE_S if last and phase.load else 0.0
        if thread.ended_at <= time.monotonic() - grace_s:
            load.trouble = ENDED_UNDER_LOAD
        if load.trouble:
            return
    if tree is None or not thread.is_alive():
        return
    load.cpu_s = max(0.0, tree.cpu_s() - before)  # the CPU time of a process that nobody waits for is lost
    if server.idle:
        thread.join(server.idle)
        load.idle_bytes = tree.resident_bytes()


def _repeat_load(
    load: _Load,
    server: Server,
    thread: _ServerThread,
    cwd: Path,
    plain: Mapping[str, str],
    seconds: float,
    tree: ProcessTree | None,
) -> None:
    """Run the whole load again and again for a time. A load that is still running at the end of it does not count.

    Args:
        load: gets the results, also if this raises an error.
        server: the phases.
        thread: runs the server.
        cwd: the directory of the load.
        plain: the environment of the load.
        seconds: how long.
        tree: the server's processes; None if it ended at once.
    """
    end = time.monotonic() + seconds
    load.loads = 0
    while (left := end - time.monotonic()) > 0:
        once = _Load()
        _run_load(once, server, thread, cwd, plain, left, tree)
        if once.trouble == LOAD_TIMED_OUT and time.monotonic() >= end:
            if not load.loads:
                load.trouble = f"no load ended within {seconds:g} s"
            return
        load.loads += 1
        load.trouble, load.idle_bytes = once.trouble, once.idle_bytes
        load.wall_s += once.wall_s
        load.parts += once.parts
        if once.cpu_s is not None:
            load.cpu_s = (load.cpu_s or 0.0) + once.cpu_s
        if load.trouble:
            return


def _run_phase(
    load: _Load, words: list[str], cwd: Path, plain: Mapping[str, str], timeout: float, how: LoadMetrics | None
) -> None:
    """Run one load command and read its figures."""
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as complaints:
        file = cwd / how.file if how and how.file else None
        was = _state(file)
        began = time.monotonic()
        try:
            status = run_group(
                words,
                timeout or None,
                cwd=cwd,
                env=dict(plain),
                stdin=subprocess.DEVNULL,
                stdout=printed if how and not file else subprocess.DEVNULL,
                stderr=complaints,
            )
        except subprocess.TimeoutExpired:
            load.trouble = LOAD_TIMED_OUT
            return
        except OSError as error:
            raise HeapwrightError(f"the load command does not start: {error}") from None
        finally:
            load.wall_s += time.monotonic() - began
        if status:
            last = last_line(_tail(complaints, TAIL_BYTES))
            load.trouble = f"the load command failed with status {status}" + (f": {last}" if last else "")
        elif how and file:
            if _state(file) not in (was, None):  # otherwise it is from an earlier run
                with contextlib.suppress(OSError), file.open("rb") as content:
                    load.parts += read_parts(_tail(content, _MAX_OUTPUT), how)
        elif how:  # some tools write their report to stderr
            load.parts += read_parts(_tail(printed, _MAX_OUTPUT), how) or read_parts(
                _tail(complaints, _MAX_OUTPUT), how
            )


def _with_load(run: Run, load: _Load, server: Server) -> Run:
    """Return the run with the metrics of its load.

    The kernel counts the peak of resident memory in batches of pages for each thread. The sum over mappings, which is
    the idle memory, is exact, so it may exceed the peak. As a reading, it is a lower bound of the peak.
    """
    metrics = {**run.metrics, "wall_s": load.wall_s, "idle_rss_bytes": load.idle_bytes}
    metrics["release_rate"] = release_rate(metrics)
    if load.idle_bytes is not None and metrics["peak_rss_bytes"] is not None:
        metrics["peak_rss_bytes"] = max(metrics["peak_rss_bytes"], load.idle_bytes)
    warnings = list(run.warnings)
    how = server.load_metrics
    if how is not None and not load.trouble:
        count = how.operations * load.loads if isinstance(how.operations, int) else None
        found = combine(load.parts, count, load.wall_s)
        where = f"the file {how.file}" if how.file else "the load's output"
        unread = [name for name in own_keys(how) if getattr(found, name) is None]
        if how.format and not load.parts:
            warnings.append(f"[server.load_metrics] found no figure in {where} (format = '{how.format}')")
        elif unread:
            warnings.append(f"[server.load_metrics] found no number for {', '.join(unread)} in {where}")
        metrics |= {name: value for name, value in dataclasses.asdict(found).items() if name in metrics}
        metrics["load_operations"] = found.operations
        if found.throughput_per_s:
            metrics["time_per_op_s"] = 1 / found.throughput_per_s
        if load.cpu_s is not None and found.operations and not any(LOST_CHILDREN in text for text in warnings):
            metrics["cpu_per_op_s"] = load.cpu_s / found.operations
    return dataclasses.replace(run, metrics=metrics, warnings=warnings)


def _tail(file: IO[bytes], size: int) -> str:
    """Return the last `size` bytes of a file as text."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - size))
    return file.read(size).decode(errors="replace")


def _state(file: Path | None) -> tuple[int, int, int] | None:
    """Return what changes when a regular file is written; None if there is none."""
    try:
        found = file.stat() if file else None
    except OSError:
        return None
    regular = found is not None and stat.S_ISREG(found.st_mode)  # opening a FIFO might wait for ever
    return (found.st_ino, found.st_size, found.st_mtime_ns) if found and regular else None


def _tree_of(pid_file: Path, thread: threading.Thread, limit_s: float = math.inf) -> ProcessTree | None:
    """Return the processes of the server; None if it has ended, or has not started by then.

    Args:
        pid_file: contains the process id of the server, whose parent is its meter, as soon as it starts.
        thread: runs the server.
        limit_s: how long to wait for the start, in seconds.
    """
    text = ""
    deadline = time.monotonic() + limit_s
    while not text and thread.is_alive() and time.monotonic() < deadline:
        text = pid_file.read_text().strip()
        if not text:
            time.sleep(0.005)
    meter = parent_of(int(text)) if text.isdecimal() else 0
    return ProcessTree(meter) if meter > 1 else None


def _tree_inside(container: Container) -> ProcessTree | None:
    """Return the processes of a container that this machine's kernel runs; None if there are none."""
    meter = container.pid()
    return ProcessTree(meter) if meter > 1 else None


def _stop_inside(container: Container, server: Server, thread: threading.Thread) -> bool:
    """Stop a server in a container by its signal, which the meter passes on; by SIGKILL after `STOP_S`.

    The meter kills the server at the second SIGINT, and still writes its report. Returns whether the first signal was
    enough.
    """
    stopped = False
    for names in ((server.stop,), ("SIGINT", "SIGINT"), ("KILL",)):
        for name in names if thread.is_alive() else ():
            container.signal(name)
        thread.join(STOP_S)
        stopped = stopped or (names == (server.stop,) and not thread.is_alive())
    return stopped


def _stop_server(pid_file: Path, server: Server, thread: threading.Thread, tree: ProcessTree | None) -> bool:
    """Stop the server by its signal, and after `STOP_S` all of its processes by SIGKILL.

    Args:
        pid_file: contains the server's process id.
        server: names the signal.
        thread: runs the server, and ends with its last process.
        tree: the server's processes; None if it has ended, or if Ctrl-C came before they were known. Workers may live
            longer than the process that started them.

    Returns:
        Whether the first signal was enough.
    """
    first = signal.Signals[server.stop]
    for number in (first, signal.SIGKILL):
        tree = tree or _tree_of(pid_file, thread, STOP_S)
        members = tree.members() if tree else []
        main = int(pid_file.read_text().strip() or 0)
        for pid in members if number == signal.SIGKILL else [main] if main in members else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        thread.join(STOP_S)
        if not thread.is_alive():
            return number == first
    return False
