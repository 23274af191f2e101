"""`heapwright measure`: a command under the meter, once or several times."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from heapwright.cli.common import (
    add_measuring_options,
    add_output_options,
    meter_options,
    need_command,
    positive,
    warn_of_settings,
    write_json,
)
from heapwright.errors import HeapwrightError
from heapwright.shown import console, warn

_EPILOG = """\
example:
  heapwright measure -n 5 -- perl -e 'my %h; $h{$_} = "x$_" for 1..200000'

What the command prints on stdout is passed on (of the first run only; with --json - not at all); the table
follows it. The exit status is the command's own.
"""


def add_parser(verbs: Any) -> None:
    """Adds the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "measure",
        help="run a command under the meter",
        description="Runs a command and reports its memory, time, faults and mapping calls.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-n", "--runs", type=positive, default=1, metavar="RUNS", help="how often (default 1)")
    add_measuring_options(parser)
    add_output_options(parser)
    parser.set_defaults(run=run, takes_command=True)


def run(args: argparse.Namespace) -> int:
    """Runs the verb."""
    from dataclasses import replace
    from pathlib import Path

    from heapwright.measure.meter import Run, run_metered
    from heapwright.workload.model import check_command

    command = need_command(args)
    check_command(command[0], Path.cwd())
    warn_of_settings()
    options = replace(meter_options(args), pss=True)
    runs: list[Run] = []
    try:
        with Path(os.devnull).open("wb") as nowhere:
            for number in range(args.runs):
                passed_on = number == 0 and args.json != "-"
                forward = sys.stdout.buffer if passed_on else nowhere
                runs.append(run_metered(command, options, forward=forward, attended=True))
    except HeapwrightError as error:
        raise HeapwrightError(error.message, error.hint, min(error.status, 127)) from None
    finally:
        if runs:
            _show(args, command, runs)
    return next((r.exit_code for r in runs if r.exit_code), 0)


def _show(args: argparse.Namespace, command: list[str], runs: list[Any]) -> None:
    import dataclasses

    from heapwright.measure.host import describe_host
    from heapwright.metrics import NUMERIC
    from heapwright.study.stats import summarise

    values = {m: [v for r in runs if (v := r.metrics[m]) is not None] for m in NUMERIC}
    summary = {m: summarise(v) if v else None for m, v in values.items()}
    for warning in dict.fromkeys(w for r in runs for w in r.warnings):
        warn(warning)
    if len({r.output_sha256 for r in runs}) > 1:
        warn("the output differs from run to run")
    if args.json:
        result = {
            "command": command,
            "host": describe_host(),
            "meter": runs[0].meter,
            "runs": [r.as_json() for r in runs],
            "summary": {
                m: {k: v for k, v in dataclasses.asdict(s).items() if k != "n"} if s else None
                for m, s in summary.items()
            },
        }
        write_json(args.json, result)
    if not args.quiet and args.json != "-":
        from heapwright.report.terminal import measure_table

        measure_table([r.as_json() for r in runs], {m: s for m, s in summary.items() if s}, console())
