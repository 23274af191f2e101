"""`heapwright compare`: runs a command under several allocators and compares their cost."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from heapwright.cli.cautions import warn_of_settings
from heapwright.cli.common import (
    add_cluster_option,
    add_command_options,
    add_output_options,
    add_workload_option,
    allocator_names,
    chosen_allocators,
    open_machines,
    open_workload,
    positive,
    refuse_uncompared,
    write_json,
    write_text,
    writes_stdout,
)
from heapwright.cli.containers import add_container_option
from heapwright.cli.measuring_options import add_measuring_options, measuring_words, meter_options, refuse_unmeasured
from heapwright.cli.output_files import file_or_stdout, output_file
from heapwright.cli.recordings import add_trace_options, open_recordings, opened_replays, refuse_unreplayable
from heapwright.errors import INTERRUPTED, UsageError
from heapwright.terminal_text import console, visible, warn

if TYPE_CHECKING:
    from heapwright.allocators.registry import Allocator
    from heapwright.comparison.compare import Comparison
    from heapwright.interleaving.replays import Replays
    from heapwright.trace.recordings import Recordings
    from heapwright.workload.model import Workload

_EPILOG = """\
examples:
  heapwright compare -- z3 problem.smt2
  heapwright compare --allocators glibc,jemalloc,./libmine.so -n 20 --plot plot.svg -- ./prog
  heapwright compare --workload redis.toml --markdown table.md
  heapwright compare --trace service.hwt --metrics mean_rss,peak_rss

