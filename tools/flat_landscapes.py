"""Simulates how many landscapes of a setting without effect are called flat. Prints a Markdown table.

    .venv/bin/python tools/flat_landscapes.py [--sweeps 400]

The real sweep (tuning/landscape.py) of 21 points runs each point once, on simulated machines. The last
columns are for planted landscapes on the same machines, with one and with three runs of each point:
a cliff (the upper half of the points costs 20% more) and a valley (up to 35%). They show in how
many of them the sweep finds that points differ, and in how many it finds a best point.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.study.fakes import Settings
from tests.study.flat import COURSES, is_flat, sweep


def cliff(settings: Settings, _input: str) -> Mapping[str, float]:
    """A cliff: the upper half costs 20% more than the lower; the default is in the upper half."""
    return {"cpu_s": 1.0 if float(settings.get("size", 1 << 20)) < 1000 else 1.2}


def valley(settings: Settings, _input: str) -> Mapping[str, float]:
    """A valley: the cost is lowest in the middle; the default is at an end."""
    return {"cpu_s": math.exp(0.03 * abs(math.log2(float(settings.get("size", 1 << 20)) / 1024)))}


def main() -> None:
    """Sweeps and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=400)
    sweeps = parser.parse_args().sweeps
    print("| noise | flat | cliff, -n 1 | cliff, -n 3 | valley, -n 1 | valley, -n 3 |\n|---|---|---|---|---|---|")
    with pytest.MonkeyPatch.context() as patch:
        for name, course in COURSES.items():
            flat = sum(is_flat(sweep(course, seed, patch=patch)) for seed in range(sweeps)) / sweeps
            cells = [f"{flat:.1%}"]
            for effect in (cliff, valley):
                for replicates in (1, 3):
                    found = [
                        sweep(course, seed, effect=effect, replicates=replicates, patch=patch)
                        for seed in range(sweeps // 8)
                    ]
                    shares = (sum(t.differs for t in found) / len(found), sum(t.gains for t in found) / len(found))
                    cells.append(" / ".join(f"{share:.0%}" for share in shares))
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
