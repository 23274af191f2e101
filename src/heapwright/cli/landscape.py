"""`heapwright landscape`: sweeps one or two settings over their range, and shows the metric as numbers and a plot."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heapwright.cli.common import (
    add_cluster_option,
    add_command_options,
    add_output_options,
    add_study_option,
    add_workload_option,
    allocator_names,
    chosen_allocators,
    open_machines,
    open_workload,
    positive,
    refuse_uncompared,
    refuse_unreached,
    with_stdin_named,
    write_json,
    write_text,
    writes_stdout,
)
from heapwright.cli.containers import add_container_option
from heapwright.cli.measuring_options import add_measuring_options, check_measuring, refuse_unmeasured
from heapwright.cli.output_files import file_or_stdout, output_file, refuse_study
from heapwright.errors import INTERRUPTED, HeapwrightError, UsageError
from heapwright.terminal_text import console, say, visible

if TYPE_CHECKING:
    from heapwright.allocators.registry import Allocator
    from heapwright.study.landscape_result import LandscapeResult
    from heapwright.study.store import Store
    from heapwright.workload.model import Workload

_EPILOG = """\
examples:
  heapwright landscape --param mmap_threshold --plot mmap.svg -- ./solver big.cnf
  heapwright landscape --param mmap_threshold --param trim_threshold --step 1 --metric peak_heap -- ./prog
  heapwright landscape --param mmap_threshold --range mmap_threshold=1:32G -n 3 --csv runs.csv -- ./prog

