"""`heapwright tune`: runs the whole tuning pipeline, or resumes it from an existing study."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heapwright.cli.cautions import warn_of_settings
from heapwright.cli.chosen_spaces import (
    added_spaces,
    all_allocators,
    check_options,
    named_allocators,
    names,
    serving_allocators,
)
from heapwright.cli.common import (
    add_cluster_option,
    add_command_options,
    add_output_options,
    add_study_option,
    allocator_names,
    open_machines,
    open_workload,
    positive,
    refuse_uncompared,
    refuse_unreached,
    with_stdin_named,
)
from heapwright.cli.containers import add_container_option
from heapwright.cli.durations import percentage
from heapwright.cli.measuring_options import add_measuring_options, check_measuring, refuse_unmeasured
from heapwright.cli.output_files import output_file, refuse_study
from heapwright.cli.recordings import (
    add_trace_options,
    open_recordings,
    opened_replays,
    refuse_test_alone,
    refuse_unreplayable,
)
from heapwright.cli.study_result import exit_status, show_result
from heapwright.errors import INTERRUPTED, HeapwrightError, UsageError
from heapwright.terminal_text import say

if TYPE_CHECKING:
    from heapwright.allocators.registry import Allocator
    from heapwright.interleaving.replays import Replays
    from heapwright.trace.recordings import Recordings
    from heapwright.workload.model import Workload

_EPILOG = """\
examples:
  heapwright tune -- perl report.pl access.log
  heapwright tune --minimize mean_rss,wall --budget 20m --study solver.study -- ./solver big.cnf
  heapwright tune --workload redis.toml
  heapwright tune --trace monday.hwt tuesday.hwt --test sunday.hwt --minimize mean_rss
  zcat log.gz | heapwright tune -- sort -n

