"""`heapwright link`: runs a link command and links exgen, reaper or a study's allocator into the program."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from heapwright.cli.common import add_pick_option, need_command
from heapwright.errors import UsageError
from heapwright.terminal_text import tell

_EPILOG = """\
examples:
  heapwright link -- g++ main.o parser.o -o prog            # exgen or reaper, as inspect judges the program
  heapwright link --study prog.study -- g++ main.o -o prog  # the pick of a study, its settings built in
  make CC='heapwright link -- gcc' CXX='heapwright link -- g++'
  cmake -DCMAKE_CXX_LINKER_LAUNCHER='heapwright;link;--' ...
  cmake -Dheapwright_ROOT=$(heapwright link --print cmake-dir) ...   # for find_package(heapwright)

The exit status is that of the compiler. A command that links nothing runs unchanged. Shared libraries get no allocator.
"""

PLACES = {
    "libdir": "lib",
    "includedir": "include",
    "cmake-dir": "lib/cmake/heapwright",
    "pkgconfig-dir": "lib/pkgconfig",
}


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "link",
        help="link a program with exgen or reaper",
        description="Runs a link command and links an allocator into the program: exgen"
        " if it has one thread, else reaper.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--allocator", default="", metavar="A", help="link this allocator, whatever the verdict")
    which.add_argument(
        "--study", default="", metavar="FILE", help="link the pick of a study of 'tune', its settings built in"
    )
    add_pick_option(parser)
    parser.add_argument(
        "--options", default="", metavar="K=V,...", help="options to build in, written as in EXGEN_OPTIONS"
    )
    parser.add_argument("--shared", action="store_true", help="link the shared library and set its directory as rpath")
    parser.add_argument(
        "--no-rpath",
        action="store_true",
        help="with --shared: set no rpath, because the loader will find the library by itself",
    )
    parser.add_argument("--secure", action="store_true", help="link the hardened build")
    parser.add_argument(
        "--no-plugins", action="store_true", help="assume that libraries loaded with dlopen start no threads"
    )
    parser.add_argument(
        "--print", choices=tuple(PLACES), dest="place", help="print a directory of this installation and exit"
    )
    parser.set_defaults(run=run, takes_command=True)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    from heapwright.allocators.registry import library_folder

    if args.place:
        tell(str(library_folder().parent / PLACES[args.place]))
        return 0
    from heapwright.link.choose import LinkRequest, check_exgen_options, from_request
    from heapwright.link.driver import run_compiler

    command = need_command(args)
    if args.pick and not args.study:
        raise UsageError("--pick needs --study", "add --study FILE")
    request = LinkRequest(
        allocator=args.allocator,
        study=str(Path(args.study).absolute()) if args.study else "",
        pick=args.pick,
        options=args.options,
        shared=args.shared,
        rpath=not args.no_rpath,
        secure=args.secure,
        plugins=not args.no_plugins,
    )
    check_exgen_options(request.options)
    from_request(request)  # reports an invalid request before the compiler runs
    return run_compiler(command, request)
