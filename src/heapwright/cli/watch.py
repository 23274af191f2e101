"""`heapwright watch`: the report of a study that still goes on, in a browser on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from heapwright.cli.common import seconds

_EPILOG = """\
examples:
  heapwright watch heapwright-perl-1a2b3c.study
  heapwright watch a.study b.study --port 8080
"""


def add_parser(verbs: Any) -> None:
    """Adds the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "watch",
        help="show a running study live in a browser",
        description="Serves the report of one or several studies on 127.0.0.1 and renews it as they go on. "
        "Nothing can be changed through it. Ctrl-C ends it; the study goes on.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("studies", type=Path, nargs="+", metavar="STUDY")
    parser.add_argument("--port", type=_port, default=8765, metavar="P", help="0: any that is free (default: 8765)")
    parser.add_argument(
        "--every",
        type=seconds,
        default=30.0,
        metavar="S",
        help="make the page anew at most every S seconds: it takes seconds of CPU time, which what is measured "
        "may miss (default: 30)",
    )
    parser.set_defaults(run=run)


def _port(text: str) -> int:
    """An argparse type: a port."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"'{text}' is not a port from 0 to 65535")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Runs the verb."""
    import os

    from heapwright.report.watch import watching
    from heapwright.study.load import load_view

    os.nice(10)
    for study in args.studies:
        load_view(study)  # what is wrong with it should be said now
    with watching(args.studies, args.port, args.every, load_view) as server:
        print(f"http://127.0.0.1:{server.server_port}/", flush=True)
        server.serve_forever()
    return 0
