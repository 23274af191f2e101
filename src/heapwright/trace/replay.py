"""ReplaySearch a trace: made ready once, played as often as wanted, under any allocator, like any other command.

    with make_ready(Path("prog.hwt")) as ready:
        run = replay_once(ready, MeterOptions(), environment(allocator, settings, os.environ))

`make_ready` writes the trace as flat operations (native/replay/ops.h) into a file that every replay reads in fixed
windows; so a search that replays a trace a thousand times decodes it once, and no decoding is in what is measured.
For study code `workload(ready)` is a Workload whose command replays.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import msgspec

from heapwright.errors import HeapwrightError, UsageError, unknown
from heapwright.trace.pack import ask, native_program, need_trace

if TYPE_CHECKING:
    from heapwright.allocators.registry import Allocator
    from heapwright.measure.meter import MeterOptions, Run
    from heapwright.workload.model import Workload

Touch = Literal["none", "page", "full"]

# The runtime of C++, in which many allocators are written.
Library: TypeAlias = Literal["libstdc++.so.6", "libm.so.6", "libgcc_s.so.1"]
RUNTIME: tuple[Library, ...] = get_args(Library)


def runtime_of(executable: str) -> list[str]:
    """Which of the libraries of RUNTIME a program loads; none where it is not there."""
    if not os.access(executable, os.R_OK):
        return []
    done = subprocess.run(["ldd", executable], capture_output=True, check=False, stdin=subprocess.DEVNULL)
    known = {line.split()[0].decode(errors="replace") for line in done.stdout.splitlines() if line.strip()}
    return [library for library in RUNTIME if library in known]


class Plan(msgspec.Struct):
    """What heapwright-trace says of a trace made ready. Bytes and seconds.

    Attributes:
        events: calls of malloc and its kin that a replay makes.
        epochs: how often all threads wait for each other.
        dropped: events about objects that are not there; they are not replayed.
        recorded_s: how long the recording took.
        executable: the program recorded, or empty where that is not known.
        libraries: of a modelled program, those of RUNTIME it has loaded.
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


class Reading(msgspec.Struct, array_like=True):
    """What a replay read of itself at one moment of the trace: all before it is done, and nothing after.

    Attributes:
        recorded_ns: recorded time since the reading before.
        resident_bytes: resident memory.
        cpu_ns, wall_ns: CPU time of the process and time passed, since the first reading.
    """

    recorded_ns: int
    resident_bytes: int
    cpu_ns: int
    wall_ns: int


class Report(msgspec.Struct):
    """What a replay says of itself. Bytes and seconds.

    Attributes:
        events, events_expected: calls made, and calls in the trace.
        own_rss_bytes: memory of the replayer's own tables: the same from before the first call to after the last.
        readings: the first is before the first call, the last after the last.
    """

    events: int
    events_expected: int
    threads: int
    own_rss_bytes: int
    readings: list[Reading]

    @property
    def start_rss_bytes(self) -> int:
        """Resident memory before the first call: own tables, program image, the allocator's start."""
        return self.readings[0].resident_bytes

    @property
    def end_rss_bytes(self) -> int:
        """Resident memory after the last call."""
        return self.readings[-1].resident_bytes

    @property
    def elapsed_s(self) -> float:
        """Seconds the calls took, without starting the process."""
        return self.readings[-1].wall_ns / 1e9

    @property
    def calls_cpu_s(self) -> float:
        """CPU seconds of the calls, without starting the process."""
        return self.readings[-1].cpu_ns / 1e9