Ratios are to the first row (the reference); a ratio below 1 is less memory or time. An interval holds for its row and
metric alone: of many, one in twenty misses the true ratio by chance. Without --allocators the
reference is the unchanged program: the row glibc, or a row 'default' if the program has another malloc, with glibc
as a further row. With --trace every run is a replay of a recording: its ratios are predictions.
An allocator has no figures if it is not loaded into the program (of a script: into the process with most memory).
"""

_MIN_LEGEND = 60  # columns of the legend of a narrow table


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "compare",
        help="run a command under several allocators and compare them",
        description="Runs a command under several allocators in interleaved rounds and compares memory and time.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_workload_option(parser)
    add_trace_options(parser)
    add_command_options(parser)
    add_container_option(parser)
    parser.add_argument(
        "--allocators",
        type=allocator_names,
        metavar="A,B",
        help="names or paths, the reference first (default: all installed, compared with the unchanged program)",
    )
    parser.add_argument("-n", "--rounds", type=positive, default=10, metavar="ROUNDS", help="rounds (default 10)")
    parser.add_argument("--metrics", metavar="M,N", help="metrics that the table shows (default wall,cpu,peak_rss)")
    parser.add_argument(
        "--seed",
        type=positive,
        default=1,
        metavar="N",
        help="random seed of the order and the environment padding (default 1)",
    )
    parser.add_argument(
        "--csv", type=file_or_stdout, metavar="FILE", help="write every run, one per line; '-' writes to stdout"
    )
    parser.add_argument(
        "--markdown", type=file_or_stdout, metavar="FILE", help="write the table as Markdown; '-' writes to stdout"
    )
    parser.add_argument(
        "--latex",
        type=file_or_stdout,
        metavar="FILE",
        help="write the table as LaTeX (package booktabs); '-' writes to stdout",
    )
    parser.add_argument(
        "--plot", type=output_file, metavar="FILE", help="draw time against memory, as .svg, .png or .pdf"
    )
    add_measuring_options(parser, compares=True)
    add_cluster_option(parser)
    add_output_options(parser)
    parser.set_defaults(run=run, takes_command=True)


def _reproduce(args: argparse.Namespace) -> list[str]:
    """Return the command line that repeats the measurement."""
    words = ["heapwright", "compare", "-n", str(args.rounds)]
    words += ["--allocators", args.allocators] if args.allocators else []
    words += ["--metrics", args.metrics] if args.metrics else []
    words += ["--success", ",".join(map(str, args.success))] if args.success else []
    words += ["--stdin", args.stdin] if args.stdin else []
    words += [f"--prefix={args.prefix.as_option()}"] if args.prefix else []
    words += ["--seed", str(args.seed)] if args.seed != 1 else []
    words += ["--container", args.container] if args.container else []
    words += [f"--container-args={args.container_args}"] if args.container_args is not None else []
    words += ["--cluster", args.cluster] if args.cluster else []
    words += measuring_words(args)
    if args.trace:
        return [*words, "--trace", *map(str, args.trace)]
    return [*words, "--workload", str(args.workload)] if args.workload else [*words, "--", *args.command]


def run(args: argparse.Namespace) -> int:
    """Run the verb; status 1 if no allocator except the reference could be measured.

    Raises:
        HeapwrightError: nothing could be run, or a late run of the reference failed. Then the results so far are shown.
    """
    opened = open_recordings(args) if args.trace else open_workload(args)
    with opened as workload, opened_replays(workload) as recorded:
        return _compare(args, workload, recorded)


def _metrics_to_compare(args: argparse.Namespace, workload: Workload, replayed: bool) -> list[str]:
    """Return the keys of the metrics that the user asked for, or of those that this kind of run can compare."""
    from heapwright.objectives import parse_metrics

    timed = workload.file.prefix is None or workload.file.prefix.compares("wall_s")
    usual = "peak_rss,mean_rss,cpu" if replayed else "wall,cpu,peak_rss" if timed else "peak_rss,mean_rss"
    return [m.key for m in parse_metrics(args.metrics or usual)]


def _compare(args: argparse.Namespace, workload: Workload, recorded: tuple[Recordings, Replays] | None) -> int:
    if args.cluster and workload.file.output.compare == "command":  # each worker would have a reference of its own
        raise UsageError("compare --cluster cannot compare outputs by a command", "leave out --cluster")
    from heapwright.allocators.embedded import find_embedded
    from heapwright.allocators.in_image import not_in_image
    from heapwright.allocators.registry import OURS
    from heapwright.comparison.bench import repeated
    from heapwright.comparison.compare import Comparer
    from heapwright.measure.meter import least_intrusive_backend, needs_pss, stops_for_massif
    from heapwright.metrics import METRICS
    from heapwright.report.comparison import allocator_failures
    from heapwright.report.landscape import check_plot
    from heapwright.report.progress import make_progress
    from heapwright.workload.metric_needs import METRIC_NEEDS
    from heapwright.workload.work_done import replacement_metrics

    shows_table = not writes_stdout(args) and not args.quiet  # before the runs: it refuses two results on stdout
    metrics = _metrics_to_compare(args, workload, recorded is not None)
    refuse_uncompared(workload, metrics)
    refuse_unmeasured(workload, metrics)
    embedded = find_embedded(workload.program(workload.inputs[0]))
    allocators = chosen_allocators(args.allocators, repeats=True, embedded=embedded, container=workload.container)
    if workload.container is not None and not args.allocators:
        left_out = not_in_image(workload.container.image.platform, workload.container.image.libraries)
        if why := left_out.get(OURS[0]):
            warn(f"{' and '.join(name for name in OURS if name in left_out)} are not compared: {why}")
    if recorded is not None:
        refuse_unreplayable(metrics)
        allocators = _replayed(allocators, recorded[0], named=bool(args.allocators))
    allocators = repeated(allocators)
    check_plot(args.plot)
    warn_of_settings(workload, allocators)
    options = meter_options(args, workload.file.timeout)
    backend = least_intrusive_backend(options.backend, metrics, stops_for_massif(options.massif, options.massif_by))
    options = replace(options, backend=backend, pss=needs_pss(metrics))
    base = workload.base_environment()
    with (
        make_progress(args.quiet, workload.file.server is not None) as progress,
        open_machines(args, workload, allocators, progress) as machines,
    ):
        named = bool(args.allocators) or recorded is not None
        comparer = Comparer(
            workload, allocators, options, args.seed, progress, base, machines, named, embedded, recorded
        )
        found = comparer.run(args.rounds)
    for key in metrics if args.metrics else ():
        if all(key not in row.summary for row in found.rows):
            hint = METRIC_NEEDS.get(key, "'heapwright doctor' tells why")
            warn(f"{METRICS[key].label} ({key}) cannot be measured here: {hint}")
    if found.fixed_time and not args.metrics:
        metrics = list(replacement_metrics(metrics))
    _write_files(args, found, metrics, recorded[0].command if recorded else workload.file.command)
    if shows_table:
        _print(found, metrics)
    else:
        for text in [*allocator_failures(found), *found.warnings]:
            warn(text)
    if found.interrupted:
        return INTERRUPTED
    if found.error:
        raise found.error
    reference, *others = found.rows
    return 0 if not reference.failure and (not others or any(not row.failure for row in others)) else 1


def _write_files(args: argparse.Namespace, found: Comparison, metrics: list[str], command: list[str]) -> None:
    """Write the tables, the picture and the JSON file that the command line names.

    Args:
        args: the command line.
        found: the comparison.
        metrics: keys of the metrics in the tables.
        command: the command that was measured or recorded.
    """
    from heapwright.report.comparison import comparison_csv, comparison_json, latex, markdown, plot_comparison

    if args.csv:
        write_text(args.csv, comparison_csv(found))
    if args.markdown:
        write_text(args.markdown, markdown(found, metrics, _reproduce(args)))
    if args.latex:
        write_text(args.latex, latex(found, metrics, _reproduce(args)))
    if args.plot:
        plot_comparison(found, args.plot)
    if args.json:
        write_json(args.json, comparison_json(found, command))


def _print(found: Comparison, metrics: list[str]) -> None:
    """Print the table, the failures and the warnings."""
    from heapwright.report.comparison import allocator_failures, recordings_heading, show_table, title
    from heapwright.report.terminal import paragraph

    out = console()
    for text in recordings_heading(found, metrics):
        out.print(visible(paragraph(text, out.width), "\n"), soft_wrap=True)
    width = max(show_table(found, metrics, out), min(_MIN_LEGEND, out.width))
    out.print(visible(paragraph(title(found), width), "\n"), style="table.caption", soft_wrap=True)
    for text in allocator_failures(found):
        out.print(visible(text), style="yellow", soft_wrap=True)
    for text in found.warnings:
        out.print(visible(f"warning: {text}"), style="yellow")


def _replayed(allocators: list[Allocator], recordings: Recordings, named: bool) -> list[Allocator]:
    """Return the allocators as they are replayed; unless the user named them, the recorded program's comes first."""
    from heapwright.trace.recordings import as_replayed, reference_allocator

    found = [as_replayed(a, recordings) for a in allocators]
    if named:
        return found
    first = reference_allocator(recordings)
    return [first, *(a for a in found if (a.preload, a.env) != (first.preload, first.env))]
