"""`heapwright run`: a command with the chosen setting, in our place."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from heapwright.cli.common import need_command

_EPILOG = """\
example:
  heapwright run heapwright-perl-1a2b3c.study --pick time -- perl report.pl access.log
"""


def add_parser(verbs: Any) -> None:
    """Adds the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "run",
        help="run a command with the chosen setting",
        description="Runs a command with a study's setting, as if it had been started that way.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("study", type=Path, metavar="STUDY")
    parser.add_argument("--pick", choices=("memory", "time", "balanced"), help="which (default: the study's claim)")
    parser.set_defaults(run=run, takes_command=True)


def run(args: argparse.Namespace) -> int:
    """Replaces this process by the command; what else the user has set in the same variables stays."""
    import msgspec

    from heapwright.allocators.space import Context, SpaceFile, build_space
    from heapwright.study.choose import chosen_config
    from heapwright.study.load import view_of
    from heapwright.study.store import read_study
    from heapwright.workload.model import check_command

    command = need_command(args)
    check_command(command[0], Path.cwd())
    with read_study(args.study) as store:
        view = view_of(store)
        file = msgspec.convert(store.get("space"), SpaceFile)
    config = chosen_config(view, args.pick)
    libc = str(view.host.get("libc") or "").removeprefix("glibc ")
    version = libc if config.allocator == "glibc" else ""
    space = build_space(file, Context(version, int(view.host.get("cores") or 1), True, True))
    os.execvpe(command[0], command, {**os.environ, **space.environment(config.settings, os.environ)})