@dataclass(frozen=True)
class Ready:
    """A trace made ready.

    Attributes:
        trace: where it came from.
        operations: the file replays read.
        warning: what was lost of the trace, for people, or empty.
    """

    trace: Path
    operations: Path
    plan: Plan
    warning: str

    @cached_property
    def libraries(self) -> list[str]:
        """Of the libraries that allocators bring with them, those the program has anyway.

        A replay loads them in any case, or it would take them for memory of the allocator.
        """
        return [library for library in RUNTIME if library in self.plan.libraries] or runtime_of(self.plan.executable)

    @cached_property
    def own_cpu_s(self) -> float:
        """CPU time a replay takes for itself: that of one in which no call is made and no memory touched."""
        with tempfile.TemporaryDirectory(prefix="heapwright-") as folder:
            report = Path(folder) / "report.json"
            words = [*command(self, report=report), "--dry"]
            best = []
            for _ in range(3):
                done = subprocess.run(words, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise HeapwrightError(done.stderr.strip().removeprefix("heapwright-replay: "))
                best.append(_read_report(report).calls_cpu_s)
        return min(best)

    @cached_property
    def reference(self) -> list[Reading]:
        """Readings of a replay as the program was recorded: on the malloc it has anyway, under the recorder.

        Raises:
            HeapwrightError: it failed.
        """
        from heapwright.trace import record

        with tempfile.TemporaryDirectory(dir=self.operations.parent) as folder:
            report = Path(folder) / "report.json"
            env = record.environment(Path(folder), None, False, os.environ)
            done = subprocess.run(command(self, report=report), env=env, capture_output=True, text=True, check=False)
            if done.returncode:
                raise HeapwrightError(done.stderr.strip().removeprefix("heapwright-replay: "))
            return _read_report(report).readings

    def mean_rss(self, report: Report) -> float:
        """Resident memory of a replay in bytes, averaged over the time the program would have taken.

        The program took its recorded time, of which its calls of malloc under the recorder were a part that `reference`
        tells. Under another allocator they take what they took in this replay, and all else stays.
        """
        whole = self.reference[-1]
        parallel = max(1.0, whole.cpu_ns / max(whole.wall_ns, 1))  # CPU time of several threads passes at once
        weighted = total = 0.0
        for number, reading in enumerate(report.readings[1:], 1):
            spent = (self.reference[number].cpu_ns - self.reference[number - 1].cpu_ns) / parallel
            spends = (reading.cpu_ns - report.readings[number - 1].cpu_ns) / parallel
            time = max(reading.recorded_ns - spent, 0.0) + spends
            weighted += time * reading.resident_bytes
            total += time
        return weighted / total if total else report.end_rss_bytes


@dataclass(frozen=True)
class Replayed:
    """One replay: as it was metered, and as it tells itself.

    Attributes:
        report: None if it did not come to its end.
        mean_rss_bytes: Ready.mean_rss.
    """

    run: Run
    report: Report | None
    mean_rss_bytes: float = 0.0

    @property
    def failure(self) -> str:
        """Why it does not count, or empty."""
        from heapwright.workload.execute import ending

        if self.run.timed_out:
            return "timed out"
        if self.run.exit_code:
            said = self.run.stderr_tail.strip().splitlines()[-1:]
            return said[0].removeprefix("heapwright-replay: ") if said else ending(self.run.exit_code)
        return "" if self.report else "it left no report"

    def metrics(self, own_cpu_s: float = 0.0) -> dict[str, float | None]:
        """The meter's figures as those of the program's allocations: own memory and own CPU time are taken off, and
        mean resident memory is over the program's time, not over the replay's own.

        Proportional memory (PSS) is taken from resident memory. A replay is one process, and the pages of its heap are
        private to it. So a setting changes both by the same number of bytes, and only such differences are used.
        Resident memory is exact here, while a replay is too short for more than a few readings of PSS.
        """
        found = dict(self.run.metrics)
        if self.report is None:
            return found
        own = self.report.own_rss_bytes
        found["mean_rss_bytes"] = self.mean_rss_bytes - own
        if found.get("peak_rss_bytes") is not None:
            found["peak_rss_bytes"] = (found["peak_rss_bytes"] or 0.0) - own
        found["peak_pss_bytes"], found["mean_pss_bytes"] = found.get("peak_rss_bytes"), found["mean_rss_bytes"]
        if found.get("cpu_s") is not None:
            found["cpu_s"] = max(0.0, (found["cpu_s"] or 0.0) - own_cpu_s)
        return found


@contextmanager
def make_ready(trace: Path, folder: Path | None = None) -> Iterator[Ready]:
    """Makes a trace ready for replays; its file of operations (8 bytes an event) goes when the block ends.

    Args:
        folder: where to put it; default: the system's place for temporary files.

    Raises:
        HeapwrightError: the trace cannot be read, the file not written.
    """
    need_trace(trace)
    with tempfile.TemporaryDirectory(prefix="heapwright-", dir=folder) as name:
        operations = Path(name) / "operations"
        plan, warning = ask(Plan, "expand", trace, operations)
        if not plan.events:
            raise HeapwrightError(f"{trace}: there is nothing to replay in it", "is the program statically linked?")
        yield Ready(trace, operations, plan, warning)


def command(ready: Ready, touch: Touch = "page", report: Path | None = None) -> list[str]:
    """The words that replay."""
    words = [str(native_program("heapwright-replay")), str(ready.operations), "--touch", touch]
    return [*words, "--report", str(report)] if report else words


def workload(ready: Ready, touch: Touch = "page") -> Workload:
    """The replay as a workload: its output is the same every time, so it can be compared like any program's."""
    from heapwright.workload.model import from_command

    return from_command(command(ready, touch))


def environment(allocator: Allocator, settings: Mapping[str, str], base: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a replay under an allocator with these settings.

    A setting is a key of the allocator's parameter space, or else the name of an environment variable.

    Raises:
        UsageError: neither, or it would not take effect as it stands.
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
    chosen = {key: value for key, value in settings.items() if key in known}
    first = {**base, **allocator.environment(base), **plain}
    whole = {**first, **space.environment(chosen, first)}
    check_settings(allocator, settings, whole)
    return whole


def replay_once(
    ready: Ready,
    options: MeterOptions,
    env: Mapping[str, str],
    touch: Touch = "page",
    stop: threading.Event | None = None,
) -> Replayed:
    """One replay under the meter; `stop` ends it from another thread.

    Raises:
        HeapwrightError: it could not be run or measured at all.
        Stopped: `stop` was set.
    """
    from heapwright.measure.meter import run_metered

    if ready.libraries:
        env = {**env, "LD_PRELOAD": ":".join(filter(None, [env.get("LD_PRELOAD", ""), *ready.libraries]))}
    with tempfile.TemporaryDirectory(prefix="heapwright-") as folder:
        report = Path(folder) / "report.json"
        run = run_metered(command(ready, touch, report), options, env=env, stop=stop)
        read = _read_report(report) if report.is_file() and report.stat().st_size and not run.exit_code else None
    return Replayed(dataclasses.replace(run), read, ready.mean_rss(read) if read else 0.0)


def _read_report(path: Path) -> Report:
    return msgspec.json.decode(path.read_bytes(), type=Report)
