#!/usr/bin/env python3
"""Counts the heap bugs that mallocs notice, each in its own process: the table in docs/allocators.md.

    .venv/bin/python tools/heap_bugs.py glibc exgen exgen-secure reaper-secure ./libother.so

Arguments are names from `heapwright allocators`, exgen-secure and reaper-secure, or paths of
libraries. A bug counts as noticed if it ends the process, if malloc writes a message, or if the bug
does not get its aim (an old block, old data).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from pathlib import Path

from heapwright.allocators.registry import get_allocator

SOURCE = Path(__file__).with_suffix(".cpp")


def outcomes(program: Path, malloc: str) -> dict[str, str]:
    """Maps each kind of bug to the share noticed, as text."""
    allocator = get_allocator(malloc)
    env = {**os.environ, "MIMALLOC_SHOW_ERRORS": "1", **allocator.environment(os.environ)}
    done = subprocess.run([program], env=env, capture_output=True, text=True)
    return {
        kind: f"{noticed} of {made}" for kind, noticed, made in (line.split("\t") for line in done.stdout.splitlines())
    }


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("mallocs", nargs="+", metavar="MALLOC")
    mallocs = parser.parse_args().mallocs
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "heap_bugs"
        subprocess.run(["g++", "-O1", "-fno-builtin", "-w", "-std=c++20", SOURCE, "-o", program], check=True)
        found = {Path(malloc).stem: outcomes(program, malloc) for malloc in mallocs}
    kinds = next(iter(found.values()))
    print("| " + " | ".join(["a bug", *found]) + " |")
    print("|" + "---|" * (len(found) + 1))
    for kind in kinds:
        print("| " + " | ".join([kind, *(found[name].get(kind, "n/a") for name in found)]) + " |")


if __name__ == "__main__":
    main()
