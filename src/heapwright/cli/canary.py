"""`heapwright canary`: compares two sets of live instances side by side."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heapwright.cli.common import add_output_options, write_json
from heapwright.cli.durations import duration, percentage
from heapwright.cli.output_files import output_file
from heapwright.errors import UsageError
from heapwright.terminal_text import console, warn

if TYPE_CHECKING:
    from heapwright.canary.readings import Reading
    from heapwright.canary.run import CanaryState
    from heapwright.canary.sources import Source

UNDECIDED = 4

_EPILOG = """\
examples:
  heapwright canary --control 4711,4712 --treatment 4713,4714 --for 2h
  heapwright canary --control web-a.service --treatment web-b.service --html canary.html
  heapwright canary --control 4711 --treatment 4713 --number 'errors=./errors.sh {group}'

Give one set of instances the setting (the treatment), leave the other as it is (the control), and send both the same
kind of load. The canary ends with a claim about memory, at the latest after --for. After an interruption, the same
command continues the canary: its readings are in the file of -o. Exit status: 0 with a claim about memory, which may
be that it is higher or the same; 4 without. docs/canary.md explains the statistics.
"""


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "canary",
        help="compare two sets of live instances",
        description="Compares live instances side by side for minutes to days: memory, CPU, page faults, and any number"
        " that a command or a Prometheus endpoint gives. It only reads.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    instances = "process ids (with their children), cgroup directories, units or containers, separated by commas"
    parser.add_argument("--control", required=True, metavar="LIST", help=f"instances as they are: {instances}")
    parser.add_argument(
        "--treatment", required=True, metavar="LIST", help="instances with the setting, written likewise"
    )
    parser.add_argument(
        "--for", dest="for_", type=duration, metavar="TIME", help="end at the latest after this time (90s, 30m, 6h)"
    )
    parser.add_argument(
        "--every", type=duration, default=5.0, metavar="TIME", help="time between two readings (default 5s)"
    )
    parser.add_argument(
        "--warm-up",
        type=duration,
        metavar="TIME",
        help="leave out an instance for this time after it is first seen or restarts (default: twelve readings)",
    )
    parser.add_argument(
        "--margin",
        type=percentage("between 0 and 100", lambda value: 0 < value < 100),
        default=0.01,
        metavar="PERCENT",
        help="differences below count as the same (default 1)",
    )
    parser.add_argument(
        "--number",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="also compare the number that a command prints; {group} in it becomes control or treatment; repeatable",
    )
    parser.add_argument("--prometheus-control", metavar="URL", help="endpoint of the control in Prometheus's format")
    parser.add_argument("--prometheus-treatment", metavar="URL", help="endpoint of the treatment")
    parser.add_argument(
        "--series",
        action="append",
        default=[],
        metavar="NAME",
        help="a series of these endpoints to compare; repeatable",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=output_file,
        default=Path("canary.jsonl"),
        metavar="FILE",
        help="the file that keeps the readings (default canary.jsonl)",
    )
    parser.add_argument("--html", type=output_file, metavar="FILE", help="also write a page with both curves")
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    from heapwright.canary.blocks import MEMORY, READINGS_PER_BLOCK
    from heapwright.canary.instances import can_read_pss, check_identity, check_names
    from heapwright.canary.judge import FIRST_LOOK
    from heapwright.canary.readings import Header, ReadingFile
    from heapwright.canary.run import CLAIMS, judge_readings, starts_of, take_readings
    from heapwright.units import show_exactly

    sources, definitions = _sources(args)
    control, treatment = check_names(args.control, "--control"), check_names(args.treatment, "--treatment")
    if both := set(control) & set(treatment):
        raise UsageError(f"{min(both)} is in the control and in the treatment")
    header = Header(control, treatment, args.every, can_read_pss([*control, *treatment]), definitions)
    warm_up = args.warm_up if args.warm_up is not None else args.every * READINGS_PER_BLOCK
    end = time.monotonic() + args.for_ if args.for_ else None
    looked = [0]

    def enough(readings: list[Reading]) -> bool:
        last = end is not None and time.monotonic() + args.every > end
        if len(readings) % READINGS_PER_BLOCK == 0:  # a block may have ended
            found = judge_readings(header, readings, warm_up, args.margin)
            if found.results[MEMORY].verdict in CLAIMS:
                return True
            looks = max((r.looks for r in found.results.values()), default=0)
            if looks > looked[0] and not last:  # the last one is shown at the end
                looked[0] = looks
                _show(args, found, final=False)
        return last

    with ReadingFile(args.output, header) as file:
        first_look_s = warm_up + FIRST_LOOK * READINGS_PER_BLOCK * args.every
        if args.for_ and not file.before and args.for_ < first_look_s:
            warn(
                f"--for {show_exactly(args.for_)} ends before the first look, which comes after"
                f" {show_exactly(first_look_s)}: there will be no claim. Give a longer --for, or a shorter --every"
            )
        started = starts_of(header, file.before)
        check_identity(control, started, "--control")
        check_identity(treatment, started, "--treatment")
        readings = take_readings(file, header, sources, enough)
    found = judge_readings(header, readings, warm_up, args.margin)
    _show(args, found, final=True)
    return 0 if MEMORY in found.results and found.results[MEMORY].verdict in CLAIMS else UNDECIDED


def _sources(args: argparse.Namespace) -> tuple[dict[str, Source], dict[str, str]]:
    """Return the sources of further numbers, and their definitions, by name."""
    from heapwright.canary.sources import of_command, of_prometheus

    sources: dict[str, Source] = {}
    definitions: dict[str, str] = {}
    for text in args.number:
        name, command, source = of_command(text)
        sources[name], definitions[name] = source, command
    urls = (args.prometheus_control, args.prometheus_treatment)
    if bool(args.series) != all(urls) or any(urls) != all(urls):
        raise UsageError("--prometheus-control, --prometheus-treatment and --series belong together")
    for name in args.series:
        sources[name] = of_prometheus(*urls, name)
        definitions[name] = " ".join(urls)
    return sources, definitions


def _show(args: argparse.Namespace, found: CanaryState, final: bool) -> None:
    """Print and write a canary so far."""
    from heapwright.report.canary import as_json, show_canary

    if args.html:
        from heapwright.report.canary_html import write_page

        write_page(found, args.html)
    if args.json and (final or args.json != "-"):
        write_json(args.json, as_json(found))
    if not args.quiet and args.json != "-":
        out = console()
        if not final:
            out.print(time.strftime("\n%H:%M:%S"), style="dim")
        show_canary(found, out)
