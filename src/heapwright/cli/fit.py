"""`heapwright fit`: a trace becomes a model that can be given away."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from heapwright.cli.common import add_output_options, positive, write_json
from heapwright.files import write_whole
from heapwright.terminal_text import tell, warn

_EPILOG = """\
example:
  heapwright fit prog.hwt -o prog.model.json
  heapwright synth prog.model.json --allocator jemalloc

The model holds counts of sizes and lifetimes, no addresses and no contents; docs/synth.md describes it.
"""


def add_parser(verbs: Any) -> None:
    """Adds the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "fit",
        help="fit a model to a trace",
        description="Fits a model of sizes and lifetimes to a trace: small, and shareable without the trace.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a trace, packed or raw")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="MODEL", help="the model's file")
    parser.add_argument(
        "--model",
        choices=("windows", "rand-malloc"),
        default="windows",
        help="windows: sizes and lifetimes by stretches of the trace (default); rand-malloc: a mean lifetime for each "
        "size, without phases, threads and realloc, for comparison",
    )
    parser.add_argument("--windows", type=positive, default=200, metavar="N", help="stretches (default 200)")
    parser.add_argument("--with-command", action="store_true", help="keep the program's command line in the model")
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the verb."""
    from heapwright.errors import UsageError
    from heapwright.trace.model import WindowsModel, fit, to_text

    if args.windows > 10_000:
        raise UsageError(f"--windows {args.windows} is too many", "at most 10000")
    model, warning = fit(args.trace, args.model, args.windows, args.with_command)
    if warning:
        warn(warning)
    text = to_text(model)
    write_whole(args.output, text)
    told = {
        "model": str(args.output),
        "kind": args.model,
        "bytes": len(text),
        "events": model.events,
        "allocations": model.allocations,
        "peak_live_bytes": model.peak_live_bytes,
        "windows": len(model.windows) if isinstance(model, WindowsModel) else None,
        "classes": len(model.classes),
        "scripted": len(model.script) // 10 if isinstance(model, WindowsModel) else None,
    }
    if args.json:
        write_json(args.json, told)
    if not args.quiet and args.json != "-":
        what = f"{told['windows']} windows, " if told["windows"] is not None else ""
        scripted = f", {told['scripted']} large blocks one by one" if told["scripted"] is not None else ""
        tell(f"{args.output}: {len(text):,} bytes; {what}{len(model.classes)} size classes{scripted}")
        tell(f"now: heapwright synth {args.output}")
    return 0
