"""Runs a command under the native meter and reads its ledger.

The native program (`native/meter`) starts the target from a small process, watches its mapping calls and writes one
JSON file. This module decodes that file into typed structures. `streams` reads the target's output meanwhile.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from heapwright.errors import FAILED, HeapwrightError
from heapwright.files import NATIVE, scratch_folder
from heapwright.interruption import raise_if_interrupted
from heapwright.measure.container import REPORTS, Container, new_name
from heapwright.measure.memory_parts import Breakdown
from heapwright.measure.prefix import Prefix, PrefixEnd
from heapwright.measure.process_group import describe_exit_status
from heapwright.measure.stderr_relay import StderrRelay
from heapwright.measure.streams import StreamReader
from heapwright.metrics import METRICS, NUMERIC
from heapwright.platforms import INSIDE

SERIES_POINTS = 240  # of memory over time, enough for a picture
CHECKPOINT_S = 60  # how often the report of a bounded run is written while it runs
_END_GRACE_S = 10
# With 1,600 to 3,000 stops a second the memory of programs with threads was 4 to 5% lower
# (docs/meter.md, back ends).
MANY_STOPS_PER_S = 500
_PARTS_INTERVAL_MS = 2  # short, so that polling does not miss the peak of a short program


class Ledger(msgspec.Struct):
    """The native meter's JSON without its metrics, which `_Figures` holds; None for unavailable values."""

    meter: str
    exit_code: int | None
    signal: int | None
    timed_out: bool
    warnings: list[str] = []
    processes: int | None = None
    max_processes: int | None = None
    max_threads: int | None = None
    max_maps: int | None = None
    samples: int | None = None
    parts: Breakdown | None = None
    series: dict[str, list[float]] | None = None


# The metrics in the meter's JSON. A field that the meter does not write stays None.
_Figures = msgspec.defstruct("_Figures", [(key, float | None, None) for key in NUMERIC])


@dataclass(frozen=True)
class MeterOptions:
    """How to measure.

    Attributes:
        backend: auto, notify, ptrace or poll.
        massif: also tell the peak that Massif reports.
        massif_by: how: 'emulation' limits brk and places mappings as Valgrind does; 'kernel' applies Massif's rule to
            the kernel's own placement (both need ptrace with two stops a call); 'valgrind' runs again under Massif.
        series: at most this many points of memory over time; 0 for none.
        timeout: seconds until the whole tree is stopped; 0 for none.
        callgrind: count instructions in a second run under callgrind.
        pss: also sample proportional set sizes (see docs/meter.md for the cost).
        parts: also divide memory by kind of mapping. The readings may cost time: not for runs that are compared.
        end_after: end the run by SIGTERM after so many seconds, and by SIGKILL 10 s later; it then counts as whole. 0:
            it ends by itself.
        report: where the meter's report stands while the run goes on, written every minute; None: nowhere.
    """

    backend: str = "auto"
    massif: bool = False
    massif_by: str = "emulation"
    series: int = 0
    timeout: float = 0.0
    callgrind: bool = False
    pss: bool = False
    parts: bool = False
    end_after: float = 0.0
    report: Path | None = None


def least_intrusive_backend(backend: str, metrics: Collection[str], massif: bool) -> str:
    """Return the back end for runs that are compared in these metrics.

    The exact back ends stop a thread at each mapping call. That slows configurations with many mapping calls more than
    others, and changes how threads interleave. So 'auto' becomes 'poll' if no metric needs such stops.

    Args:
        backend: the back end asked for; any but 'auto' is returned as it is.
        metrics: keys of the metrics to compare.
        massif: whether Massif is emulated, which needs stops.
    """
    if backend != "auto" or massif or any(METRICS[m].needs_stops for m in metrics):
        return backend
    return "poll"


