"""Sweeps glibc's mmap_threshold and shows Massif's peak in Valgrind's layout and in the kernel's, and real memory.

Question: does a gain that Massif shows come from glibc, or from the layout that Valgrind gives to programs? In that
layout brk ends at 8 MiB, and glibc's heap then consists of mappings (docs/meter.md, docs/results/papers.md).

    .venv/bin/python tools/massif_sweep.py [--valgrind] NAME[=COMMAND]...

NAME alone is a program of papers_tables.py. Prints one Markdown table per program: rows are thresholds, columns are
changes to glibc's default. `--valgrind` adds a column measured by Massif itself.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from papers_tables import workloads

from heapwright.measure.meter import MeterOptions, run_metered
from heapwright.report.tables import markdown_table

THRESHOLDS = tuple(1 << k for k in range(7, 26, 2))
ROUNDS = 3  # of the runs whose resident memory varies


def peaks(command: list[str], threshold: int | None, valgrind: bool) -> dict[str, float | None]:
    """Measure one setting.

    Args:
        command: the program and its arguments.
        threshold: mmap_threshold in bytes; None for the default.
        valgrind: measure with Massif itself too.

    Returns:
        Column → bytes; None if a run failed or did not tell.
    """
    env = {**os.environ, "PYTHONHASHSEED": "0"}
    if threshold is not None:
        env["MALLOC_MMAP_THRESHOLD_"] = str(threshold)
    found: dict[str, float | None] = {}
    for by in ("emulation", "kernel", *(["valgrind"] if valgrind else [])):
        run = run_metered(command, MeterOptions(massif=True, massif_by=by), env=env)
        found[by] = None if run.exit_code else run.metrics["massif_peak_bytes"]
    runs = [run_metered(command, MeterOptions(backend="notify"), env=env) for _ in range(ROUNDS)]
    for column, key in (("VmPeak", "peak_vm_bytes"), ("resident", "peak_rss_bytes")):
        known = [value for run in runs if not run.exit_code and (value := run.metrics[key])]
        found[column] = statistics.median(known) if len(known) == ROUNDS else None
    return found


def programs(words: Sequence[str], folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yields the name and the command of each program; those of papers_tables.py run in the folder, on its inputs."""
    for word in words:
        name, given, command = word.partition("=")
        if given:
            yield name, shlex.split(command)
        else:
            yield from ((known, list(load.file.command)) for known, load in workloads(folder, [name]))


def _change(value: float | None, default: float | None) -> str:
    return f"{value / default - 1:+.2%}" if value and default else "n/a"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--valgrind", action="store_true", help="measure with Massif itself too")
    parser.add_argument("programs", nargs="+", metavar="NAME[=COMMAND]")
    args = parser.parse_args()
    os.environ["LC_ALL"] = "C"
    with tempfile.TemporaryDirectory(prefix="heapwright-") as folder:
        for name, command in programs(args.programs, Path(folder)):
            default = peaks(command, None, args.valgrind)
            shown = (f"{c} {v / 2**20:.2f} MiB" if v else f"{c} n/a" for c, v in default.items())
            print(f"\n{name}: default " + ", ".join(shown) + "\n")
            rows = [["mmap_threshold", *default]]
            for threshold in THRESHOLDS:
                found = peaks(command, threshold, args.valgrind)
                rows.append([str(threshold), *(_change(found[column], default[column]) for column in default)])
            print("\n".join(markdown_table(rows)), flush=True)


if __name__ == "__main__":
    main()
