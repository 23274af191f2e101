"""`heapwright info`: summarises a trace."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from heapwright.cli.common import add_output_options, write_json
from heapwright.terminal_text import console

_EPILOG = """\
examples:
  heapwright info prog.hwt
  heapwright info prog.hwt --json - | jq .peak_live_bytes

docs/info.md explains each figure, and why no allocator can use less memory than the lower bound.
"""


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "info",
        help="summarise a trace",
        description="Summarises a trace: events, live bytes, sizes, lifetimes, threads, and a lower bound of memory.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a trace, packed or raw")
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    from heapwright.trace.info import read_info

    info, whole = read_info(args.trace)
    if args.json:
        write_json(args.json, {"trace": str(args.trace), **whole})
    if not args.quiet and args.json != "-":
        from heapwright.report.trace import show_info

        show_info(info, args.trace.name, console())
    return 0
