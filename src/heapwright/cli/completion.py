"""`heapwright completion`: prints a completion script for a shell, made from the argument parser."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from heapwright.cli.common import write_text
from heapwright.cli.parser import verbs_of

_EPILOG = """\
examples:
  heapwright completion bash > ~/.local/share/bash-completion/completions/heapwright
  heapwright completion zsh > ~/.zfunc/_heapwright     # a directory in $fpath
"""


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "completion",
        help="print completion for bash, zsh or tcsh",
        description="Prints a script with which the shell completes heapwright's verbs, options and files.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="the shell")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    import shtab

    parser: argparse.ArgumentParser = args.parser
    for verb in verbs_of(parser).values():
        for action in verb._actions:
            if action.type is Path or "FILE" in str(action.metavar):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    write_text("-", shtab.complete(parser, args.shell) + "\n")
    return 0
