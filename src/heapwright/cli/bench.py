"""`heapwright bench`: runs the allocator benchmarks under several allocators and thread counts."""

from __future__ import annotations

import argparse
import os
import shutil
from typing import Any

from heapwright.cli.common import (
    add_cluster_option,
    add_output_options,
    allocator_names,
    chosen_allocators,
    open_machines,
    positive,
    seconds,
    write_json,
    write_text,
    writes_stdout,
)
from heapwright.cli.output_files import file_or_stdout, output_folder
from heapwright.errors import INTERRUPTED
from heapwright.terminal_text import warn

_FULL, _QUICK = (1, 2, 4, 8), (1, 2)
_TIMEOUT, _QUICK_TIMEOUT = 60.0, 10.0

_EPILOG = """\
examples:
  heapwright bench --quick
  heapwright bench server --allocators glibc,jemalloc,./libmine.so --threads 1,4 -n 5
  heapwright bench all --json bench.json --markdown bench.md --plots plots

suites: realistic, openmp, server, shared-cache, producer-consumer, batch,
burst, phases, pages, realloc-growth, large, thread-exit, fork-storm, startup.
docs/benchmarks.md describes each program.
Ratios are to the first allocator (the reference); a ratio below 1 is less memory or time.
A name that is given twice is compared with itself, which shows the noise of the machine.
"""


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "bench",
        help="run the allocator benchmarks",
        description="Runs allocator benchmarks under several allocators in interleaved rounds.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "suite", nargs="?", default="all", metavar="SUITE", help="one of the suites below (default: all)"
    )
    parser.add_argument(
        "--allocators",
        type=allocator_names,
        metavar="A,B",
        help="names or paths, the reference first (default: all installed, glibc first)",
    )
    parser.add_argument("--threads", type=_counts, metavar="N,M", help="thread counts (default 1,2,4,8; quick: 1,2)")
    parser.add_argument("-n", "--rounds", type=positive, metavar="ROUNDS", help="rounds (default 5; quick: 3)")
    parser.add_argument("--quick", action="store_true", help="use small sizes: all suites take less than three minutes")
    parser.add_argument(
        "--seed", type=positive, default=1, metavar="N", help="random seed of the order and the work (default 1)"
    )
    parser.add_argument(
        "--csv", type=file_or_stdout, metavar="FILE", help="write every run, one per line; '-' writes to stdout"
    )
    parser.add_argument(
        "--markdown", type=file_or_stdout, metavar="FILE", help="write the tables as Markdown; '-' writes to stdout"
    )
    parser.add_argument(
        "--latex",
        type=file_or_stdout,
        metavar="FILE",
        help="write the tables as LaTeX (package booktabs); '-' writes to stdout",
    )
    parser.add_argument("--plots", type=output_folder, metavar="DIR", help="write figures as SVG into this directory")
    parser.add_argument("--timeout", type=seconds, metavar="S", help="maximum seconds of a run (default 60; quick: 10)")
    add_cluster_option(parser)
    add_output_options(parser)
    parser.set_defaults(run=run)


def _counts(text: str) -> list[int]:
    """Parse a list of thread counts such as '1,2,4' (an argparse type)."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isdecimal() and 1 <= int(word) <= 1024 for word in words):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of thread counts from 1 to 1024")
    return sorted({int(word) for word in words})


def _reproduce(args: argparse.Namespace) -> list[str]:
    """Return the command line that repeats the measurement."""
    words = ["heapwright", "bench", args.suite, "--threads", ",".join(map(str, args.threads)), "-n", str(args.rounds)]
    words += ["--quick"] if args.quick else []
    words += ["--allocators", args.allocators] if args.allocators else []
    words += ["--timeout", f"{args.timeout:g}"] if args.timeout else []
    return words + (["--seed", str(args.seed)] if args.seed != 1 else [])


def run(args: argparse.Namespace) -> int:
    """Run the verb; status 1 if nothing could be measured."""
    from heapwright.comparison.bench import Bencher, Suite, repeated, suite_executor, suite_workload
    from heapwright.comparison.suite import choose_benchmarks
    from heapwright.report.progress import make_progress

    writes_stdout(args)  # refuses two results
    benchmarks = choose_benchmarks(args.suite, args.quick)
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
    from heapwright.report.benchmarks import cell_failures, latex, markdown, suite_csv, suite_json, text

    if args.csv:
        write_text(args.csv, suite_csv(found))
    if args.markdown:
        write_text(args.markdown, markdown(found, _reproduce(args)))
    if args.latex:
        write_text(args.latex, latex(found, _reproduce(args)))
    if args.json:
        write_json(args.json, suite_json(found, _reproduce(args), args.seed))
    if args.plots:
        from heapwright.report.benchmark_plots import write_plots

        write_plots(found, args.plots)
    if not args.quiet and not writes_stdout(args):
        write_text("-", text(found, shutil.get_terminal_size((80, 24)).columns))
    else:
        for line in cell_failures(found):
            warn(line)
