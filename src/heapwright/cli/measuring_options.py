"""Defines the options of every verb that measures: back end, Massif, instructions, time limit."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from heapwright.cli.common import seconds
from heapwright.errors import UsageError
from heapwright.terminal_text import warn

if TYPE_CHECKING:
    from heapwright.measure.meter import MeterOptions
    from heapwright.workload.model import Workload


def add_measuring_options(parser: argparse.ArgumentParser, compares: bool = False) -> None:
    """Add the options of every verb that measures.

    Args:
        parser: the parser of the verb.
        compares: whether the verb compares runs (`measure.meter.least_intrusive_backend`).
    """
    default = (
        "poll, unless a compared metric needs stops at mapping calls; then the best that works here"
        if compares
        else "the best that works here; see 'heapwright doctor'"
    )
    group = parser.add_argument_group("measurement")
    group.add_argument(
        "--meter",
        choices=("auto", "notify", "ptrace", "poll"),
        help=f"back end of the meter (default: {default})",
    )
    group.add_argument(
        "--massif",
        choices=("emulation", "kernel", "valgrind"),
        help="also measure the peak that Massif --pages-as-heap=yes reports: emulation computes it from the mapping"
        " calls, with brk and addresses as under Valgrind; kernel computes it with those of the kernel; valgrind"
        " repeats each run under Massif, 3-50 times slower",
    )
    group.add_argument(
        "--massif-compat", dest="massif", action="store_const", const="emulation", help="the same as --massif emulation"
    )
    group.add_argument(
        "--instructions",
        choices=("perf", "callgrind"),
        help="the counter of instructions; callgrind repeats each run under valgrind, 10-20 times slower",
    )
    group.add_argument("--timeout", type=seconds, metavar="S", help="maximum seconds of a run")


def measuring_words(args: argparse.Namespace) -> list[str]:
    """Return the words of a command line that repeat its measuring options."""
    options = {"--meter": args.meter, "--massif": args.massif, "--instructions": args.instructions}
    words = [word for option, value in options.items() if value for word in (option, value)]
    return [*words, "--timeout", f"{args.timeout:g}"] if args.timeout else words


def check_measuring(args: argparse.Namespace) -> None:
    """Refuse a back end that does not fit the other options, and warn if instructions cannot be counted.

    Raises:
        UsageError: --massif needs another back end.
    """
    from heapwright.measure.meter import probe, stops_for_massif

    if args.meter in ("notify", "poll") and stops_for_massif(args.massif is not None, args.massif or ""):
        raise UsageError(f"--massif {args.massif} needs the back end ptrace", f"leave out --meter {args.meter}")
    if args.instructions == "perf" and not getattr(args, "cluster", None):
        counted = probe()["instructions"]
        if not counted["works"]:
            warn(f"instructions cannot be counted here ({counted['why']}); --instructions callgrind can count them")


def meter_options(args: argparse.Namespace, timeout: float = 0.0) -> MeterOptions:
    """Return the measuring options of a command line.

    Args:
        args: the command line.
        timeout: maximum seconds of a run if --timeout is not given; 0 for no limit.

    Raises:
        UsageError: the options contradict each other.
    """
    from heapwright.measure.meter import MeterOptions

    check_measuring(args)
    return MeterOptions(
        backend=args.meter or "auto",
        massif=args.massif is not None,
        massif_by=args.massif or "emulation",
        timeout=args.timeout or timeout,
        callgrind=args.instructions == "callgrind",
    )


def refuse_unmeasured(workload: Workload, metrics: Iterable[str]) -> None:
    """Refuse a metric of a load or an objective that the workload does not define: no run can measure it.

    Raises:
        UsageError: one of the metrics is of that kind.
    """
    from heapwright.metrics import METRICS
    from heapwright.workload.metric_needs import missing_in_file

    for key in metrics if not workload.replays else ():
        if missing := missing_in_file(workload.file, key):
            raise UsageError(f"{METRICS[key].label} ({key}) cannot be measured here", missing)
