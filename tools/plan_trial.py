"""Measures how well `tune` predicts its own length and keeps time budgets on a busy machine. Prints a Markdown table.

    .venv/bin/python tools/plan_trial.py [--budget 3m] [--load 4] [--folder out/plan]

Tunes a program of ten lengths, from about 0.05 to 100 seconds a run, beside busy loops (--load).
*Foreseen* is the estimate of the plan after the first run. *Took* is the time from the first run to
the end of the study, without the report. If no proof fits the budget, replays predict the result.
If they do not fit either, the study ends after the first run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HEAPWRIGHT = Path(sys.executable).parent / "heapwright"
SECONDS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 100)
# Builds and drops strings for some seconds of CPU time, the same work in every run of one length.
PROGRAM = "my %h; for (1 .. $ARGV[0]) { $h{$_ * 7919 % 50000} .= 'x' x ($_ % 13); delete $h{$_ % 40000} }"
LOOP = "while :; do :; done"


def calibrated() -> float:
    """Measures the rounds of the program a second of CPU time on this machine."""
    before = os.times()
    subprocess.run(["perl", "-e", PROGRAM, "1000000"], check=True)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return 1_000_000 / max(used, 0.01)


def stored(study: Path, key: str) -> Any:
    """Reads a value from the meta table of a study."""
    with contextlib.closing(sqlite3.connect(study)) as db:
        (text,) = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return json.loads(text)


def main() -> None:
    """Tunes all lengths and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", default="3m")
    parser.add_argument("--load", type=int, default=4, help="number of busy loops")
    parser.add_argument("--folder", type=Path, default=Path("out/plan"))
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    rate = calibrated()
    loops = [subprocess.Popen(["sh", "-c", LOOP], start_new_session=True) for _ in range(args.load)]
    print("| seconds a run | one run under load | foreseen | took | ratio | whole command |\n|---|---|---|---|---|---|")
    try:
        for seconds in SECONDS:
            study = args.folder / f"{seconds:g}.study"
            words = ["tune", "--budget", args.budget, "--study", study.name, "--", "perl", "-e", PROGRAM]
            began = time.monotonic()
            done = subprocess.run(
                [HEAPWRIGHT, *words, str(round(rate * seconds))],
                cwd=args.folder,
                capture_output=True,
                text=True,
                check=False,
            )
            whole_s = time.monotonic() - began
            plan = stored(study, "plan")
            one = re.search(r"One run takes ([^.]+\.\d+ \w+)\.", done.stderr)
            cells = [f"{seconds:g}", one[1] if one else "n/a"]
            took = stored(study, "spent_s") - plan["began_s"]
            if took > 1:
                what = "" if plan["proof"] else ", a prediction"
                cells += [f"{plan['total_s']:.0f} s{what}", f"{took:.0f} s", f"{plan['total_s'] / took:.2f}"]
            else:
                cells += ["nothing fits", "", ""]
            print(f"| {' | '.join([*cells, f'{whole_s:.0f} s'])} |", flush=True)
    finally:
        for loop in loops:
            os.killpg(loop.pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
