"""Simulates how often a study overstates the gain that it recommends. Prints a Markdown table.

    .venv/bin/python tools/choice_coverage.py [--studies 2000]

All rows of the confirmation (one pick, and usual advice) have the same true gain of 3%. Runs vary by 1%, and all rows
of a block share its run of the default. The study recommends one of the rows by the real `judge_pairs`, `final_picks`
and `recommended_pick`. An interval of 95% may lie wholly beyond the true gain in 2.5% of studies.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from heapwright.interleaving.candidates import Comparisons
from heapwright.interleaving.configuration import DEFAULT_ID, Config
from heapwright.interleaving.records import StoredRun
from heapwright.study.claim import recommended_pick
from heapwright.study.confirmation import judge_pairs
from heapwright.study.final_picks import final_picks
from heapwright.study.options import Options
from heapwright.study.policy import Aims
from heapwright.study.view import Confirmation, Evaluation, Pick, Reference

OBJECTIVES = ("cpu_s", "peak_rss_bytes")
PAIRS, NOISE, GAIN = 15, 0.01, 0.97


def runs_of(logs: NDArray[np.float64], objectives: Sequence[str]) -> list[StoredRun]:
    """Runs of the confirmation.

    Args:
        logs: (n_blocks, n_configurations, n_objectives) array of log values; the default comes first.
        objectives: metric keys.
    """
    return [
        StoredRun("confirm", block, "a", number, 1.0, "", "", dict(zip(objectives, 1e8 * np.exp(row), strict=True)), {})
        for block, rows in enumerate(logs)
        for number, row in enumerate(rows, DEFAULT_ID)
    ]


def recommended(rows: int, objectives: Sequence[str], rng: np.random.Generator) -> dict[str, Confirmation] | None:
    """The confirmation of the row that a simulated study recommends; None if it recommends none.

    Args:
        rows: number of rows: a pick, and usual advice.
        objectives: metric keys.
        rng: draws the noise.
    """
    logs = rng.normal(0, NOISE, (PAIRS, 1 + rows, len(objectives)))
    logs[:, 1:] += math.log(GAIN)
    runs = runs_of(logs, objectives)
    configs = {i: Config(i, "toy", {"a": str(i)}, {"A": str(i)}) for i in range(DEFAULT_ID, rows + 2)}
    found = judge_pairs(runs, configs, DEFAULT_ID, Options(objectives=tuple(objectives)))
    first, *others = list(configs.values())[1:]
    searched = Evaluation(1, first, 1, {}, {}, True, "", True)
    pick = Pick("balanced", first, searched, [], found[first.id], "")
    usual = {str(c.id): Reference(str(c.id), c, found[c.id], "") for c in others}
    aims = Aims(tuple(objectives))
    picks, _ = final_picks({"balanced": pick}, usual, aims, Comparisons(runs, configs))
    best = recommended_pick(picks, objectives)
    return best.confirmed if best else None


def overstated(rows: int, objectives: Sequence[str], studies: int) -> tuple[float, float]:
    """The share of recommendations whose interval lies beyond the true gain, and the mean of their ratios.

    Args:
        rows: number of rows with the same gain.
        objectives: metric keys.
        studies: number of simulated studies.
    """
    rng = np.random.default_rng(1)
    found = [c for _ in range(studies) if (of_best := recommended(rows, objectives, rng)) for c in of_best.values()]
    return float(np.mean([c.high < GAIN for c in found])), float(np.exp(np.mean([math.log(c.ratio) for c in found])))


def main() -> None:
    """Simulates and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=2000)
    studies = parser.parse_args().studies
    print("| objectives | rows with equal gains | intervals beyond the true gain | mean gain (true: 3.00%) |")
    print("|---|---|---|---|")
    for objectives in (OBJECTIVES[:1], OBJECTIVES):
        for rows in (1, 3, 6):
            share, ratio = overstated(rows, objectives, studies)
            print(f"| {len(objectives)} | {rows} | {share:.1%} | {1 - ratio:.2%} |")


if __name__ == "__main__":
    main()
