"""`heapwright inspect`: one thread or several, told without running it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heapwright.cli.common import add_output_options, write_json
from heapwright.errors import UsageError
from heapwright.terminal_text import tell

if TYPE_CHECKING:
    from heapwright.link.judge import Judgement

_EPILOG = """\
examples:
  heapwright inspect /usr/bin/xz
  heapwright inspect main.o parser.o libshapes.a      one link, judged as a whole
  heapwright inspect --no-plugins /usr/bin/gawk       it loads nothing that starts threads
  heapwright inspect -- g++ main.o -lpng -o prog      what this would link

single: no way to start a thread is reached; multi: one is; unknown: it may be (a library that is not known from the
inside, an argument, a plug-in). The evidence says which function, from which file, by which way.
"""


def add_parser(verbs: Any) -> None:
    """Adds the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "inspect",
        help="tell whether a program is single- or multi-threaded",
        description="Says whether programs, libraries, or objects and archives to be linked can start threads.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--no-plugins", action="store_true", help="what is loaded with dlopen starts no threads")
    parser.add_argument("--all", action="store_true", help="show all evidence, not the first five")
    add_output_options(parser)
    parser.set_defaults(run=run, takes_command=True)


def run(args: argparse.Namespace) -> int:
    """Runs the verb."""
    from heapwright.link.judge import inspect_files

    if args.command and args.files:
        raise UsageError("files and a command cannot both be given", "leave one out")
    if args.command:
        from heapwright.link.driver import inspect_command

        found = [inspect_command(args.command, not args.no_plugins)]
    elif args.files:
        found = inspect_files(list(dict.fromkeys(args.files)), not args.no_plugins)
    else:
        raise UsageError("there is nothing to inspect", "name a program, a library, or objects")
    if args.json:
        first = found[0].as_json() if len(found) == 1 else {}
        write_json(args.json, {**first, "results": [one.as_json() for one in found]})
    if not args.quiet and args.json != "-":
        for one in found:
            _show(one, args.all)
    return 0


def _show(judgement: Judgement, everything: bool) -> None:
    tell(f"{judgement.file}: {judgement.verdict}")
    if judgement.linked:
        what = judgement.linked
        built = f" with {what.options}" if what.options else ""
        allocator = f"{what.allocator} is linked in, {what.how}" if what.how else "the C library's malloc was kept"
        tell(f"  {allocator}{built} (heapwright {what.version})")
    shown = judgement.evidence if everything else judgement.evidence[:5]
    for one in shown:
        tell(f"  {one.says()}" if one.symbol else f"  {one.why}")
        if one.symbol:
            tell(f"    by {one.via}")
    if len(shown) < len(judgement.evidence):
        tell(f"  and {len(judgement.evidence) - len(shown)} more (--all)")
