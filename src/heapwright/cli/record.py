"""`heapwright record`: records an allocation trace of a command."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heapwright.cli.common import (
    add_output_options,
    add_workload_option,
    allocator_names,
    chosen_allocators,
    positive,
    read_inputs,
    read_workload,
    write_json,
)
from heapwright.cli.containers import add_container_option
from heapwright.cli.durations import duration
from heapwright.errors import UsageError
from heapwright.files import scratch_folder
from heapwright.platforms import PLATFORMS
from heapwright.terminal_text import counted, say, warn
from heapwright.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from heapwright.trace.record import RecordedCommand, RecordedProcess
    from heapwright.trace.sampling import Sampling

_EPILOG = """\
examples:
  heapwright record -o perl.hwt -- perl -e 'my %h; $h{$_} = "x$_" for 1..200000'
  heapwright record -o redis.hwt --workload redis.toml
  heapwright record -o day.hwt --sample 64 --max-size 256M -- ./service
  heapwright record --export /srv/recorder --sample 64 --max-size 256M -o /var/tmp/raw

Input, output and exit status are those of the command. Each process gets one trace. The trace with the most events
becomes TRACE (prog.hwt); the others go into a directory beside it (prog.processes/PID.hwt). Programs that are
set-user-ID or define their own malloc are refused. A statically linked program, a Go program or a shell with its own
malloc is run, because the programs that it starts may be recordable. A recording without any allocation fails and
leaves no file.

--sample records whole lifetimes of a random sample of the objects, --after and --for a window of time. --max-size
bounds the raw file of each process: a full file keeps the whole time and thins the sample. --export writes the recorder
and its settings for a machine without heapwright; -o then names the directory of the raw files there, which
--recover turns into traces anywhere. docs/record.md gives the cost of each.

