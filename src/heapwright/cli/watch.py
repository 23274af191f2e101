"""`heapwright watch`: serves the report of a running study to a browser on this machine."""

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
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "watch",
        help="show a running study live in a browser",
        description="Serves the report of one or several studies on 127.0.0.1 and updates it while they run. "
        "The page is read-only. Ctrl-C stops the server; the studies continue.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("studies", type=Path, nargs="+", metavar="STUDY", help="a study's file, which 'tune' writes")
    parser.add_argument(
        "--port", type=_port, default=8765, metavar="P", help="port to listen on; 0 for any free port (default: 8765)"
    )
    parser.add_argument(
        "--every",
        type=seconds,
        default=30.0,
        metavar="S",
        help="renew the page at most every S seconds; each time takes seconds of CPU time, which can disturb the "
        "measurement (default: 30)",
    )
    parser.set_defaults(run=run)


def _port(text: str) -> int:
    """Parse a port number (an argparse type)."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"'{text}' is not a port from 0 to 65535")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    import os

    from heapwright.report.watch import watching
    from heapwright.study.load import load_view

    os.nice(10)
    for study in args.studies:
        load_view(study)  # reports an invalid study before the server starts
    with watching(args.studies, args.port, args.every, load_view) as server:
        print(f"http://127.0.0.1:{server.server_port}/", flush=True)
        server.serve_forever()
    return 0
