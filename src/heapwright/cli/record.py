"""`heapwright record`: an allocation trace of a command."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heapwright.cli.common import add_output_options, need_command, write_json
from heapwright.errors import UsageError
from heapwright.shown import say, warn

if TYPE_CHECKING:
    from heapwright.trace.record import Recorded

_EPILOG = """\
example:
  heapwright record -o perl.hwt -- perl -e 'my %h; $h{$_} = "x$_" for 1..200000'

The command's input, output and exit status are its own. One trace a process: the busiest becomes TRACE, the others
TRACE.PID.hwt beside it. Programs that are linked statically or set-user-ID cannot be recorded.
"""

_SHOWN = 12


def add_parser(verbs: Any) -> None:
    """Adds the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "record",
        help="write an allocation trace of a command",
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
    parser.add_argument("--no-children", action="store_true", help="only the command itself, not what it starts")
    parser.add_argument("--force", action="store_true", help="overwrite TRACE")
    parser.add_argument("--recover", type=Path, metavar="DIR", help="pack what an interrupted recording left in DIR")
    add_output_options(parser)
    parser.set_defaults(run=run, takes_command=True)


def run(args: argparse.Namespace) -> int:
    """Records; the command's own exit status."""
    from heapwright.trace.record import Recording, check_target, record, recover

    if args.recover is not None:
        if args.command:
            raise UsageError("a command and --recover cannot both be given", "leave one out")
        if args.output is None:
            raise UsageError("--recover needs a trace to write", "-o TRACE")
        check_target(args.output, args.force)
        recording = Recording(0, recover(args.recover, args.output))
    else:
        from heapwright.allocators.registry import get_allocator
        from heapwright.workload.model import check_command

        command = need_command(args)
        check_command(command[0], Path.cwd())
        allocator = get_allocator(args.allocator) if args.allocator else None
        trace = args.output or Path(f"{Path(command[0]).name}.hwt")
        recording = record(command, trace, allocator, not args.no_children, args.force)
    if args.json:
        write_json(args.json, {"exit_code": recording.status, "processes": [_as_json(p) for p in recording.processes]})
    if not args.quiet:
        for process in recording.processes[:_SHOWN]:
            say(_line(process))
        more = len(recording.processes) - _SHOWN
        if more > 0:
            say(f"… and {more} processes with fewer events")
    for process in recording.processes:
        if process.warning and (process.packed.lost_events or process.packed.lost_bytes):
            warn(f"{process.trace}: {process.warning}")
    return recording.status


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
