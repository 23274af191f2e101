"""Shows the result of a study at the end of `tune`, writes its report, and chooses the exit status."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from heapwright.cli.common import write_json
from heapwright.errors import NO_GAIN, UNDECIDED
from heapwright.terminal_text import console, say, tell

if TYPE_CHECKING:
    from heapwright.study.view import StudyView


def show_result(args: argparse.Namespace, view: StudyView, report: Path) -> None:
    """Print the result, then write the report: a failure there hides no result.

    Args:
        args: the command line.
        view: the finished study.
        report: the path of the report.

    Raises:
        KeyboardInterrupt: a signal ended the report; a line says that it is missing.
    """
    shown = not args.quiet and args.json != "-"
    if args.json:
        from heapwright.report.study_json import tune_json

        write_json(args.json, tune_json(view))
    if shown:
        from heapwright.report.terminal import print_summary

        print_summary(view, console())
        sys.stdout.flush()
    if args.no_report:
        return
    try:
        from heapwright.report.html import write_report

        write_report([view], report)
    except KeyboardInterrupt:
        command = shlex.join(["heapwright", "report", str(view.path), "-o", str(report)])
        say(f"interrupted; {report} is not written, and the study is complete: {command}")
        raise
    if shown:
        tell(f"report: {report}")


def exit_status(view: StudyView, too_short: bool) -> int:
    """Return the status for --exit-code; `too_short` tells whether the time budget held no proof."""
    from heapwright.study.choose import gain_is_proven
    from heapwright.study.claim import recommended_pick

    if gain_is_proven(view):
        return 0
    predicted = view.recordings is not None and recommended_pick(view.picks, view.objectives) is not None
    return UNDECIDED if predicted or too_short else NO_GAIN
