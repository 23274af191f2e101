"""`heapwright report`: writes the report of one or several studies as one HTML page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from heapwright.cli.cautions import warn_of_changes
from heapwright.cli.common import write_text
from heapwright.cli.output_files import file_or_stdout, output_file
from heapwright.errors import UsageError
from heapwright.terminal_text import tell

_EPILOG = """\
examples:
  heapwright report heapwright-perl-1a2b3c.study -o report.html
  heapwright report heapwright-perl-1a2b3c.study --csv runs.csv
  heapwright report --extract report.html
"""


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "report",
        help="write the report of a study as one HTML page",
        description="Writes one self-contained HTML page from one or several studies. Reading it needs no network.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("studies", type=Path, nargs="*", metavar="STUDY", help="a study's file, which 'tune' writes")
    parser.add_argument(
        "-o",
        "--output",
        type=output_file,
        metavar="FILE",
        help="the page to write (default: the name of the first study, with .html)",
    )
    parser.add_argument("--extract", type=Path, metavar="FILE.html", help="print the data of a report as JSON")
    parser.add_argument(
        "--csv",
        type=file_or_stdout,
        metavar="FILE",
        help="write every run of the studies instead of the page, one per line: order, evaluation, stage, generation,"
        " seconds, settings, ratios and metrics; '-' writes to stdout",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    import json

    from heapwright.report.html import extract, write_report
    from heapwright.study.load import load_view
    from heapwright.study.open import report_path

    if args.extract is not None:
        write_text("-", json.dumps(extract(args.extract), indent=1) + "\n")
        return 0
    if not args.studies:
        raise UsageError("no study to report", "name one, for example: heapwright report FILE.study")
    if args.csv is not None:
        if args.output is not None:
            raise UsageError("--csv and -o cannot be given together", "give two commands")
        _write_csv(args.studies, args.csv)
        return 0
    first: Path = args.studies[0]
    output: Path = args.output or report_path(first)
    for path in args.studies:
        warn_of_changes(path)
    write_report([load_view(path) for path in args.studies], output)
    tell(str(output))
    return 0


def _write_csv(paths: list[Path], output: Path) -> None:
    """Write every run of the studies; with several studies the first column names the study."""
    from heapwright.cli.common import write_text
    from heapwright.study.export import evaluation_runs, study_csv
    from heapwright.study.store import read_study, study_errors

    runs = {}
    for path in paths:
        with read_study(path) as store, study_errors(path):
            runs[str(path)] = evaluation_runs(store)
    write_text(output, study_csv(runs))
    if str(output) != "-":
        tell(str(output))
