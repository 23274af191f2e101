"""`heapwright synth`: draws a synthetic trace from a model and replays it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from heapwright.cli.common import add_output_options, write_json
from heapwright.cli.measuring_options import add_measuring_options
from heapwright.cli.output_files import regular_file
from heapwright.cli.replay import add_replay_options
from heapwright.files import scratch_folder
from heapwright.terminal_text import counted, tell, warn

_EPILOG = """\
examples:
  heapwright synth prog.model.json --allocator mimalloc
  heapwright synth prog.model.json --scale 10 --time-scale 0.1 -o ten-times.hwt

With -o the trace is written and not replayed. The same model, seed and scales give the same trace.
"""


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "synth",
        help="generate a trace from a model and run it",
        description="Draws a synthetic trace from a fitted model and replays it under an allocator and the meter.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "model",
        type=Path,
        metavar="MODEL",
        help="a model that 'heapwright fit' wrote, or a sample of a trace, which is expanded",
    )
    parser.add_argument(
        "-o", "--output", type=regular_file, metavar="TRACE", help="write the trace and do not replay it"
    )
    parser.add_argument(
        "--scale", type=_factor, default=1.0, metavar="F", help="multiply the live bytes by this factor (default 1)"
    )
    parser.add_argument(
        "--time-scale",
        type=_factor,
        default=1.0,
        metavar="F",
        help="multiply the number of allocations and frees by about this factor, at the same live bytes (default 1)",
    )
    parser.add_argument("--seed", type=_seed, default=0, metavar="N", help="random seed of the trace (default 0)")
    add_replay_options(parser)
    add_measuring_options(parser)
    add_output_options(parser)
    parser.set_defaults(run=run)


def _factor(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1e-6 <= value <= 1e6:
        raise argparse.ArgumentTypeError(f"'{text}' is not a factor from 0.000001 to 1000000")
    return value


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 1 << 47:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number below 2^47")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    from heapwright.cli import replay
    from heapwright.trace.model import is_trace, load_model, synthesise

    if is_trace(args.model):
        return _run_sample(args)
    model = load_model(args.model)
    about: dict[str, Any] = {
        "model": str(args.model),
        "seed": args.seed,
        "scale": args.scale,
        "time_scale": args.time_scale,
        "model_peak_live_bytes": model.peak_live_bytes,
    }
    if args.output:
        made = synthesise(model, args.output, args.seed, args.scale, args.time_scale)
        if args.json:
            counts = {"events": made.events, "allocations": made.allocations, "threads": made.threads}
            write_json(
                args.json, {**about, **counts, "peak_live_bytes": made.peak_live_bytes, "trace": str(args.output)}
            )
        if not args.quiet and args.json != "-":
            mib = made.peak_live_bytes / 2**20
            tell(f"{args.output}: {counted(made.events, 'event')}, peak live {mib:.1f} MiB")
        return 0
    with scratch_folder() as folder:
        args.trace = folder / "synthetic.hwt"
        synthesise(model, args.trace, args.seed, args.scale, args.time_scale)
        args.json_extra = {**about, "trace": None}
        return replay.run(args)


def _run_sample(args: argparse.Namespace) -> int:
    """Runs the verb on a sample of a trace in place of a model."""
    from heapwright.cli import replay
    from heapwright.errors import UsageError
    from heapwright.trace.model import expand_sample

    if (args.scale, args.time_scale) != (1.0, 1.0):
        raise UsageError(
            f"{args.model} is a trace, which cannot be scaled", "fit a model to it, and give synth the model"
        )
    about = {"model": None, "sample_trace": str(args.model), "seed": args.seed}
    with scratch_folder() as folder:
        args.trace = args.output or folder / "complete.hwt"
        made, warning = expand_sample(args.model, args.trace, args.seed)
        if warning:
            warn(warning)
        if not args.output:
            args.json_extra = {**about, "trace": None}
            return replay.run(args)
    if args.json:
        counts = {"events": made.events, "allocations": made.allocations, "threads": made.threads}
        write_json(args.json, {**about, **counts, "peak_live_bytes": made.peak_live_bytes, "trace": str(args.output)})
    if not args.quiet and args.json != "-":
        tell(f"{args.output}: {counted(made.events, 'event')}, peak live {made.peak_live_bytes / 2**20:.1f} MiB")
    return 0