Every point is measured together with the default; a ratio below 1 is less than the default. The study keeps all
metrics: the same command with another --metric shows that metric, and with a larger -n it adds runs.
"""


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "landscape",
        help="sweep one or two settings over their range",
        description="Sweeps one or two malloc settings and measures each point together with the default.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--param",
        action="append",
        required=True,
        metavar="P",
        help="the setting to sweep; repeat it to sweep two settings",
    )
    parser.add_argument(
        "--range",
        action="append",
        default=[],
        metavar="P=LOW:HIGH",
        help="its range (default: all values that a search would try)",
    )
    parser.add_argument(
        "--step", type=_step, metavar="S", help="step in powers of two (0.5), or in units on a linear scale"
    )
    parser.add_argument(
        "--allocator",
        type=allocator_names,
        default="glibc",
        metavar="A",
        help="the allocator of the settings (default glibc)",
    )
    parser.add_argument("--metric", metavar="M", help="the metric to show (default peak_rss)")
    parser.add_argument("-n", "--replicates", type=positive, metavar="N", help="runs of every point (default 1)")
    parser.add_argument(
        "--seed", type=positive, metavar="N", help="random seed of the order and the environment padding (default 1)"
    )
    add_study_option(parser)
    add_workload_option(parser)
    add_command_options(parser)
    add_container_option(parser)
    parser.add_argument(
        "--csv", type=file_or_stdout, metavar="FILE", help="write every run, one per line; '-' writes to stdout"
    )
    parser.add_argument("--plot", type=output_file, metavar="FILE", help="draw the landscape, as .svg, .png or .pdf")
    parser.add_argument(
        "--plot-optima",
        type=output_file,
        metavar="FILE",
        help="draw the network of local optima, as .svg, .png or .pdf",
    )
    add_measuring_options(parser, compares=True)
    add_cluster_option(parser)
    add_output_options(parser)
    parser.set_defaults(run=run, takes_command=True)


def _step(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.01 <= value <= 1e9:
        raise argparse.ArgumentTypeError(f"'{text}' is not a step from 0.01 to 1e9")
    return value


def parse_size(text: str) -> int | None:
    """Parse a number such as '512', '32K' (32768) or '2^35'; None for any other text."""
    power = re.fullmatch(r"2\^(\d{1,2})", text)
    if power:
        return 1 << int(power[1])
    match = re.fullmatch(r"(\d{1,19})([KMGT]?)", text.strip().upper())
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[match[2]] if match else None


def parse_ranges(texts: list[str], keys: list[str]) -> dict[str, tuple[int, int]]:
    """Parse the values of --range.

    Args:
        texts: P=LOW:HIGH each.
        keys: the parameters that are swept.

    Returns:
        Parameter → (low, high).

    Raises:
        UsageError: a value is not a range, or its parameter is not swept.
    """
    found: dict[str, tuple[int, int]] = {}
    for text in texts:
        key, _, rest = text.partition("=")
        low, _, high = rest.partition(":")
        ends = parse_size(low), parse_size(high)
        if ends[0] is None or ends[1] is None:
            raise UsageError(f"--range {text} is not P=LOW:HIGH", "for example mmap_threshold=256:32M")
        if key not in keys:
            raise UsageError(f"--range {text}: '{key}' is not swept", f"name it with --param {key}")
        found[key] = (ends[0], ends[1])
    return found


def swept_axes(args: argparse.Namespace, allocator: Allocator) -> tuple[str, ...]:
    """Return the axes that the command line asks for, as complete axis texts.

    Raises:
        UsageError: a parameter is unknown, or a range is invalid.
    """
    from heapwright.study.landscape_axes import axis_text
    from heapwright.tuning.landscape import grid_space

    keys: list[str] = list(dict.fromkeys(args.param))
    if len(keys) > 2:
        raise UsageError("a landscape has at most two parameters", "leave out some --param")
    ranges = parse_ranges(args.range, keys)
    space = allocator.space(threads=True, expert=True).restrict(keys)
    specs = {p.key: p.spec for p in space.params}
    ends = [ranges.get(key) or (None, None) for key in keys]
    texts = tuple(axis_text(specs[k], low, high, args.step) for k, (low, high) in zip(keys, ends, strict=True))
    grid_space(allocator, texts)
    return texts


def _path(workload: Workload, given: dict[str, Any]) -> Path:
    """Return `heapwright-PROGRAM-HASH.landscape`, so that the same sweep finds its study again."""
    same = {k: v for k, v in given.items() if k not in ("replicates", "objectives")}
    text = json.dumps([workload.identity(), same], sort_keys=True)
    program = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(workload.file.command[0]).name).strip("-.") or "program"
    return Path(f"heapwright-{program}-{hashlib.sha256(text.encode()).hexdigest()[:6]}.landscape")


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    with open_workload(args, keep=args.study.parent if args.study else Path()) as workload:
        return _sweep(args, workload)


def _metric_of(args: argparse.Namespace) -> str:
    """Return the key of the metric to show.

    Raises:
        UsageError: --metric names several metrics, or an unknown one.
    """
    from heapwright.objectives import parse_objectives

    metrics = parse_objectives(args.metric or "peak_rss", option="--metric")
    if len(metrics) > 1:
        raise UsageError(
            "--metric names several metrics",
            "name one; the study keeps all, and the same command can show another later",
        )
    return metrics[0].key


def _study_options(args: argparse.Namespace, allocator: Allocator, metric: str) -> dict[str, Any]:
    """Return the options of the study that the command line sets."""
    given: dict[str, Any] = {"allocator": allocator.name, "axes": swept_axes(args, allocator)}
    given |= {k: getattr(args, k) for k in ("seed", "meter", "timeout", "replicates") if getattr(args, k) is not None}
    if args.massif or metric == "massif_peak_bytes":
        given["massif"], given["massif_by"] = True, args.massif or "emulation"
    if args.instructions is not None:
        given["callgrind"] = args.instructions == "callgrind"
    return given


def _sweep(args: argparse.Namespace, workload: Workload) -> int:
    from heapwright.allocators.embedded import find_embedded
    from heapwright.report.landscape import check_plot
    from heapwright.study.landscape_judge import landscape_result_of
    from heapwright.study.open import open_or_begin
    from heapwright.tuning.landscape import sweep
    from heapwright.tuning.session import Session

    check_plot(args.plot)
    check_plot(args.plot_optima, "--plot-optima")
    shows_lines = not writes_stdout(args) and not args.quiet  # before the runs: it refuses two results on stdout
    metric = _metric_of(args)
    refuse_uncompared(workload, [metric])
    refuse_unmeasured(workload, [metric])
    embedded = find_embedded(workload.program(workload.inputs[0]))
    allocator = chosen_allocators(args.allocator, embedded=embedded, container=workload.container)[0]
    check_measuring(args)
    given = _study_options(args, allocator, metric)
    refuse_unreached(workload, allocator)
    path = args.study or _path(workload, given)
    refuse_study(path, args.csv, args.json, args.plot, args.plot_optima)
    if not path.exists():
        given["objectives"] = (metric,)
    again = with_stdin_named(["heapwright", *args.line], args)
    store, options = open_or_begin(path, workload, [allocator], given, again, tell=say)
    args.stdin_needed = True
    with store:
        from heapwright.report.progress import make_progress

        try:
            with make_progress(args.quiet, workload.file.server is not None) as progress:
                progress.note(f"study: {path}")
                with open_machines(args, workload, [allocator], progress, store) as machines:
                    session = Session(store, workload, [allocator], options, progress, machines)
                    sweep(session, metric if args.metric else "")
        except KeyboardInterrupt:
            sys.stderr.write("\n")
            say(f"interrupted; {path} holds all runs so far, and the same command continues it")
            return INTERRUPTED
        except HeapwrightError:
            args.stdin_needed = not store.remove_if_empty()
            raise
        landscape = landscape_result_of(store, metric if args.metric else "")
        _write_data(args, store, landscape)
    _draw_plots(args, landscape)
    if shows_lines:
        _print(landscape, path)
    return 0


def _write_data(args: argparse.Namespace, store: Store, landscape: LandscapeResult) -> None:
    """Write the CSV and JSON files that the command line names."""
    from heapwright.report.optima_plot import analysis_json
    from heapwright.study.landscape_export import landscape_csv, landscape_json

    if args.csv:
        write_text(args.csv, landscape_csv(store, landscape))
    if args.json:
        write_json(args.json, {**landscape_json(store, landscape), "analysis": analysis_json(landscape)})


def _draw_plots(args: argparse.Namespace, landscape: LandscapeResult) -> None:
    """Draw the pictures that the command line names."""
    from heapwright.report.landscape import plot_landscape
    from heapwright.report.optima_plot import plot_optima

    if args.plot:
        plot_landscape(landscape, args.plot)
    if args.plot_optima:
        plot_optima(landscape, args.plot_optima)


def _print(landscape: LandscapeResult, path: Path) -> None:
    """Print the landscape, its analysis and the path of the study."""
    from heapwright.report.landscape import landscape_lines
    from heapwright.report.optima_plot import analysis_of, analysis_text
    from heapwright.report.terminal import paragraph

    out = console()
    for line in landscape_lines(landscape, out.width):
        out.print(line, soft_wrap=True)
    if landscape.best is not None:
        out.print(paragraph(f"analysis: {analysis_text(analysis_of(landscape))}", out.width, "  "), soft_wrap=True)
    out.print(visible(f"study: {path}"), soft_wrap=True)