With --workload one input is recorded, with the set-up and clean-up of the workload file around it. A server is started,
loaded and stopped; the exit status is 0 if its stop signal ended it.
"""

_MAX_SHOWN = 12  # processes that the output lists
# The user is told of another process whose live bytes have a peak that is so many times higher, and at least so high.
_TOLD_RATIO, _TOLD_BYTES = 2, 4 << 20


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "record",
        help="record a command's allocations in a trace",
        description="Runs a command and records every allocation that it makes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-o", "--output", type=Path, metavar="TRACE", help="the trace to write (default: PROGRAM.hwt)")
    parser.add_argument(
        "--allocator", type=allocator_names, metavar="A", help="run the command under this allocator (default: its own)"
    )
    add_workload_option(parser, inputs="the first")
    add_container_option(parser)
    parser.add_argument(
        "--stdin", metavar="FILE|-|none", help="standard input of the command (default '-': heapwright's own)"
    )
    parser.add_argument(
        "--no-children", action="store_true", help="record only the command, not the processes that it starts"
    )
    parser.add_argument("--force", action="store_true", help="overwrite TRACE if it exists")
    parser.add_argument(
        "--recover",
        type=Path,
        metavar="DIR",
        help="write the trace from the raw files that an interrupted recording left in DIR, and remove these files",
    )
    parts = parser.add_argument_group("parts of a run")
    parts.add_argument(
        "--sample", type=_rate, metavar="N", help="record one in N small objects, and nearly all large ones"
    )
    parts.add_argument(
        "--max-size",
        type=_size,
        metavar="SIZE",
        help="bound of each process's raw file, such as 256M; thins the sample as it fills (implies --sample 64)",
    )
    parts.add_argument(
        "--max-cost",
        type=_percent,
        metavar="PERCENT",
        help="target for the CPU time that a sample adds: 2 to 100 (default 3), or 0 for none; record thins the sample"
        " to keep it",
    )
    parts.add_argument(
        "--after", type=duration, metavar="T", help="time from the start of the process to that of the recording: 30s"
    )
    parts.add_argument("--for", type=duration, dest="for_", metavar="T", help="length of the recording: 5m")
    parts.add_argument(
        "--window-signal",
        metavar="SIG",
        help="a signal that begins and ends the recording and that the program does not handle, such as RTMAX",
    )
    parser.add_argument(
        "--export",
        type=Path,
        metavar="DIR",
        help="write the recorder and its settings into DIR, for a machine without heapwright",
    )
    parser.add_argument(
        "--platform", choices=PLATFORMS, metavar="P", help=f"platform for --export: {', '.join(PLATFORMS)}"
    )
    add_output_options(parser)
    parser.set_defaults(run=run, takes_command=True)


def _size(text: str) -> int:
    from heapwright.cli.landscape import parse_size
    from heapwright.trace.sampling import MIN_BYTES

    value = parse_size(text)
    if value is None or value < MIN_BYTES:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size of at least 4M, such as 256M")
    return value


def _rate(text: str) -> int:
    from heapwright.trace.sampling import MAX_RATE

    value = positive(text)
    if value > MAX_RATE:
        raise argparse.ArgumentTypeError(f"{text} is too thin a sample: N is at most {MAX_RATE:,}")
    return value


def _percent(text: str) -> int:
    from heapwright.trace.sampling import MIN_PERCENT

    if not text.isdecimal() or not (int(text) == 0 or MIN_PERCENT <= int(text) <= 100):
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from {MIN_PERCENT} to 100, or 0")
    return int(text)


def _sampling(args: argparse.Namespace) -> Sampling:
    from heapwright.trace.sampling import DEFAULT_PERCENT, Sampling, parse_signal

    signal = parse_signal(args.window_signal) if args.window_signal else 0
    if args.max_cost is not None and not (args.sample or args.max_size):
        raise UsageError("--max-cost bounds the cost of a sample", "give --sample N too")
    cost = DEFAULT_PERCENT if args.max_cost is None else args.max_cost
    return Sampling(args.sample or 0, args.max_size or 0, args.after or 0.0, args.for_ or 0.0, signal, cost)


def run(args: argparse.Namespace) -> int:
    """Run the verb; return the exit status of the command."""
    if args.export is not None:
        return _export(args)
    if args.platform is not None:
        raise UsageError("--platform applies only to --export", "leave it out")
    recording = _recover(args) if args.recover is not None else _record(args)
    if args.json:
        write_json(args.json, {"exit_code": recording.status, "processes": [_as_json(p) for p in recording.processes]})
    if not args.quiet:
        for process in recording.processes[:_MAX_SHOWN]:
            say(_line(process))
        others = recording.processes[1:]
        if others:
            each = counted(len(others), "other process", "other processes")
            say(f"{others[0].trace.parent}: {each}, {counted(sum(p.packed.events for p in others), 'event')} in all")
    _warn_if_thinned(args, recording.processes)
    _warn_of_wrapper(recording.processes)
    _warn_of_unrecorded_calls(recording.processes)
    _warn_of_larger_process(recording.processes)
    if recording.failure:
        warn(f"the run failed: {recording.failure}")
    for pid in recording.running:
        warn(f"process {pid} still runs; its trace ends here")
    for process in recording.processes:
        if _is_warned(process):
            warn(f"{process.trace}: {process.warning}")
    for line in dict.fromkeys(f"{p.name}: {p.warning}" for p in recording.processes if p.unseen):
        warn(line)
    return recording.status


def _warn_if_thinned(args: argparse.Namespace, processes: Sequence[RecordedProcess]) -> None:
    """Warn if samples hold fewer objects than asked for."""
    thinned = [process for process in processes if 1 < process.first_rate < process.packed.sample]
    if thinned:
        bounds = "--max-cost or --max-size" if args.max_size or args.recover else "--max-cost"
        which = (
            "the sample was"
            if len(processes) == 1
            else f"{counted(len(thinned), 'sample')} of {len(processes)} {'was' if len(thinned) == 1 else 'were'}"
        )
        warn(
            f"{which} thinned from {_rates(process.first_rate for process in thinned)} to "
            f"{_rates(process.packed.sample for process in thinned)}, to keep {bounds}; "
            f"{'its' if len(thinned) == 1 else 'their'} figures vary more. --max-cost 0 sets no bound of CPU time"
        )


def _rates(rates: Iterable[int]) -> str:
    """Format rates of samples: '1 in 64', '1 in 64 … 1,024'."""
    found = sorted(rates)
    return f"1 in {found[0]:,}" + (f" … {found[-1]:,}" if found[-1] > found[0] else "")


def _warn_of_wrapper(processes: Sequence[RecordedProcess]) -> None:
    """Warn if the program of the first process defines malloc and may pass only some calls on to the recorder's."""
    from heapwright.allocators.program_file import read_program

    found = read_program(processes[0].executable) if processes and processes[0].executable else None
    if found is not None and found.passes_on:
        warn(f"{found.path.name} defines malloc; the recording holds the calls that this malloc passes on")


