"""`heapwright inspect`: tells without running a program whether it is single- or multi-threaded."""

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
  heapwright inspect main.o parser.o libshapes.a      # judges the files of one link together
  heapwright inspect --no-plugins /usr/bin/gawk       # assumes that plug-ins start no threads
  heapwright inspect -- g++ main.o -lpng -o prog      # judges the program that this command would link

single: the program can reach no function that starts a thread. multi: it can reach one. unknown: it may reach one,
through a library that heapwright does not know, an argument or a plug-in. The evidence names the function, the file
that refers to it, and the path from the program to it.
"""


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "inspect",
        help="tell whether a program is single- or multi-threaded",
        description="Tells whether programs, libraries, or objects and archives to be linked can start threads.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="a program, a library, an object or an archive"
    )
    parser.add_argument(
        "--no-plugins", action="store_true", help="assume that libraries loaded with dlopen start no threads"
    )
    parser.add_argument("--all", action="store_true", help="show all evidence, not only the first five")
    add_output_options(parser)
    parser.set_defaults(run=run, takes_command="optional")


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    from heapwright.link.judge import inspect_files

    if args.command and args.files:
        raise UsageError("files and a command cannot both be given", "leave out one of them")
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
        note = judgement.linked
        built_in = f" with {note.options}" if note.options else ""
        allocator = f"{note.allocator} is linked in, {note.how}" if note.how else "the C library's malloc was kept"
        tell(f"  {allocator}{built_in} (heapwright {note.version})")
    shown = judgement.evidence if everything else judgement.evidence[:5]
    for one in shown:
        tell(f"  {one.says()}" if one.symbol else f"  {one.why}")
        if one.symbol:
            tell(f"    path: {one.via}")
    if len(shown) < len(judgement.evidence):
        tell(f"  and {len(judgement.evidence) - len(shown)} more (--all)")
