"""`heapwright info`: what is in a trace."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from heapwright.cli.common import add_output_options, write_json
from heapwright.terminal_text import console

_EPILOG = """\
example:
  heapwright info prog.hwt
  heapwright info prog.hwt --json - | jq .peak_live_bytes

docs/info.md says what each figure means, and why no allocator can be below the lower bound.
"""


def add_parser(verbs: Any) -> None:
    """Adds the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "info",
        help="summarise a trace",
        description="Counts what is in a trace: events, live bytes, sizes, lifetimes, threads, a lower bound.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a trace, packed or raw")
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the verb."""
    from heapwright.trace.info import read_info

    info, whole = read_info(args.trace)
    if args.json:
        write_json(args.json, {"trace": str(args.trace), **whole})
    if not args.quiet and args.json != "-":
        from heapwright.report.trace import show_info

        show_info(info, args.trace.name, console())
    return 0
