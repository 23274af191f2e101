"""`heapwright record`: an allocation trace of a command."""

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

The command's input, output and exit status are its own. One trace a process: that with the most events becomes
TRACE (prog.hwt); all others go into one folder beside it (prog.processes/PID.hwt). Programs that are linked statically
or set-user-ID, or have a malloc of their own, cannot be recorded. A recording without any allocation is a failure, and
leaves nothing.

With --workload one input is recorded, with the file's set-up and clean-up around it. A server is started, loaded and
stopped; the exit status is 0 if it ended by its stop signal.
"""

_SHOWN = 12


def add_parser(verbs: Any) -> None:
    """Adds the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "record",
        help="record a command's allocations in a trace",
        description="Runs a command and writes down every allocation it makes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="TRACE", help="where the trace goes (default: PROGRAM.hwt)"
    )
    parser.add_argument(
        "--allocator", metavar="A", help="record on top of this allocator (default: what the command has)"
    )
    add_workload_option(parser, inputs="the first")
    parser.add_argument("--stdin", metavar="FILE|-|none", help="what the command reads (default '-': our own stdin)")
    parser.add_argument("--no-children", action="store_true", help="only the command itself, not what it starts")
    parser.add_argument("--force", action="store_true", help="overwrite TRACE")
    parser.add_argument("--recover", type=Path, metavar="DIR", help="pack what an interrupted recording left in DIR")
    add_output_options(parser)
    parser.set_defaults(run=run, takes_command=True)


def run(args: argparse.Namespace) -> int:
    """Records; the command's own exit status."""
    recording = _recover(args) if args.recover is not None else _record(args)
    if args.json:
        write_json(args.json, {"exit_code": recording.status, "processes": [_as_json(p) for p in recording.processes]})
    if not args.quiet:
        for process in recording.processes[:_SHOWN]:
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
        raise UsageError("a command and --recover cannot both be given", "leave one out")
    if args.output is None:
        raise UsageError("--recover needs a trace to write", "-o TRACE")
    check_target(args.output, args.force)
    return Recording(0, recover(args.recover, args.output))


def _record(args: argparse.Namespace) -> Recording:
    """Runs the command with our own stdin, stdout and stderr; an input of a workload with the file's stdin."""
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
            raise UsageError(f"--stdin {named} cannot be read", "name a file")
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
