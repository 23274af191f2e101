"""`heapwright bench`: the allocator benchmarks, over allocators and threads."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from typing import Any

from heapwright.cli.common import (
    add_cluster_option,
    add_output_options,
    chosen_allocators,
    open_machines,
    positive,
    seconds,
    write_json,
)
from heapwright.errors import INTERRUPTED, UsageError
from heapwright.files import write_whole

_FULL, _QUICK = (1, 2, 4, 8), (1, 2)
_TIMEOUT, _QUICK_TIMEOUT = 60.0, 10.0

_EPILOG = """\
examples:
  heapwright bench --quick
  heapwright bench server --allocators glibc,jemalloc,./libmine.so --threads 1,4 -n 5
  heapwright bench all --json bench.json --markdown bench.md --plots plots

suites: realistic, openmp, server, producer-consumer, batch, phases, realloc-growth,
large, thread-exit, fork-storm, startup; what each program models: docs/benchmarks.md
Ratios are to the first allocator (the reference); below 1 is less memory or time.
A name given twice is compared with itself, which shows what the machine's noise makes of nothing.
"""


def add_parser(verbs: Any) -> None:
    """Adds the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "bench",
        help="run the allocator benchmarks",
        description="Runs allocator benchmarks under several allocators in interleaved rounds.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("suite", nargs="?", default="all", metavar="SUITE", help="one of those below (default: all)")
    parser.add_argument(
        "--allocators", metavar="A,B", help="names or paths, the reference first (default: all found, glibc first)"
    )
    parser.add_argument("--threads", type=_counts, metavar="N,M", help="thread counts (default 1,2,4,8; quick: 1,2)")
    parser.add_argument("-n", "--rounds", type=positive, metavar="ROUNDS", help="rounds (default 5; quick: 3)")
    parser.add_argument("--quick", action="store_true", help="small sizes: everything within three minutes")
    parser.add_argument("--seed", type=positive, default=1, metavar="N", help="of order and work (default 1)")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="every run, a line each")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the tables, for a document")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="figures as SVG, in a directory made if need be")
    parser.add_argument("--timeout", type=seconds, metavar="S", help="seconds a run may take (default 60; quick: 10)")
    add_cluster_option(parser)
    add_output_options(parser)
    parser.set_defaults(run=run)


def _counts(text: str) -> list[int]:
    """An argparse type: '1,2,4'."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isdecimal() and 1 <= int(word) <= 1024 for word in words):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of thread counts from 1 to 1024")
    return sorted({int(word) for word in words})


def _reproduce(args: argparse.Namespace) -> list[str]:
    """The command line that measures the same again."""
    words = ["heapwright", "bench", args.suite, "--threads", ",".join(map(str, args.threads)), "-n", str(args.rounds)]
    words += ["--quick"] if args.quick else []
    words += ["--allocators", args.allocators] if args.allocators else []
    return words + (["--seed", str(args.seed)] if args.seed != 1 else [])


def run(args: argparse.Namespace) -> int:
    """Runs the verb; status 1 if nothing could be measured."""
    from heapwright.comparison.bench import Bencher, Suite, repeated, suite_executor, suite_workload
    from heapwright.comparison.suite import choose_benchmarks
    from heapwright.report.progress import make_progress

    benchmarks = choose_benchmarks(args.suite, args.quick)
    for option, path in (("--csv", args.csv), ("--markdown", args.markdown), ("--json", args.json)):
        if path and str(path) != "-" and not Path(path).absolute().parent.is_dir():
            raise UsageError(f"{option} {path}: there is no directory {Path(path).parent}", "make it first")
    if args.plots and args.plots.exists() and not args.plots.is_dir():
        raise UsageError(f"--plots {args.plots}: is not a directory")
    args.threads = args.threads or list(_QUICK if args.quick else _FULL)
    args.rounds = args.rounds or (3 if args.quick else 5)
    allocators = repeated(chosen_allocators(args.allocators, repeats=True))
    suite = Suite(args.suite, args.quick, benchmarks, allocators, args.rounds)
    workload = suite_workload(benchmarks)
    executor = suite_executor(workload, args.timeout or (_QUICK_TIMEOUT if args.quick else _TIMEOUT))
    with (
        make_progress(quiet=args.quiet) as progress,
        open_machines(args, workload, allocators, progress) as machines,
    ):
        found = Bencher(suite, args.threads, executor, args.seed, progress, dict(os.environ), machines).run()
    _write(args, found)
    if found.interrupted:
        return INTERRUPTED
    return 0 if any(cell.measured for cell in found.cells.values()) else 1


def _write(args: argparse.Namespace, found: Any) -> None:
    from heapwright.report.benchmarks import csv_text, markdown, suite_json, text

    if args.csv:
        write_whole(args.csv, csv_text(found))
    if args.markdown:
        write_whole(args.markdown, markdown(found, _reproduce(args)))
    if args.json:
        write_json(args.json, suite_json(found, _reproduce(args), args.seed))
    if args.plots:
        from heapwright.report.benchmark_plots import write_plots

        write_plots(found, args.plots)
    if not args.quiet and args.json != "-":
        print(text(found, shutil.get_terminal_size((80, 24)).columns), end="")