def disturbs_threads(meter: str, threads: int | None, calls: float | None, wall_s: float | None) -> bool:
    """Return whether the meter stopped the threads of a program so often that its memory may differ from that without.

    Args:
        meter: the back end.
        threads: how many the program had at once; None if unknown.
        calls: mapping calls of the run.
        wall_s: its wall time in seconds.
    """
    return meter != "poll" and (threads or 1) > 1 and (calls or 0.0) > MANY_STOPS_PER_S * (wall_s or math.inf)


def stops_for_massif(massif: bool, massif_by: str) -> bool:
    """Return whether Massif is emulated in the measured run itself, by stops at each mapping call."""
    return massif and massif_by != "valgrind"


def needs_pss(metrics: Collection[str]) -> bool:
    """Return whether `MeterOptions.pss` must be set to measure these metrics."""
    return any(METRICS[m].proportional for m in metrics)


@dataclass(frozen=True)
class Run:
    """One metered run.

    Attributes:
        metrics: metric key → value; None if it could not be measured.
        exit_code: of the target; 128 + signal if a signal ended it.
        output_sha256: hash of stdout; empty if a text on stderr ended the run, so that the end of stdout is arbitrary.
        stderr_tail: the last 4096 bytes of stderr, if it was captured.
        max_processes: the largest number of processes with an address space of their own that were alive at once.
        parts: memory by kind of mapping; None if `MeterOptions.parts` was not set or nothing could be read.
        cut: whether it was ended at the end of its prefix, or at `MeterOptions.end_after`.
    """

    metrics: dict[str, float | None]
    exit_code: int
    timed_out: bool
    output_sha256: str
    meter: str
    warnings: list[str] = field(default_factory=list)
    max_threads: int | None = None
    max_maps: int | None = None
    series: dict[str, list[float]] | None = None
    stderr_tail: str = ""
    max_processes: int | None = None
    parts: Breakdown | None = None
    cut: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the run as `measure --json` writes it."""
        return {
            **self.metrics,
            "exit_code": self.exit_code,
            "output_sha256": self.output_sha256,
            "timed_out": self.timed_out,
        }


def meter_path() -> Path:
    """Return the path of the native meter: $HEAPWRIGHT_METER, or the one installed with the package.

    Raises:
        HeapwrightError: there is no such program.
    """
    named = os.environ.get("HEAPWRIGHT_METER")
    path = Path(named) if named else NATIVE / "heapwright-meter"
    if not os.access(path, os.X_OK):
        raise HeapwrightError(f"the meter is not at {path}", "run 'make build', or reinstall heapwright")
    return path


def probe() -> dict[str, Any]:
    """Return which back ends and counters work on this machine, as the meter prints it."""
    try:
        done = subprocess.run([meter_path(), "--probe"], capture_output=True, text=True, check=False, timeout=60)
    except subprocess.TimeoutExpired:
        raise HeapwrightError("the meter did not finish its probe of this machine within 60 s") from None
    if done.returncode:
        raise HeapwrightError(f"the meter cannot probe this machine: {done.stderr.strip()}")
    result: dict[str, Any] = msgspec.json.decode(done.stdout)
    return result


def meter_command(
    options: MeterOptions, report: Path, command: Sequence[str], own: bool, meter: Path | None = None
) -> list[str]:
    """Return the command line of the native meter.

    Args:
        options: how to measure.
        report: where the meter writes its JSON.
        command: the target and its arguments.
        own: signals to the meter end the target; otherwise the meter passes them on.
        meter: its path in a container; None for this machine's, which also ends the target if this process ends.
    """
    words = [str(meter or meter_path()), "--output", str(report), "--backend", options.backend]
    if stops_for_massif(options.massif, options.massif_by):
        words.append("--massif-compat" + ("=kernel" if options.massif_by == "kernel" else ""))
    if options.pss:
        words.append("--pss")
    if options.parts:
        words += ["--parts", "--interval-ms", str(_PARTS_INTERVAL_MS)]
    if options.series:
        words += ["--series", str(options.series)]
    if options.end_after:
        words += ["--timeout", f"{options.end_after:g}", "--kill-grace", str(_END_GRACE_S)]
    elif options.timeout:
        words += ["--timeout", f"{options.timeout:g}"]
    if options.report:
        words += ["--checkpoint", str(CHECKPOINT_S)]
    if meter is None:
        words += [f"--die-with-parent={os.getpid()}", *([] if own else ["--attended"])]
    elif own:  # the parent in a container is not this process
        words.append("--die-with-parent")
    return [*words, "--", *command]


class _Launch(NamedTuple):
    """How the meter of one run is started.

    Attributes:
        words: its command line, or that of the client of its container.
        report: where it writes its JSON.
        env: the whole environment; None for ours.
        container: the container, with its name; None if the command runs here.
    """

    words: list[str]
    report: Path
    env: dict[str, str] | None
    container: Container | None


def run_metered(
    command: Sequence[str],
    options: MeterOptions,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: Path | None = None,
    forward: IO[bytes] | None = None,
    keep: IO[bytes] | None = None,
    attended: bool = False,
    stop: threading.Event | None = None,
    prefix: Prefix | None = None,
    container: Container | None = None,
) -> Run:
    """Run a command once under the meter.

    Args:
        command: the target and its arguments; no shell.
        options: how to measure.
        env: the target's whole environment; None for ours.
        cwd: its directory; None for ours.
        stdin: a file; None for /dev/null.
        forward: gets the target's stdout as it comes; its stderr then passes to ours.
        keep: a file that gets a copy of its stdout.
        attended: a user at a terminal started it, so it stays in our process group and receives Ctrl-C.
        stop: an event that cancels the run from another thread.
        prefix: where SIGKILL ends the run with all its processes; later output is dropped.
        container: where the command runs; `env` then holds variables besides those of the image. None: here.

    Raises:
        HeapwrightError: the command could not be run or measured.
        KeyboardInterrupt: a signal was to end this command, and was lost.
        Stopped: `stop` was set.
    """
    raise_if_interrupted()
    attended = attended and prefix is None  # the meter forwards signals to an attended target instead of ending it
    capture = forward is None or container is not None or (prefix is not None and bool(prefix.output))
    relay = StderrRelay(sys.stderr.buffer) if capture and forward is not None else None
    with scratch_folder() as folder:
        if container is None:
            launch = _launch_here(command, options, folder, env, attended)
        else:
            launch = _launch_in_container(command, options, folder, env, attended, container, stdin is not None)
        source = stdin.open("rb") if stdin else None
        try:
            process = subprocess.Popen(
                launch.words,
                stdin=source or subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if capture else None,
                env=launch.env,
                cwd=cwd,
                start_new_session=not attended,
            )
        finally:
            if source:
                source.close()
        end = PrefixEnd(prefix)
        try:
            digest, tail = StreamReader(process, end, forward, relay, keep, attended).read_all(stop)
        except BaseException:
            if launch.container is not None:  # the client's end is not the container's
                launch.container.signal("KILL")
            raise
        if process.returncode:
            raise _meter_failure(process.returncode, tail, container is not None)
        text = launch.report.read_bytes().decode("utf-8", "replace")
        if options.report:
            launch.report.unlink(missing_ok=True)
        ledger, figures = msgspec.json.decode(text, type=Ledger), msgspec.json.decode(text, type=_Figures)
    if end.stream is not None and end.stream is process.stderr:
        digest = ""  # how much of stdout was read by then is arbitrary
    bounded = ledger.timed_out and options.end_after > 0
    cut = end.reached or bounded
    digest = "" if bounded else digest  # how much it had printed by then is arbitrary
    run = _as_run(ledger, msgspec.structs.asdict(figures), digest, tail.decode(errors="replace"), cut)
    if not run.timed_out:
        _measure_under_valgrind(run, options, command, env if container is None else None, cwd, stdin)
    return run


def _launch_here(
    command: Sequence[str], options: MeterOptions, folder: Path, env: Mapping[str, str] | None, attended: bool
) -> _Launch:
    """Return how to start the meter on this machine. The parameters are those of `run_metered` and `folder`.

    Args:
        folder: a directory for the report, unless the options name a file.
    """
    report = options.report or folder / "ledger.json"
    words = meter_command(options, report, command, own=not attended)
    return _Launch(words, report, dict(env) if env is not None else None, None)


def _launch_in_container(
    command: Sequence[str],
    options: MeterOptions,
    folder: Path,
    env: Mapping[str, str] | None,
    attended: bool,
    container: Container,
    has_stdin: bool,
) -> _Launch:
    """Return how to start the meter in a new container. The other parameters are those of `run_metered`.

    Args:
        folder: gets a directory for the report, which the container can write.
        has_stdin: whether standard input is passed on.
    """
    report, name = folder / "reports" / "ledger.json", container.name or new_name()
    report.parent.mkdir()
    report.parent.chmod(0o777)  # for a user of the image
    own = not attended and not container.server
    inside = Path(REPORTS, report.name), command, own, Path(INSIDE, "heapwright-meter")
    words = container.run_words(meter_command(options, *inside), env or {}, report.parent, name, stdin=has_stdin)
    return _Launch(words, report, None, dataclasses.replace(container, name=name))


def _meter_failure(code: int, tail: bytes, in_container: bool) -> HeapwrightError:
    """Return the error of a meter that failed.

    The message is the last line of the meter or of the container's client. A meter that a signal ended gave no reason.

    Args:
        code: its return code; below 0 for a signal.
        tail: the last bytes of its stderr.
        in_container: whether the code is that of a container's client.
    """
    names = "heapwright-meter|docker|Error" if in_container else "heapwright-meter"
    said = re.findall(rf"^(?:\S*/)?(?:{names}): (.+)$", tail.decode(errors="replace"), re.M) if 0 < code < 128 else []
    message = said[-1].strip() if said else f"the meter ended: {describe_exit_status(code if code > 0 else 128 - code)}"
    status = (min(code, 127) if in_container else code) if code > 0 else FAILED
    return HeapwrightError(message, status=status)


def _measure_under_valgrind(run: Run, options: MeterOptions, *target: Any) -> None:
    """Add the metrics that need runs of their own under Valgrind. `target`: command, env, cwd, stdin."""
    from heapwright.measure import valgrind

    limits: dict[str, Any] = {"status": run.exit_code, "timeout": options.timeout}
    if options.callgrind:
        run.metrics["instructions"] = counted = valgrind.count_instructions(*target, **limits)
        if counted is None:
            run.warnings.append(
                "the command ended differently under callgrind, or took too long: its instructions were not counted"
            )
    if options.massif and options.massif_by == "valgrind":
        run.metrics["massif_peak_bytes"] = peak = valgrind.massif_peak(*target, **limits)
        if peak is None:
            run.warnings.append("the command ended differently under Massif, or took too long: its peak was not taken")


# Words of the meter's warning that nobody waits for some processes: their CPU time is not in /proc.
LOST_CHILDREN = "ignores SIGCHLD"


def release_rate(metrics: Mapping[str, float | None]) -> float | None:
    """Return the bytes that a run gave back per second of its wall time; None if they were not measured."""
    returned, wall_s = metrics["returned_bytes"], metrics["wall_s"]
    return returned / wall_s if returned is not None and wall_s else None


def _as_run(ledger: Ledger, values: dict[str, float | None], digest: str, stderr: str, cut: bool) -> Run:
    user_s, sys_s = values["user_s"], values["sys_s"]
    if user_s is not None and sys_s is not None:
        values["cpu_s"] = user_s + sys_s
    values["release_rate"] = release_rate(values)
    code = 128 + ledger.signal if ledger.signal else (ledger.exit_code or 0)
    return Run(
        metrics=values,
        exit_code=code,
        timed_out=ledger.timed_out and not cut,
        output_sha256=digest,
        meter=ledger.meter,
        warnings=ledger.warnings,
        max_threads=ledger.max_threads,
        max_maps=ledger.max_maps,
        series=ledger.series,
        stderr_tail=stderr,
        max_processes=ledger.max_processes,
        parts=ledger.parts,
        cut=cut,
    )