The result is a study (FILE) and a report beside it (.html). After an interruption, the same command continues the
study. A pipe on standard input is read once, stored beside the study and given to every run. Each input has its own
study.
"""


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "tune",
        help="find and prove the best malloc settings for a command",
        description="Measures a command, searches for better malloc settings, confirms the"
        " best with fresh runs, and writes a"
        " report.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--workload", type=Path, metavar="FILE", help="a workload file (TOML) instead of a command")
    add_trace_options(parser, held_out=True)
    add_command_options(parser)
    add_container_option(parser)
    parser.add_argument("--minimize", metavar="M1,M2", help="metrics to minimise (default peak_rss,cpu)")
    parser.add_argument("--maximize", metavar="M", help="a metric to maximise: throughput of a server's load")
    parser.add_argument(
        "--budget",
        metavar="N|TIME",
        help="number of distinct configurations to evaluate, or total time (200, 15m); default 96 within 10m",
    )
    add_study_option(parser)
    parser.add_argument(
        "--same-program",
        action="store_true",
        help="continue a study even if its program or an allocator was rebuilt or changed",
    )
    parser.add_argument(
        "--report",
        type=output_file,
        metavar="FILE",
        help="the file of the report (default: the name of the study, ending in .html)",
    )
    parser.add_argument("--no-report", action="store_true", help="write no report; 'heapwright report' can do it later")
    _add_search_options(parser)
    _add_result_options(parser)
    add_measuring_options(parser, compares=True)
    add_cluster_option(parser)
    parser.add_argument(
        "--worker", metavar="ADDRESS", help="with --cluster: use only this worker, as 'experiment --cluster' does"
    )
    add_output_options(parser)
    parser.set_defaults(run=run, takes_command=True)


def _add_search_options(parser: argparse.ArgumentParser) -> None:
    search = parser.add_argument_group("search")
    search.add_argument(
        "--allocators",
        type=allocator_names,
        metavar="A,B",
        help="the allocators to search (default: all installed, except hardened builds)",
    )
    search.add_argument(
        "--preset",
        metavar="NAME",
        help="repeat the search of a publication: landscape2025 or greenmalloc2025; landscape and greenmalloc also"
        " leave settings unset",
    )
    search.add_argument(
        "--space", type=Path, metavar="FILE", help="search your own parameter-space file (TOML, docs/spaces.md)"
    )
    search.add_argument(
        "--add-space",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="also search this parameter space, beside the allocators' (a runtime's or your own; repeatable)",
    )
    search.add_argument(
        "--no-runtime",
        action="store_true",
        default=None,
        help="do not search the settings of the program's runtime, such as PYTHONMALLOC",
    )
    search.add_argument("--params", metavar="P,Q", help="search only these parameters")
    search.add_argument(
        "--expert", action="store_true", default=None, help="also search settings that can slow down or break a program"
    )
    search.add_argument(
        "--method", metavar="NAME", help="search method: auto (default), gp, nsga2, cmaes, local, sobol, random, grid …"
    )
    search.add_argument(
        "--proxy",
        choices=("auto", "replay", "none"),
        help="search on replays of the program's allocation trace: auto (default; if they are cheaper than the program"
        " and predict it), replay (end with an error if they are impossible), none (never)",
    )
    search.add_argument(
        "--search-only",
        action=argparse.BooleanOptionalAction,
        help="end after the search, as published searches do: keep its best single evaluations as they are, and confirm"
        " nothing",
    )
    search.add_argument("--warm-start", nargs="+", metavar="STUDY", help="first try the best settings of other studies")
    search.add_argument("--seed", type=positive, metavar="N", help="seed of all random choices (default 1)")


def _add_result_options(parser: argparse.ArgumentParser) -> None:
    proof = parser.add_argument_group("confirmation and result")
    proof.add_argument(
        "--margin",
        type=_percent,
        metavar="PCT",
        help="equivalence margin: smaller differences do not matter, in per cent (default 0.5)",
    )
    proof.add_argument(
        "--pairs", type=_pairs, metavar="MIN[:MAX]", help="pairs of the confirmation for each input (default 15:40)"
    )
    proof.add_argument(
        "--no-minify",
        dest="minify",
        action="store_false",
        default=None,
        help="confirm the picks of the search with all their settings, useful or not",
    )
    proof.add_argument(
        "--require",
        action="append",
        metavar="BOUND",
        help="a bound that a pick must keep, of any metric, for example 'p99_ms <= 1.05x' (times the default's value),"
        " 'peak_rss <= 64MiB' or 'load_errors <= 0'; repeatable",
    )
    proof.add_argument(
        "--limit",
        metavar="M=PCT",
        help="recommend no settings that cost more than this: cpu=+2%% (a metric, memory or time; several with commas)",
    )
    proof.add_argument(
        "--price",
        metavar="A:B=X:Y",
        help="price: a change of X%% of A weighs as much as Y%% of B, as in memory:cpu=1:2 (default:"
        " a loss counts three times as much"
        " as a gain)",
    )
    proof.add_argument(
        "--exit-code",
        action="store_true",
        help="report the result by the exit status: 0 a gain is proven, 3 no gain is"
        " proven, 4 the time was too short to"
        " prove anything, or a gain is only predicted (--trace)",
    )


_percent = percentage("from 0 to 50", lambda value: 0 <= value < 50)


def _pairs(text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    if not low.isdecimal() or not (high or low).isdecimal() or int(low) < 6 or int(high or low) < int(low):
        raise argparse.ArgumentTypeError(f"'{text}' is not MIN or MIN:MAX with MIN at least 6 and MAX at least MIN")
    return int(low), max(int(high or 0), int(low)) if high else max(40, int(low))


def given_options(args: argparse.Namespace, allocator: str) -> dict[str, Any]:
    """Return the options that the user gave, by their names in the study.

    Args:
        args: the command line.
        allocator: the names of the allocators, separated by commas.
    """
    from heapwright.objectives import parse_objectives
    from heapwright.search.methods import check_method
    from heapwright.study.options import parse_budget
    from heapwright.study.policy import parse_limits, parse_prices
    from heapwright.study.requirement import parse_requirement

    check_measuring(args)
    given: dict[str, Any] = {"allocator": allocator}
    if args.preset is not None:
        from heapwright.allocators.presets import load_preset

        chosen = load_preset(args.preset).options
        given |= {k: tuple(v) if isinstance(v, list) else v for k, v in chosen.items()}
        given |= {"preset": args.preset}
    if args.minimize is not None or args.maximize is not None:
        given["objectives"] = tuple(m.key for m in parse_objectives(args.minimize, args.maximize))
    if args.budget is not None:
        given["evaluations"], given["budget_s"] = parse_budget(args.budget)
    if args.method is not None:
        check_method(args.method)
        given["method"] = args.method
    if args.params is not None:
        given["params"] = tuple(p.strip() for p in args.params.split(",") if p.strip())
    if args.warm_start is not None:
        given["warm_start"] = tuple(args.warm_start)
    if args.limit is not None:
        given["limits"] = parse_limits(args.limit)
    if args.require is not None:
        given["requires"] = tuple(parse_requirement(text).text for text in args.require)
    if args.price is not None:
        given["prices"] = parse_prices(args.price)
    if args.pairs is not None:
        given["pairs_min"], given["pairs_max"] = args.pairs
    if args.instructions is not None:
        given["callgrind"] = args.instructions == "callgrind"
    if args.massif is not None:
        given["massif"], given["massif_by"] = True, args.massif
    elif "massif_peak_bytes" in given.get("objectives", ()):
        given = {"massif": True, "massif_by": "emulation", **given}
    if args.no_runtime:
        given["runtime"] = False
    for option, name in (
        ("seed", "seed"),
        ("margin", "margin"),
        ("expert", "expert"),
        ("proxy", "proxy"),
        ("meter", "meter"),
        ("timeout", "timeout"),
        ("search_only", "search_only"),
        ("minify", "minify"),
    ):
        if getattr(args, option) is not None:
            given[name] = getattr(args, option)
    return given


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    refuse_test_alone(args)
    if args.worker and not args.cluster:
        raise UsageError("--worker needs --cluster", "it is the address of a worker of the cluster")
    opened = (
        open_recordings(args, cluster=True)
        if args.trace
        else open_workload(args, args.study.parent if args.study else Path())
    )
    with opened as workload, opened_replays(workload) as recorded:
        return _tune(args, workload, recorded)


def _tune(args: argparse.Namespace, workload: Workload, recorded: tuple[Recordings, Replays] | None) -> int:
    from heapwright.allocators.embedded import find_embedded
    from heapwright.measure.host import process_start
    from heapwright.report.progress import make_progress
    from heapwright.study.choose import keep_choice
    from heapwright.study.load import view_of
    from heapwright.study.open import default_path, open_or_begin, report_path
    from heapwright.study.requirement import metrics_of
    from heapwright.tuning.pipeline import tune_study
    from heapwright.tuning.session import Session
    from heapwright.tuning.warm_start import good_settings

    embedded = find_embedded(workload.program(workload.inputs[0]))
    named = named_allocators(args, embedded, workload.container)
    added, more = added_spaces(args, {"runtime": False} if args.no_runtime else {})
    path = args.study or default_path(workload, named, added)
    refuse_study(path, args.report, args.json)
    allocators = [*_searched(args, workload, path, named, embedded), *more]
    given = given_options(args, ",".join(a.name for a in allocators))
    if recorded is not None:
        allocators, recorded = _on_recordings(given, allocators, recorded)
    given = _without_replays(args, given, is_new=not path.exists(), in_container=workload.container is not None)
    check_options(given, allocators, added, recorded is None and workload.container is None)
    refuse_uncompared(workload, given.get("objectives", ()))
    refuse_unmeasured(workload, (*given.get("objectives", ()), *metrics_of(given.get("requires", ()))))
    if len(allocators) == 1:
        refuse_unreached(workload, allocators[0])
    warn_of_settings(workload, allocators)
    if args.warm_start and not path.exists():
        good_settings([Path(p) for p in args.warm_start], [a.name for a in allocators], 1)
    report = args.report or report_path(path)
    began = process_start() + args.waited_s  # waiting for a pipe does not count as time of the study
    again = with_stdin_named(["heapwright", *args.line], args)
    store, options = open_or_begin(path, workload, allocators, given, again, args.same_program, say, added)
    args.stdin_needed = True
    with store:
        try:
            with make_progress(args.quiet, workload.file.server is not None) as progress:
                progress.note(f"study: {path}")
                if recorded is not None:
                    from heapwright.trace.replay import effort

                    progress.note(recorded[0].reference_why)
                    for name, recording in recorded[0].inputs.items():
                        if hint := effort(recording.events):
                            progress.note(f"{name} stands for {recording.events:,} events: {hint}")
                with open_machines(args, workload, allocators, progress, store) as machines:
                    tune_study(
                        Session(store, workload, allocators, options, progress, machines, began, recorded, added)
                    )
            view, too_short = view_of(store), store.meta.too_short
            keep_choice(store, view)
        except KeyboardInterrupt:
            sys.stderr.write("\n")
            say(f"interrupted; {path} holds all runs so far, and the same command continues it")
            return INTERRUPTED
        except HeapwrightError:
            args.stdin_needed = not store.remove_if_empty()  # a command that fails at once leaves nothing behind
            raise
    show_result(args, view, report)
    return exit_status(view, bool(too_short)) if args.exit_code else 0


def _searched(
    args: argparse.Namespace, workload: Workload, path: Path, named: list[Allocator], embedded: Allocator | None
) -> list[Allocator]:
    """Return the allocators to search: those that the user named, or else all that can serve the program.

    Args:
        args: the command line.
        workload: the program.
        path: the study's file; an existing study keeps its allocators.
        named: the allocators that the user named.
        embedded: the malloc that is linked into the program, or None.
    """
    serving = serving_allocators(named, embedded, workload.program(workload.inputs[0]))
    return serving or all_allocators(path, names(args.params), embedded, workload.container)


def _on_recordings(
    given: dict[str, Any], allocators: list[Allocator], recorded: tuple[Recordings, Replays]
) -> tuple[list[Allocator], tuple[Recordings, Replays]]:
    """Return the allocators as replays search them, and the recordings with their reference.

    Args:
        given: the options that the user gave.
        allocators: the allocators to search.
        recorded: the recordings, and their replays.

    Raises:
        UsageError: an objective or a requirement is of a metric that replays do not predict.
    """
    from heapwright.study.options import Options
    from heapwright.study.requirement import metrics_of
    from heapwright.trace.recordings import as_replayed

    refuse_unreplayable((*given.get("objectives", Options().objectives), *metrics_of(given.get("requires", ()))))
    allocators = [as_replayed(a, recorded[0]) for a in allocators]
    if len(allocators) == 1:
        only = allocators[0].name
        why = f"Reference: {only} at its defaults, because only its settings are searched."
        recorded = dataclasses.replace(recorded[0], reference=only, reference_why=why), recorded[1]
    return allocators, recorded


def _without_replays(
    args: argparse.Namespace, given: dict[str, Any], is_new: bool, in_container: bool
) -> dict[str, Any]:
    """Return the options, without replays and a runtime's settings where these cannot be searched.

    Args:
        args: the command line.
        given: the options that the user gave.
        is_new: whether the study begins now.
        in_container: whether the program runs in a container.

    Raises:
        UsageError: the user wants replays in a container.
    """
    if (args.space or args.preset) and is_new:
        # A space file may hold the program's own settings; presets repeat papers that ran the
        # program.
        given = {"proxy": "none", "runtime": False, **given}
    if in_container:  # replays and probes of a runtime would run on this machine's C library
        if given.get("proxy", "none") != "none":
            raise UsageError("replays run on this machine, not in a container", "leave out --proxy")
        given = {**given, "proxy": "none", "runtime": False}
    return given
