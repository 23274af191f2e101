#!/usr/bin/env python3
"""Runs `heapwright tune -- CMD` without other options on real programs: the table in docs/results/tune.md.

Makes the inputs of tools/programs.py in a folder, tunes one program after the other, and prints
Markdown. An existing study continues, or gives its result at once if it is complete.

    .venv/bin/python tools/tune_programs.py --programs z3,sqlite3,gawk,jq,ruby,g++
    .venv/bin/python tools/tune_programs.py --programs sqlite3 -- --minimize mean_rss,cpu --budget 5m
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from comparing import HEAPWRIGHT

from programs import PROGRAMS, make_inputs

SHORT = {"peak_rss_bytes": "peak RSS", "mean_rss_bytes": "mean RSS", "cpu_s": "CPU", "wall_s": "wall"}


def tune(name: str, folder: Path, options: list[str]) -> tuple[dict[str, Any], float]:
    """Tunes a program.

    Args:
        name: The program's name in tools/programs.py.
        folder: The folder of its inputs, for the study too.
        options: Further options for `tune`.

    Returns:
        The study's JSON, and the wall seconds that `tune` took.
    """
    began = time.monotonic()
    command = [str(HEAPWRIGHT), "tune", "-q", "--study", f"{name}.study", "--json", f"{name}.json", *options, "--"]
    done = subprocess.run([*command, *PROGRAMS[name]], cwd=folder, env={**os.environ, "LC_ALL": "C"}, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: status {done.returncode}")
    return json.loads((folder / f"{name}.json").read_text()), time.monotonic() - began


def _change(found: dict[str, Any]) -> str:
    low, high = found["low"] - 1, found["high"] - 1
    return f"{found['ratio'] - 1:+.1%} [{low:+.1%}, {high:+.1%}] {found['verdict']}"


def rows(name: str, study: dict[str, Any], took: float) -> list[str]:
    """Formats a line for each distinct pick, or one line if there is none.

    Args:
        name: The program's name.
        study: The study's JSON.
        took: The wall seconds that `tune` took.
    """
    proxy = study["proxy"] or {"used": False, "why": "", "agreement": []}
    ground = "replay" if proxy["used"] and not proxy["why"] else "program"
    ranks = ", ".join(
        f"{SHORT.get(a['metric'], a['metric'])} {a['verdict'] if a['rank'] is None else format(a['rank'], '.2f')}"
        for a in proxy["agreement"]
    )
    start = f"| {name} | {took / 60:.1f} min, {study['evaluations']} settings on the {ground} ({ranks}) |"
    by_env: dict[str, list[str]] = {}
    for pick in study["picks"]:
        by_env.setdefault(json.dumps(study["picks"][pick]["env"]), []).append(pick)
    lines = []
    for names in by_env.values():
        pick = study["picks"][names[0]]
        what = " ".join([pick["allocator"], *(f"{k}={v}" for k, v in pick["settings"].items())])
        shown = [_change(pick["confirmed"][m]) for m in study["objectives"] if m in pick["confirmed"]]
        lines.append(f"{start} {' and '.join(names)}: `{what}` | {' | '.join(shown)} |")
        start = "| | |"
    return lines or [f"{start} keep the default | | |"]


def main() -> None:
    """Tunes all programs and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--programs", default="z3,sqlite3,gawk,jq,ruby,g++")
    parser.add_argument("--folder", type=Path, default=Path("out/tune"))
    parser.add_argument("options", nargs="*", help="options for heapwright tune, after --")
    args = parser.parse_args()
    make_inputs(args.folder)
    sys.stdout.write(f"`heapwright tune {shlex.join(args.options)}`\n\n".replace(" `", "`"))
    heads = ["program", "search (rank correlation of replay and program)", "pick", "first objective", "second"]
    sys.stdout.write(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}\n")
    for name in args.programs.split(","):
        sys.stdout.write("\n".join(rows(name, *tune(name, args.folder, args.options))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
