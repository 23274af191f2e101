"""`heapwright apply`: the thing to paste."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

from heapwright.cli.common import warn_of_changes
from heapwright.errors import NO_GAIN
from heapwright.terminal_text import say, visible

_EPILOG = """\
examples:
  eval "$(heapwright apply heapwright-perl-1a2b3c.study)"
  heapwright apply heapwright-perl-1a2b3c.study --pick time --format systemd

Exit status: 0 a gain is proven; 3 none is: one line on stderr says so, and what is printed keeps the default; 1 failed;
2 usage. eval never shows the status of the command inside it, so a script that must know asks first:
  settings=$(heapwright apply heapwright-perl-1a2b3c.study) && eval "$settings"
"""


def add_parser(verbs: Any) -> None:
    """Adds the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "apply",
        help="print the settings to paste",
        description="Prints a study's setting for a shell, a wrapper, systemd, a Dockerfile, SLURM or a program.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("study", type=Path, metavar="STUDY")
    parser.add_argument("--pick", choices=("memory", "time", "balanced"), help="which (default: the study's claim)")
    parser.add_argument(
        "--format", choices=("env", "shell", "systemd", "docker", "slurm", "json"), default="env", dest="fmt"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the verb; the exit status says whether what is printed is proven to gain anything."""
    from heapwright.report.apply import render
    from heapwright.study.choose import chosen_pick
    from heapwright.study.claim import is_proven
    from heapwright.study.load import load_view

    warn_of_changes(args.study)
    view = load_view(args.study)
    pick = chosen_pick(view, args.pick)
    config, claim = (pick.config, pick.claim) if pick else (view.default, view.claim)
    command, cwd = view.command, str(view.workload.get("cwd") or "")
    if sys.stdout.isatty():  # to be looked at: nothing in it is obeyed; into a file or a pipe everything goes as it is
        shown = {name: visible(value) for name, value in config.env.items()}
        config, command = dataclasses.replace(config, env=shown), [visible(word) for word in command]
        cwd = visible(cwd)
    text = render(config, args.fmt, command, claim, cwd)
    print(visible(text, "\n") if sys.stdout.isatty() else text, flush=True)
    if pick is not None and is_proven(pick, view.objectives):
        return 0
    what = f"the {pick.name} pick of {args.study}" if pick else str(args.study)
    say(f"no gain is proven for {what}: what is printed keeps the default")
    return NO_GAIN
