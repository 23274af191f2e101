"""Sweeps glibc's mmap_threshold and shows Massif's peak in Valgrind's layout and in the kernel's, and real memory.

Question: does a gain that Massif shows come from glibc, or from the layout that Valgrind gives to programs? In that
layout brk ends at 8 MiB, and glibc's heap then consists of mappings (docs/meter.md, docs/results/papers.md).

    tools/massif_sweep.py [--valgrind] NAME=COMMAND...

Prints one Markdown table per program: rows are thresholds, columns are ratios to glibc's default. `--valgrind` adds a
column measured by Massif itself.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics

from heapwright.measure.meter import MeterOptions, run_metered

THRESHOLDS = tuple(1 << k for k in range(7, 26, 2))
ROUNDS = 3  # of the runs whose resident memory varies


def peaks(command: list[str], threshold: int | None, valgrind: bool) -> dict[str, float]:
    """Measure one setting.

    Args:
        command: the program and its arguments.
        threshold: mmap_threshold in bytes; None for the default.
        valgrind: measure with Massif itself too.

    Returns:
        Column → bytes.
    """
    env = {**os.environ, "PYTHONHASHSEED": "0"}
    if threshold is not None:
        env["MALLOC_MMAP_THRESHOLD_"] = str(threshold)
    found: dict[str, float] = {}
    for by in ("emulation", "kernel", *(["valgrind"] if valgrind else [])):
        run = run_metered(command, MeterOptions(massif=True, massif_by=by), env=env)
        found[by] = run.metrics["massif_peak_bytes"] or 0.0
    runs = [run_metered(command, MeterOptions(backend="notify"), env=env) for _ in range(ROUNDS)]
    for column, key in (("VmPeak", "peak_vm_bytes"), ("resident", "peak_rss_bytes")):
        found[column] = statistics.median(run.metrics[key] or 0.0 for run in runs)
    return found


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--valgrind", action="store_true", help="measure with Massif itself too")
    parser.add_argument("programs", nargs="+", metavar="NAME=COMMAND")
    args = parser.parse_args()
    for text in args.programs:
        name, _, words = text.partition("=")
        command = shlex.split(words)
        default = peaks(command, None, args.valgrind)
        print(f"\n{name}: default " + ", ".join(f"{c} {v / 2**20:.2f} MiB" for c, v in default.items()) + "\n")
        print("| mmap_threshold | " + " | ".join(default) + " |")
        print("|---" * (len(default) + 1) + "|")
        for threshold in THRESHOLDS:
            found = peaks(command, threshold, args.valgrind)
            cells = [f"{(found[c] / default[c] - 1) * 100:+.2f} %" if default[c] else "n/a" for c in default]
            print(f"| {threshold} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
