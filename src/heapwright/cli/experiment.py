"""`heapwright experiment`: compares search methods on programs, with many seeds and budgets; resumable."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from heapwright.cli.common import add_cluster_option
from heapwright.errors import INTERRUPTED, HeapwrightError, UsageError
from heapwright.terminal_text import say, tell, warn

_EPILOG = """\
examples:
  heapwright experiment methods.toml
  heapwright experiment methods.toml --results-only
  heapwright experiment methods.toml --cluster tcp://head:8786

The file names programs, methods, seeds and budgets (docs/guides/in-a-study.md). Each search is a study in DIR.
After an interruption, the same command continues the experiment. It writes report.html, results.md, results.tex,
summary.csv, tests.csv, ranks.csv, searches.csv, convergence.csv and runs.csv there.
"""


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "experiment",
        help="compare search methods on programs, with many seeds and budgets",
        description="Runs every search method on every program with every seed and budget, and compares the methods:"
        " convergence, evaluations to target, Mann-Whitney tests with effect sizes, and critical differences.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, metavar="FILE.toml", help="the definition of the experiment")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="directory for studies and results (default: the name of the file without .toml)",
    )
    parser.add_argument("--results-only", action="store_true", help="run nothing; compare the finished searches")
    add_cluster_option(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    from heapwright.experiment.definition import expand_searches, load_definition
    from heapwright.experiment.stored_searches import digests_of, exclusive_folder, finished, put_outdated_aside

    definition = load_definition(args.file)
    if args.cluster:
        from heapwright.cluster.settings import read_settings

        read_settings(args.cluster)  # an invalid one fails before a folder is made
    folder: Path = args.output or args.file.with_suffix("")
    if folder == args.file:
        folder = args.file.with_name(f"{args.file.name}.results")
    planned_searches = expand_searches(definition)
    digests = digests_of(planned_searches, definition, args.file.parent)
    if not args.results_only:
        _check(args, definition, planned_searches)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with exclusive_folder(folder):
                put_outdated_aside(digests, folder, say)
                _run(args, definition, planned_searches, folder)
        except KeyboardInterrupt:
            sys.stderr.write("\n")
            say(f"interrupted; {folder} holds all runs so far, and the same command continues the experiment")
            return INTERRUPTED
        except HeapwrightError:
            if finished(digests, folder):
                _write(args, definition, planned_searches, digests, folder)
            raise
    _write(args, definition, planned_searches, digests, folder)
    return 0


def _check(args: argparse.Namespace, definition: Any, planned_searches: list[Any]) -> None:
    """Check the options and allocators of all searches, so that wrong ones fail before anything runs.

    Raises:
        UsageError: an option is wrong, or an allocator is unknown or not on this machine.
        SystemExit: `tune` does not take an option; that is reported.
    """
    from heapwright.cli.chosen_spaces import named_allocators
    from heapwright.cli.tune import given_options
    from heapwright.experiment.run import tune_command

    for planned in {planned.program.name: planned for planned in planned_searches}.values():
        search = args.parse(tune_command(planned, definition, args.file.parent, Path(planned.file)))
        try:
            given_options(search, "")
            if not search.container:  # an image has its own allocators
                named_allocators(search)
        except UsageError as error:
            raise UsageError(f"{args.file}: {error.message}", error.hint) from None


def _run(args: argparse.Namespace, definition: Any, planned_searches: list[Any], folder: Path) -> None:
    """Run the searches that are not finished, here or on a cluster."""
    from heapwright.experiment.run import run_searches

    note = None if args.quiet else say
    if not args.cluster:
        run_searches(planned_searches, definition, args.file.parent, folder, note)
        return
    from heapwright.cluster.searches import run_searches_on

    run_searches_on(args.cluster, planned_searches, definition, args.file.parent, folder, note)


def _write(
    args: argparse.Namespace, definition: Any, planned_searches: list[Any], digests: dict[str, str], folder: Path
) -> None:
    """Write the results of the finished searches."""
    from heapwright.experiment.analysis import analyse, read_search
    from heapwright.experiment.stored_searches import finished
    from heapwright.report.experiment import without_gain, write_results

    done = {file: read_search(study) for file, study in finished(digests, folder).items()}
    if not done:
        raise HeapwrightError(f"{folder} has no finished search of this definition", "leave out --results-only")
    command = shlex.join(["heapwright", "experiment", str(args.file)])
    analysis = analyse(definition, planned_searches, done)
    files = write_results(analysis, folder, command, args.file)
    if flat := without_gain(analysis):
        warn(flat)
    tell(str(files[-1]))
