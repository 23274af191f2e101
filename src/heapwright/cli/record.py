"""`heapwright record`: records an allocation trace of a command."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heapwright.cli.common import (
    add_output_options,
    add_workload_option,
    read_inputs,
    read_workload,
    write_json,
)
from heapwright.errors import UsageError
from heapwright.terminal_text import say, warn

if TYPE_CHECKING:
    from heapwright.trace.record import Recorded, Recording

_EPILOG = """\
examples:
  heapwright record -o perl.hwt -- perl -e 'my %h; $h{$_} = "x$_" for 1..200000'
  heapwright record -o redis.hwt --workload redis.toml

Input, output and exit status are those of the command. Each process gets one trace. The trace with the most events
becomes TRACE (prog.hwt); the others go into a directory beside it (prog.processes/PID.hwt). Programs that are linked
statically, are set-user-ID or define their own malloc cannot be recorded. A recording without any allocation fails and
leaves no file.

With --workload one input is recorded, with the set-up and clean-up of the workload file around it. A server is started,
loaded and stopped; the exit status is 0 if its stop signal ended it.
"""

_MAX_SHOWN = 12  # processes that the output lists


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
    parser.add_argument("--allocator", metavar="A", help="run the command under this allocator (default: its own)")
    add_workload_option(parser, inputs="the first")
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
        help="write the trace from the raw files that an interrupted recording left in DIR",
    )
    add_output_options(parser)
    parser.set_defaults(run=run, takes_command=True)


def run(args: argparse.Namespace) -> int:
    """Run the verb; return the exit status of the command."""
    recording = _recover(args) if args.recover is not None else _record(args)
    if args.json:
        write_json(args.json, {"exit_code": recording.status, "processes": [_as_json(p) for p in recording.processes]})
    if not args.quiet:
        for process in recording.processes[:_MAX_SHOWN]:
            say(_line(process))
        others = recording.processes[1:]
        if others:
            each = f"{len(others)} other process{'es' if len(others) > 1 else ''}"
            say(f"{others[0].trace.parent}: {each}, {sum(p.packed.events for p in others):,} events in all")
    if recording.failure:
        warn(f"the run failed: {recording.failure}")
    for process in recording.processes:
        if process.warning and (process.packed.lost_events or process.packed.lost_bytes):
            warn(f"{process.trace}: {process.warning}")
    return recording.status


def _recover(args: argparse.Namespace) -> Recording:
    from heapwright.trace.record import Recording, check_target, recover

    if args.command or args.workload:
        raise UsageError("a command and --recover cannot both be given", "leave out one of them")
    if args.output is None:
        raise UsageError("--recover needs the name of a trace to write", "add -o TRACE")
    check_target(args.output, args.force)
    return Recording(0, recover(args.recover, args.output))


def _record(args: argparse.Namespace) -> Recording:
    """Record a command with heapwright's stdin, stdout and stderr, or one input of a workload with its own stdin."""
    from heapwright.allocators.registry import get_allocator
    from heapwright.measure.meter import MeterOptions
    from heapwright.trace.record import record, record_workload
    from heapwright.workload.execute import Executor

    workload = read_workload(args)
    input_ = read_inputs(args, workload)[0]
    trace = args.output or Path(f"{Path(workload.program(input_)).name}.hwt")
    allocator = get_allocator(args.allocator) if args.allocator else None
    how = (trace, allocator, not args.no_children, args.force)
    if not workload.path:
        named = None if args.stdin in (None, "-") else Path(os.devnull if args.stdin == "none" else args.stdin)
        if named is not None and (named.is_dir() or not os.access(named, os.R_OK)):
            raise UsageError(f"--stdin {named} cannot be read", "name a readable file")
        return record(workload.command(input_), *how, stdin=named)
    options = MeterOptions(backend="poll", timeout=workload.file.timeout)
    with tempfile.TemporaryDirectory(prefix="heapwright-") as folder:
        executor = Executor(workload, options, Path(folder) / "references", forward=sys.stdout.buffer)
        return record_workload(executor, input_, *how)


def _as_json(process: Recorded) -> dict[str, Any]:
    packed = process.packed
    return {
        "trace": str(process.trace),
        "pid": process.pid,
        "parent": process.parent,
        "executable": process.executable,
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
        "warning": process.warning or None,
    }


def _line(process: Recorded) -> str:
    packed = process.packed
    threads = f"{packed.threads} thread{'s' if packed.threads != 1 else ''}"
    each = f", {packed.bytes / packed.events:.2f} B/event" if packed.events else ""
    note = f" ({process.warning})" if process.warning else ""
    return (
        f"{process.trace}: {Path(process.executable).name or process.pid}, {packed.events:,} events, {threads}, "
        f"peak live {packed.peak_live_bytes / 2**20:.1f} MiB{each}{note}"
    )
