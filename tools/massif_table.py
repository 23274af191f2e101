"""Compares Massif's peak with the one that our meter computes, on programs with up to 1.2 GiB, as a Markdown table.

    .venv/bin/python tools/massif_table.py

The programs are those of tests/meter/test_massif_large.py, with its long ones. A program that is not installed is left
out.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests import built_programs
from tests.meter.test_massif_large import LONG, SHORT, both_peaks, command_of

from heapwright.report.tables import markdown_table


def rows() -> list[list[str]]:
    """The table: a row for each program and setting, the largest peak last."""
    found: list[tuple[int, list[str]]] = []
    with tempfile.TemporaryDirectory(prefix="heapwright-") as name:
        folder = Path(name)
        heap = built_programs.build(Path(__file__).parents[1] / "tests/programs", "massif_heap", (), folder)
        for case in (*SHORT, *LONG):
            words, env = command_of(case, heap)
            if shutil.which(words[0]) is None:
                print(f"<!-- {words[0]} is not installed -->", flush=True)
                continue
            massif, ours = both_peaks(words, env, folder)
            row = [f"`{_shown(case.words)}`", f"`{case.settings}`" if case.settings else "", f"{massif:,}", f"{ours:,}"]
            found.append((massif, [*row, str(ours - massif)]))
    head = ["program", "setting", "Massif's peak, B", "ours, B", "difference, B"]
    return [head, *(row for _, row in sorted(found, key=lambda one: one[0]))]


def _shown(words: str) -> str:
    """The command without its path, shortened, and without what ends a cell of a table."""
    shown = words.removeprefix("/usr/bin/").replace("HEAP", "massif_heap").replace("|", "…")
    return shown if len(shown) <= 60 else shown[:59] + "…"


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "").parse_args()
    print("\n".join(markdown_table(rows())))


if __name__ == "__main__":
    main()
