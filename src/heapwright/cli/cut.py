"""`heapwright cut`: cuts a span of time out of a trace."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from heapwright.cli.common import add_output_options, write_json
from heapwright.cli.durations import duration
from heapwright.cli.output_files import regular_file
from heapwright.terminal_text import counted, tell, warn
from heapwright.units import show_bytes

_EPILOG = """\
examples:
  heapwright cut service.hwt --after 10m --for 60s -o minute.hwt
  heapwright replay minute.hwt --allocator jemalloc

The result is as if `record --after --for` had recorded this time only: it begins with the objects that are live then.
A replay of a sample makes all requests of the program, so a long recording is replayed faster in parts.
"""


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "cut",
        help="write a span of time of a trace into a new trace",
        description="Writes the part of a trace, complete or a sample, that lies in a span of time.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a trace, packed or raw")
    parser.add_argument(
        "--after", type=duration, default=0.0, metavar="T", help="time from the trace's start to the span (default 0)"
    )
    parser.add_argument("--for", type=duration, dest="for_", metavar="T", help="length (default: to the end)")
    parser.add_argument("-o", "--output", type=regular_file, required=True, metavar="FILE", help="the file to write")
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    from heapwright.trace.cut import cut

    made, warning = cut(args.trace, args.output, args.after, args.for_)
    if warning:
        warn(warning)
    if args.json:
        counts = {key: getattr(made, key) for key in ("events", "allocations", "threads", "requests", "bytes")}
        write_json(
            args.json,
            {"trace": str(args.output), "after_s": args.after, "for_s": args.for_, "sample": made.sample, **counts},
        )
    if not args.quiet and args.json != "-":
        what = f"a sample of 1 in {made.sample} with " if made.sample else ""
        tell(
            f"{args.output}: {what}{counted(made.events, 'event')} of {counted(made.threads, 'thread')}, "
            f"{counted(made.requests, 'request')} of the program, {show_bytes(made.bytes)}"
        )
    return 0
