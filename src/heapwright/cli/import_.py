"""`heapwright import`: converts a trace of another tool."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from heapwright.cli.common import add_output_options, write_json
from heapwright.cli.output_files import regular_file
from heapwright.terminal_text import counted, tell, warn

_EPILOG = """\
examples:
  heapwright import oocalc.wl -o oocalc.hwt
  heapwright import heaptrack.prog.1234.zst -o prog.hwt

Data that a format lacks stay unknown: wl files have no times, heaptrack files have no threads (docs/info.md).
"""


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "import",
        help="convert another tool's trace",
        description="Converts a wl file (glibc's malloc trace utilities) or a heaptrack file into a heapwright trace.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a .wl file, or a heaptrack file: plain, .gz or .zst")
    parser.add_argument("-o", "--output", type=regular_file, required=True, metavar="TRACE", help="the trace to write")
    parser.add_argument(
        "--format", choices=("wl", "heaptrack"), help="the format of FILE (default: detected from its content)"
    )
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    from heapwright.trace.convert import import_heaptrack, import_wl, recognise

    chosen = recognise(args.file, args.format)
    made = import_wl(args.file, args.output) if chosen == "wl" else import_heaptrack(args.file, args.output)
    loss = made.loss
    if loss.cut_short or loss.events or loss.bytes:
        why = loss.why or "some events are inconsistent"
        warn(f"{why}: the reader ignored {counted(loss.events, 'event')} and {counted(loss.bytes, 'byte')}")
    if args.json:
        write_json(
            args.json,
            {
                "trace": str(args.output),
                "format": chosen,
                "events": made.events,
                "allocations": made.allocations,
                "threads": made.threads,
                "peak_live_bytes": made.peak_live_bytes,
                "lost_events": loss.events,
                "lost_bytes": loss.bytes,
                "failed_calls": loss.failed_calls,
                "cut_short": loss.cut_short,
            },
        )
    if not args.quiet and args.json != "-":
        mib = made.peak_live_bytes / 2**20
        counts = f"{counted(made.events, 'event')}, {counted(made.threads, 'thread')}"
        tell(f"{args.output}: {counts}, peak live {mib:.1f} MiB")
    return 0
