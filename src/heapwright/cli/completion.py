"""`heapwright completion`: what a shell needs to complete verbs, options and files; made from the parser itself."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

_EPILOG = """\
examples:
  heapwright completion bash > ~/.local/share/bash-completion/completions/heapwright
  heapwright completion zsh > ~/.zfunc/_heapwright     # a directory in $fpath
"""


def add_parser(verbs: Any) -> None:
    """Adds the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "completion",
        help="print completion for bash, zsh or tcsh",
        description="Prints what the shell needs to complete heapwright's verbs, options and files.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the verb."""
    import shtab

    from heapwright.cli.main import build_parser

    parser = build_parser()
    for verb in verbs_of(parser).values():
        for action in verb._actions:
            if action.type is Path or "FILE" in str(action.metavar):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, args.shell))
    return 0


def verbs_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The verbs of the command line, by name."""
    (found,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return dict(found.choices)
