"""`heapwright kit`: packs the native files for machines and images without Python."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from heapwright.cli.output_files import regular_file
from heapwright.platforms import PLATFORMS, host_platform
from heapwright.terminal_text import say

_EPILOG = """\
examples:
  heapwright kit
  heapwright kit -o kit.tar.gz --platform x86_64-musl,aarch64-musl

The kit has the meter, the recorders, the replayer, heapwright-trace, exgen, reaper and the shell script hw, which
measures, records and runs programs without Python. docs/kit.md shows its use. The same files give the same bytes.
"""


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "kit",
        help="pack meter, recorder and allocators for machines without Python",
        description="Packs the native files of one or more platforms with a shell script that measures and records.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-o",
        "--output",
        type=regular_file,
        default=Path("heapwright-kit.tar.zst"),
        metavar="FILE",
        help="the archive to write: .tar.zst (default heapwright-kit.tar.zst), .tar.gz or .tar",
    )
    parser.add_argument(
        "--platform",
        type=_platforms,
        metavar="ARCH-LIBC,…",
        help=f"platforms to pack (default: this machine's): {', '.join(PLATFORMS)}",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing")
    parser.set_defaults(run=run)


def _platforms(text: str) -> list[str]:
    names = list(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in names:
        if name not in PLATFORMS:
            raise argparse.ArgumentTypeError(f"unknown platform '{name}'; known: {', '.join(PLATFORMS)}")
    return names


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    from heapwright.kit.pack import write_kit

    platforms = args.platform or [host_platform()]
    size = write_kit(args.output, platforms)
    if not args.quiet:
        say(f"{args.output}: {', '.join(platforms)}, {size / 2**20:.1f} MiB")
    return 0