def _warn_of_unrecorded_calls(processes: Sequence[RecordedProcess]) -> None:
    """Warn if the program of the first process has an allocator of its own beside malloc."""
    from heapwright.allocators.direct_calls import unrecorded_calls

    program = processes[0].executable if processes else ""
    if program and (why := unrecorded_calls(program, os.environ)):
        warn(f"{processes[0].trace} lacks allocations of {processes[0].name}: {why}; only calls of malloc are recorded")


def _warn_of_larger_process(processes: Sequence[RecordedProcess]) -> None:
    """Warn if another process held far more memory than the one with the most events.

    A server may start a compiler that makes more calls than the server does, and holds little.
    """
    peaks = [_peak_live_bytes(process) for process in processes[:_MAX_SHOWN]]
    if not peaks or max(peaks) < max(_TOLD_BYTES, _TOLD_RATIO * peaks[0]):
        return
    busiest, largest = processes[0], processes[peaks.index(max(peaks))]
    warn(
        f"{busiest.trace} is of {busiest.name or busiest.pid}, which made the most calls but held"
        f" {show_bytes(peaks[0])} at most; {largest.name or largest.pid} held {show_bytes(max(peaks))}: to tune that"
        f" program, use {largest.trace}"
    )


def _peak_live_bytes(process: RecordedProcess) -> float:
    """The highest number of live bytes of a process; of a sample, the estimate."""
    if not process.packed.sample or not process.packed.events:
        return process.packed.peak_live_bytes
    from heapwright.trace.info import read_info

    return float(read_info(process.trace)[1]["peak_live_bytes"])


def _export(args: argparse.Namespace) -> int:
    """Write the recorder for another machine; print the variable that switches it on."""
    from heapwright.trace.sampling import export

    if args.command or args.workload or args.recover:
        raise UsageError("--export records nothing here", "leave out the command; run it there with LD_PRELOAD")
    if args.output is None or not args.output.is_absolute():
        raise UsageError("--export needs the folder for raw files on that machine", "add -o /an/absolute/folder")
    library = export(args.export, _sampling(args), args.output, args.platform)
    if not args.quiet:
        say(f"{library.parent}: {library.name} and {library.with_suffix('.conf').name}")
    print(f"LD_PRELOAD={library.resolve()}")
    return 0


def _recover(args: argparse.Namespace) -> RecordedCommand:
    from heapwright.trace.record import RecordedCommand, check_target, recover
    from heapwright.trace.watched_command import writing_processes

    if args.command or args.workload or not _sampling(args).complete:
        raise UsageError("a command and --recover cannot both be given", "leave out one of them")
    if args.output is None:
        raise UsageError("--recover needs the name of a trace to write", "add -o TRACE")
    check_target(args.output, args.force)
    running = writing_processes(args.recover)
    processes = recover(args.recover, args.output, running=running, remove=not running)
    if running:
        warn(f"the raw files in {args.recover} are kept, because running processes record into them")
    return RecordedCommand(0, processes)


