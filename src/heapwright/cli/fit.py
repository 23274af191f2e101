"""`heapwright fit`: fits a model to a trace, which can be shared without the trace."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heapwright.cli.common import add_output_options, positive, write_json
from heapwright.cli.output_files import output_file
from heapwright.files import write_whole
from heapwright.terminal_text import counted, tell, warn

if TYPE_CHECKING:
    from heapwright.trace.info import SampleEstimates

MAX_PEAK_ERROR = 0.03  # of the peak of live bytes; fit warns if the standard error is larger

_EPILOG = """\
examples:
  heapwright fit prog.hwt -o prog.model.json
  heapwright synth prog.model.json --allocator jemalloc

A sample of a trace (docs/trace-format.md) is expanded first. The model then has standard errors, and fit
warns if that of the peak of live bytes is above 3%.

The model holds counts of sizes and lifetimes, no addresses and no contents; docs/synth.md describes it.
"""


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "fit",
        help="fit a model to a trace",
        description="Fits a model of sizes and lifetimes to a trace. The model is small"
        " and can be shared without the trace.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a trace or a sample of one, packed or raw")
    parser.add_argument(
        "-o", "--output", type=output_file, required=True, metavar="MODEL", help="the file to write the model to"
    )
    parser.add_argument(
        "--model",
        choices=("windows", "rand-malloc"),
        default="windows",
        help="windows: sizes and lifetimes in each window of the trace (default); rand-malloc: a mean lifetime for "
        "each size, without phases, threads and realloc, for comparison",
    )
    parser.add_argument("--windows", type=positive, default=200, metavar="N", help="number of windows (default 200)")
    parser.add_argument("--with-command", action="store_true", help="keep the program's command line in the model")
    add_output_options(parser)
    parser.set_defaults(run=run)


def _uncertain(sample: SampleEstimates) -> str:
    needed = max(1, int(sample.rate * (MAX_PEAK_ERROR / sample.peak_share) ** 2))
    return (
        f"the peak of live bytes is uncertain: its standard error is {sample.peak_share:.1%}; "
        f"a sample of 1 object in {needed} would have about {MAX_PEAK_ERROR:.0%}"
    )


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    import msgspec

    from heapwright.errors import UsageError
    from heapwright.trace.info import SampleEstimates
    from heapwright.trace.model import WindowsModel, fit, to_text

    if args.windows > 10_000:
        raise UsageError(f"--windows {args.windows} is too large", "the maximum is 10000")
    model, warning = fit(args.trace, args.model, args.windows, args.with_command)
    if warning:
        warn(warning)
    sample = model.sample if isinstance(model.sample, SampleEstimates) else None
    if sample and sample.peak_share > MAX_PEAK_ERROR:
        warn(_uncertain(sample))
    text = to_text(model)
    write_whole(args.output, text)
    result = {
        "model": str(args.output),
        "kind": args.model,
        "bytes": len(text),
        "events": model.events,
        "allocations": model.allocations,
        "peak_live_bytes": model.peak_live_bytes,
        "windows": len(model.windows) if isinstance(model, WindowsModel) else None,
        "classes": len(model.classes),
        "sample": msgspec.to_builtins(sample),
        "scripted": len(model.script) // 10 if isinstance(model, WindowsModel) else None,
    }
    if args.json:
        write_json(args.json, result)
    if not args.quiet and args.json != "-":
        windows = f"{counted(result['windows'], 'window')}, " if result["windows"] is not None else ""
        scripted = (  # not 'large blocks': those have 64 KiB or more
            f", {counted(result['scripted'], 'lifetime')} of the largest blocks"
            if result["scripted"] is not None
            else ""
        )
        classes = counted(len(model.classes), "size class", "size classes")
        tell(f"{args.output}: {counted(len(text), 'byte')}; {windows}{classes}{scripted}")
        if sample:
            tell(
                f"fitted to a sample of 1 object in {sample.rate}; standard errors: peak live {sample.peak_share:.1%}, "
                f"allocations {sample.allocations_error / max(sample.allocations, 1):.1%}"
            )
        tell(f"next: heapwright synth {shlex.quote(str(args.output))}")
    return 0
