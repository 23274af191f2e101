"""`heapwright export`: converts a trace for another tool."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from heapwright.cli.common import add_output_options, write_json
from heapwright.cli.output_files import regular_file
from heapwright.terminal_text import counted, tell, warn

_EPILOG = """\
example:
  heapwright export prog.hwt --format wl -o prog.wl

wl is the format that trace_run of glibc's malloc trace utilities replays. It has no times, marks or usable-size
queries. Such events are left out, and the output says how many.
"""


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "export",
        help="convert a trace for another tool",
        description="Writes a trace as a workload for glibc's trace_run.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a trace, packed or raw")
    parser.add_argument("--format", choices=("wl",), default="wl", help="the format to write (default wl)")
    parser.add_argument("-o", "--output", type=regular_file, required=True, metavar="FILE", help="the file to write")
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    from heapwright.trace.convert import export_wl

    done = export_wl(args.trace, args.output)
    if done.loss.cut_short or done.loss.events or done.loss.bytes:
        warn(f"the trace is incomplete: {done.loss.why}")
    if args.json:
        write_json(
            args.json,
            {"file": str(args.output), "format": args.format, "events": done.events, "left_out": done.left_out},
        )
    if not args.quiet and args.json != "-":
        left_out = (
            f"; left out: {counted(done.left_out, 'event')} that the format cannot express" if done.left_out else ""
        )
        tell(f"{args.output}: {counted(done.events, 'operation')}{left_out}")
    return 0