def _record(args: argparse.Namespace) -> RecordedCommand:
    """Record a command with heapwright's stdin, stdout and stderr, or one input of a workload with its own stdin."""
    from heapwright.allocators.registry import get_allocator
    from heapwright.measure.meter import MeterOptions
    from heapwright.trace.record import record, record_workload
    from heapwright.workload.execute import Executor
    from heapwright.workload.model import with_stdin

    workload = read_workload(args)
    input_ = read_inputs(args, workload)[0]
    trace = args.output or Path(f"{workload.name(input_)}.hwt")
    allocator = None
    if args.allocator:
        inside = workload.container is not None
        allocator = (
            chosen_allocators(args.allocator, container=workload.container)[0]
            if inside
            else get_allocator(args.allocator)
        )
    if workload.container is not None:
        from heapwright.allocators.in_image import check_parts

        check_parts(workload.container.image.platform, workload.container.image.libraries)
    elif allocator is not None:
        from heapwright.allocators.loader_trace import check_loaded

        base = {**workload.base_environment(), **input_.env}
        check_loaded(allocator, workload.program(input_), {**base, **allocator.environment(base)})
    how = (trace, allocator, not args.no_children, args.force)
    sampling = _sampling(args)
    if not workload.path:
        named = None if args.stdin in (None, "-") else Path(os.devnull if args.stdin == "none" else args.stdin)
        if named is not None and (named.is_dir() or not os.access(named, os.R_OK)):
            raise UsageError(f"--stdin {named} cannot be read", "name a readable file")
        if workload.container is None:
            return record(workload.command(input_), *how, stdin=named, sampling=sampling)
        workload = with_stdin(workload, str(named or ""))
    options = MeterOptions(backend="poll", timeout=workload.file.timeout)
    with scratch_folder() as folder:
        executor = Executor(workload, options, folder / "references", forward=sys.stdout.buffer)
        return record_workload(executor, input_, *how, sampling=sampling)


def _as_json(process: RecordedProcess) -> dict[str, Any]:
    from heapwright.trace.info import read_info

    packed = process.packed
    found = {
        "trace": str(process.trace),
        "pid": process.pid,
        "parent": process.parent,
        "executable": process.executable,
        "name": process.name,
        "events": packed.events,
        "allocations": packed.allocations,
        "threads": packed.threads,
        "peak_live_bytes": packed.peak_live_bytes,
        "raw_bytes": process.raw_bytes,
        "bytes": packed.bytes,
        "bytes_per_event": packed.bytes / packed.events if packed.events else None,
        "lost_events": packed.lost_events,
        "lost_bytes": packed.lost_bytes,
        "cut_short": packed.cut_short,
        "sample": None,
        "warning": process.warning or None,
    }
    if packed.sample:  # of a sample, the figures of the program that it stands for
        expanded = read_info(process.trace)[1]
        found |= {key: expanded[key] for key in ("events", "allocations", "peak_live_bytes", "bytes_per_event")}
        found["sample"] = expanded["sample"]
    return found


def _is_warned(process: RecordedProcess) -> bool:
    """Whether a warning line names the losses; the line of the process then leaves them out."""
    return bool(process.warning and (process.packed.lost_events or process.packed.lost_bytes))


def _line(process: RecordedProcess) -> str:
    packed = process.packed
    threads = counted(packed.threads, "thread")
    each = f", {packed.bytes / packed.events:.2f} B/event" if packed.events else ""
    note = f" ({process.warning})" if process.warning and not _is_warned(process) else ""
    if packed.sample:
        return (
            f"{process.trace}: {process.name or process.pid}, a sample of 1 in {packed.sample}: "
            f"{counted(packed.allocations, 'object')} with {counted(packed.events, 'event')}, {threads}{note}"
        )
    return (
        f"{process.trace}: {process.name or process.pid}, {counted(packed.events, 'event')}, {threads}, "
        f"peak live {show_bytes(packed.peak_live_bytes)}{each}{note}"
    )
