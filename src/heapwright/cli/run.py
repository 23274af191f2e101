"""`heapwright run`: a command with the chosen setting, in our place."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from heapwright.cli.common import need_command
from heapwright.shown import say, warn

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
    from heapwright.study.choose import chosen_config, kept_choice
    from heapwright.study.local import local_environment
    from heapwright.study.program import changed_sentence, program_of
    from heapwright.study.store import believed, read_study
    from heapwright.workload.model import check_command
    from heapwright.workload.program import command_changes

    command = need_command(args)
    check_command(command[0], Path.cwd())
    env, instead = dict(os.environ), ""
    with read_study(args.study) as store, believed(args.study):
        config = kept_choice(store, args.pick)
        if config is None:
            from heapwright.study.load import view_of

            config = chosen_config(view_of(store), args.pick)
        identity = program_of(store)
        spaces = store.get("spaces") or {}
        measured = str(((store.get("identity") or {}).get("command") or command)[0])
        if not config.is_default or config.env:
            added, instead = local_environment(config.env, config.settings, config.allocator, spaces, os.environ)
            env |= added
    if instead:
        say(f"{config.allocator} is taken from {instead}: the study's library is not here")
    if Path(measured).name != Path(command[0]).name:
        say(f"the study is of another program, {measured}: its claim says nothing of {command[0]}")
    elif identity is not None and (changes := command_changes(identity, command, Path.cwd())):
        warn(f"{changed_sentence(changes)}; 'heapwright verify {args.study}' tells whether its gain still holds")
    os.execvpe(command[0], command, env)
