"""Replays a trace: makes it ready once, and plays it under any allocator as often as needed, like any other command.

    with make_ready(Path("prog.hwt")) as ready:
        run = replay_once(ready, MeterOptions(), environment(allocator, settings, os.environ))

`make_ready` writes the trace as flat operations (native/replay/ops.h) into a file, which each replay reads in chunks of
32 KiB. So a search that replays a trace a thousand times decodes it once, and no measurement includes the decoding.
`workload(ready)` is a Workload whose command replays the trace.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import msgspec

from heapwright.errors import HeapwrightError, UsageError, unknown
from heapwright.files import scratch_folder
from heapwright.trace.info import nothing_in
from heapwright.trace.pack import ask, native_program, need_trace
from heapwright.trace.process_ends import has_exited
from heapwright.trace.replay_report import Reading, Report, play, read_report, why_failed
from heapwright.units import show_bytes

if TYPE_CHECKING:
    from heapwright.allocators.registry import Allocator
    from heapwright.measure.meter import MeterOptions, Run
    from heapwright.workload.model import Workload

Touch = Literal["none", "page", "full"]

# The runtime libraries of C++, which allocators written in C++ load.
Library: TypeAlias = Literal["libstdc++.so.6", "libm.so.6", "libgcc_s.so.1"]
RUNTIME: tuple[Library, ...] = get_args(Library)

_EVENT_BYTES = 8  # of an event in the operations file
_MANY_EVENTS = 100_000_000  # at 0.5 to 1.5 µs each


def runtime_of(executable: str) -> list[str]:
    """Returns the libraries of RUNTIME that a program loads; none if the program does not exist."""
    known = _linked_libraries(executable)
    return [library for library in RUNTIME if library in known]


def _linked_libraries(executable: str) -> dict[str, str]:
    """Returns the paths of the libraries that a program is linked with, by name; none if it does not exist."""
    if not os.access(executable, os.R_OK):
        return {}
    done = subprocess.run(["ldd", executable], capture_output=True, check=False, stdin=subprocess.DEVNULL)
    lines = [line.split() for line in done.stdout.decode(errors="replace").splitlines() if line.strip()]
    return {words[0]: words[2] if words[1:2] == ["=>"] and len(words) > 2 else words[0] for words in lines}


class Operations(msgspec.Struct):
    """Counts of an operations file, which heapwright-trace prints. Bytes and seconds.

    Attributes:
        events: calls of malloc and the other allocation functions that a replay makes.
        threads: of the trace.
        lanes: threads that exist at the same time, at most.
        epochs: how often threads wait until all have finished an epoch.
        own_slots, shared_slots: table entries for objects of one thread, and for objects that threads share.
        dropped: events of objects that are not live; they are not replayed.
        peak_live_bytes: the maximum of live bytes.
        recorded_s: duration of the recording.
        executable: the recorded program, or empty if unknown.
        allocator: the malloc that it was recorded on: a library's path, or 'glibc 2.36'.
        libraries: those of RUNTIME that a modelled program loads.
        lost_bytes, lost_events: that could not be read of the trace.
        cut_short: the trace has no proper end.
        sample: the rate of the sample that the trace was expanded from; 0 for a complete trace.
    """

    events: int
    threads: int
    lanes: int
    epochs: int
    own_slots: int
    shared_slots: int
    dropped: int
    peak_live_bytes: int
    recorded_s: float
    executable: str
    libraries: list[str]
    lost_bytes: int
    lost_events: int
    cut_short: bool
    sample: int = 0
    allocator: str = ""


@dataclass(frozen=True)
class ReadyTrace:
    """A trace that is ready for replay.

    Attributes:
        trace: the file it came from.
        file: the operations file, which replays read.
        operations: counts of that file.
        warning: one line about lost events, or empty.
    """

    trace: Path
    file: Path
    operations: Operations
    warning: str

    @cached_property
    def libraries(self) -> list[str]:
        """The libraries that allocators may load and that the program loads anyway.

        Every replay loads them. Otherwise they would count as memory of the allocator.
        """
        return [library for library in RUNTIME if library in self.operations.libraries] or runtime_of(
            self.operations.executable
        )

    @cached_property
    def own_malloc(self) -> str:
        """The library whose malloc the program has by itself; empty if that is the C library's or is not known.

        A replay loads it to stand for the program as it is.

        Raises:
            HeapwrightError: it is not on this machine.
        """
        library = self.operations.allocator
        if not library.startswith("/") or Path(library).name.startswith(("libc.", "ld-musl-")):
            return ""
        if not os.access(library, os.R_OK):
            raise HeapwrightError(f"{self.trace}: its program's malloc, {library}, is not on this machine")
        return library

    @cached_property
    def linked_malloc(self) -> str:
        """`own_malloc` if the program is linked with it, so that it stays loaded beside another malloc; else empty.

        Its data and its mappings at start then count as memory of the program under every malloc.
        """
        with suppress(HeapwrightError):  # it is not on this machine
            own = self.own_malloc
            linked = _linked_libraries(self.operations.executable).values() if own else ()
            return own if os.path.realpath(own) in map(os.path.realpath, linked) else ""
        return ""

    @cached_property
    def own_cpu_s(self) -> float:
        """CPU seconds of the replayer itself: those of a replay that makes no call and touches no memory."""
        with scratch_folder() as folder:
            report = folder / "report.json"
            words = [*command(self, report=report), "--dry"]
            return min(play(words, report).calls_cpu_s for _ in range(3))

    @cached_property
    def reference(self) -> list[Reading]:
        """Readings of a replay under the conditions of the recording: on the program's malloc, under the recorder.

        Raises:
            HeapwrightError: the replay failed.
        """
        from heapwright.trace import record

        with scratch_folder(self.file.parent) as folder:
            report = folder / "report.json"
            env = record.recording_environment(Path(folder), None, False, os.environ)
            own = ""
            with suppress(HeapwrightError):  # a trace of another machine; then the C library's malloc takes its place
                own = self.own_malloc
            env["LD_PRELOAD"] = ":".join(filter(None, [env.get("LD_PRELOAD", ""), own]))
            played = play(command(self, report=report), report, env)
            if not any(has_exited(raw) for raw in Path(folder).glob("*.raw")):  # its times lack the recorder's
                raise HeapwrightError(f"a replay could not be recorded in {self.file.parent}", "free some space there")
            return played.readings

    def mean_rss(self, report: Report) -> float:
        """Returns the resident memory of a replay in bytes, averaged over the time that the program would take."""
        timed = self._intervals(report)
        total = sum(time for time, _ in timed)
        return sum(time * size for time, size in timed) / total if total else report.readings[-1].resident_bytes

    def p95_rss(self, report: Report) -> float:
        """Returns the resident memory of a replay in bytes that the program would not exceed for 95% of its time."""
        timed = sorted(self._intervals(report), key=lambda one: one[1])
        left = 0.95 * sum(time for time, _ in timed)
        for time, size in timed:
            left -= time
            if left <= 0:
                return size
        return report.readings[-1].resident_bytes

    def _intervals(self, report: Report) -> list[tuple[float, int]]:
        """The intervals between readings: nanoseconds that the program would have taken, and resident bytes at the end.

        The program's time contains calls of malloc, by `reference`. Under another malloc they take this replay's time.
        """
        whole = self.reference[-1]
        parallel = max(1.0, whole.cpu_ns / max(whole.wall_ns, 1))  # several threads spend CPU time at once
        found = []
        for number, reading in enumerate(report.readings[1:], 1):
            spent = (self.reference[number].cpu_ns - self.reference[number - 1].cpu_ns) / parallel
            spends = (reading.cpu_ns - report.readings[number - 1].cpu_ns) / parallel
            found.append((max(reading.recorded_ns - spent, 0.0) + spends, reading.resident_bytes))
        return found


@dataclass(frozen=True)
class ReplayRun:
    """One replay.

    Attributes:
        run: as the meter measured it.
        report: its own report; None if it did not finish.
        mean_rss_bytes, p95_rss_bytes: ReadyTrace.mean_rss, ReadyTrace.p95_rss.
    """

    run: Run
    report: Report | None
    mean_rss_bytes: float = 0.0
    p95_rss_bytes: float = 0.0

    @property
    def failure(self) -> str:
        """Why the replay does not count, or empty."""
        if self.run.timed_out:
            return "timed out"
        if self.run.exit_code:
            return why_failed(self.run.stderr_tail, self.run.exit_code)
        return "" if self.report else "the replay wrote no report"

    def metrics(self, own_cpu_s: float = 0.0) -> dict[str, float | None]:
        """Returns the metrics of the program's allocations, from the figures of the meter.

        The memory and the CPU time of the replayer are subtracted: its tables are resident, mapped and counted by
        Massif alike. Mean resident memory is over the time of the program, not over that of the replay.

        Proportional memory (PSS) is taken from resident memory. A replay is one process, and the pages of its heap are
        private to it. So a setting changes both by the same number of bytes, and only such differences are used.
        Resident memory is exact here, while a replay is too short for more than a few readings of PSS.

        Args:
            own_cpu_s: CPU seconds of the replayer (ReadyTrace.own_cpu_s).
        """
        found = dict(self.run.metrics)
        if self.report is None:
            return found
        own = self.report.own_rss_bytes
        found["mean_rss_bytes"] = _less_own_tables(self.mean_rss_bytes, own)
        found["p95_rss_bytes"] = _less_own_tables(self.p95_rss_bytes, own)
        found["final_rss_bytes"] = None  # a replay does not end as the program does
        for peak in ("peak_rss_bytes", "peak_heap_bytes", "peak_vm_bytes", "massif_peak_bytes"):
            if (value := found.get(peak)) is not None:
                found[peak] = _less_own_tables(value, own)
        found["peak_pss_bytes"], found["mean_pss_bytes"] = found.get("peak_rss_bytes"), found["mean_rss_bytes"]
        if found.get("cpu_s") is not None:
            found["cpu_s"] = max(0.0, (found["cpu_s"] or 0.0) - own_cpu_s)
        return found


def effort(events: int) -> str:
    """Returns a line on the time and disk space that replays of a long trace need; empty for a short one.

    Args:
        events: of the trace; of a sample those of the complete trace that it stands for.
    """
    if events < _MANY_EVENTS:
        return ""
    room = show_bytes(_EVENT_BYTES * events)
    return f"replays take minutes to prepare and {room} of disk; 'heapwright cut' makes a part of the trace"


@contextmanager
def make_ready(trace: Path, folder: Path | None = None) -> Iterator[ReadyTrace]:
    """Makes a trace ready for replays. Its operations file is removed when the block ends.

    Args:
        trace: in any form.
        folder: for the operations file; by default the folder for temporary files.

    Raises:
        HeapwrightError: the trace cannot be read, or the file cannot be written.
    """
    need_trace(trace)
    with scratch_folder(folder) as own:
        file = own / "operations"
        operations, warning = ask(Operations, "expand", trace, file)
        if not operations.events:
            raise nothing_in(trace)
        yield ReadyTrace(trace, file, operations, warning)


def command(
    ready: ReadyTrace,
    touch: Touch = "page",
    report: Path | None = None,
    real_pace: bool = False,
    slowdown: float = 1.0,
) -> list[str]:
    """Returns the command line of a replay.

    Args:
        ready: the trace.
        touch: which bytes of blocks the replay writes to: none, one per page, or all.
        report: the file for its report; None for no report.
        real_pace: make each call at its recorded time.
        slowdown: the allocator sees this many times the recorded time.
    """
    words = [str(native_program("heapwright-replay")), str(ready.file), "--touch", touch]
    words += ["--pace", "real"] if real_pace else []
    words += ["--slowdown", f"{slowdown:.4g}"] if slowdown != 1 else []
    return [*words, "--report", str(report)] if report else words


def workload(ready: ReadyTrace, touch: Touch = "page") -> Workload:
    """Returns the replay as a workload. Its output never changes, so it can be compared like that of any program."""
    from heapwright.workload.model import from_command

    return from_command(command(ready, touch))


def environment(allocator: Allocator, settings: Mapping[str, str], base: Mapping[str, str]) -> dict[str, str]:
    """Returns the whole environment of a replay under an allocator.

    Args:
        allocator: the one to replay on.
        settings: keys of its parameter space, or names of environment variables, with their values.
        base: the environment to start from.

    Raises:
        UsageError: a setting is neither, or would not take effect; or a library to preload cannot be read.
    """
    from heapwright.allocators.user_settings import check_settings

    space = allocator.space(threads=True, expert=True)
    known = {param.key for param in space.params}
    plain = {key: value for key, value in settings.items() if key not in known}
    for key in plain:
        if not (key.isidentifier() and key.isupper()):
            why = dict(space.skipped).get(key)
            if why and not why.startswith("never searched"):
                raise UsageError(f"--set {key}: {allocator.name} does not take it: {why}")
            raise unknown(f"setting of {allocator.name}", key, known)
    for library in re.split("[: ]+", plain.get("LD_PRELOAD", "")):
        if "/" in library and not os.access(library, os.R_OK):  # the loader would only skip it
            raise UsageError(f"--set LD_PRELOAD: {library} cannot be read", "name a library")
    chosen = {key: value for key, value in settings.items() if key in known}
    first = {**base, **allocator.environment(base), **plain}
    whole = {**first, **space.environment(chosen, first)}
    check_settings(allocator, settings, whole)
    return whole


def replay_once(
    ready: ReadyTrace,
    options: MeterOptions,
    env: Mapping[str, str],
    touch: Touch = "page",
    stop: threading.Event | None = None,
    real_pace: bool = False,
    slowdown: float = 1.0,
) -> ReplayRun:
    """Replays a trace once under the meter.

    Args:
        ready: the trace.
        options: of the meter.
        env: the whole environment, as `environment` returns it.
        touch: which bytes of blocks the replay writes to: none, one per page, or all.
        stop: ends the replay when another thread sets it.
        real_pace: make each call at its recorded time.
        slowdown: see `command`.

    Raises:
        HeapwrightError: the replay could not be run or measured.
        Stopped: `stop` was set.
    """
    from heapwright.measure.meter import run_metered

    if ready.libraries:
        env = {**env, "LD_PRELOAD": ":".join(filter(None, [env.get("LD_PRELOAD", ""), *ready.libraries]))}
    with scratch_folder() as folder:
        report = folder / "report.json"
        run = run_metered(command(ready, touch, report, real_pace, slowdown), options, env=env, stop=stop)
        read = read_report(report) if report.is_file() and report.stat().st_size and not run.exit_code else None
    mean, p95 = (ready.mean_rss(read), ready.p95_rss(read)) if read else (0.0, 0.0)
    return ReplayRun(dataclasses.replace(run), read, mean, p95)


def _less_own_tables(value: float, own: int) -> float | None:
    """Returns the bytes that a reading has beyond the replayer's own tables.

    None if the reading does not even include these: a meter that polls may read the memory of a replay of a few
    milliseconds only before its tables are mapped.
    """
    return value - own if value >= own else None
