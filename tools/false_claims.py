"""Simulates how often a study claims a gain that does not exist. Prints a Markdown table.

    .venv/bin/python tools/false_claims.py [--studies 2000]

The default and three picks are the same program: run times with 2% log-normal noise on a machine
whose speed drifts (a random walk of 0.5% a run, and jumps of 10% once in 20 runs). Each method of
comparison uses the same model.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu

from heapwright.interleaving.stats import ALPHA, holm, ratio_interval, signed_rank_p, verdict

PICKS, PAIRS, SEARCHED, NOISE = 3, 10, 96, 0.02


def machine(runs: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Log run times of identical runs, one after the other."""
    drift = np.cumsum(rng.normal(0, 0.005, runs) + 0.1 * (rng.random(runs) < 0.05) * rng.choice([-1, 1], runs))
    result: NDArray[np.float64] = drift + rng.normal(0, NOISE, runs)
    return result


def best_of_search(rng: np.random.Generator) -> tuple[bool, float]:
    """Whether the best of all seems better than the default, and its apparent gain; each ran once, unpaired."""
    times = machine(SEARCHED + 1, rng)
    gain = times[0] - times[1:].min()
    return gain > 0.005, 1 - np.exp(-gain)


def unpaired(rng: np.random.Generator) -> bool:
    """Ten runs of the default, then ten of each pick, rank-sum test."""
    times = machine((PICKS + 1) * PAIRS, rng).reshape(PICKS + 1, PAIRS)
    ps = [float(mannwhitneyu(t, times[0]).pvalue) for t in times[1:]]
    return any(p < ALPHA and t.mean() < times[0].mean() for p, t in zip(holm(ps), times[1:], strict=True))


def blocks(rng: np.random.Generator) -> bool:
    """heapwright's confirmation: randomised blocks, Student's t interval and adjusted signed-rank test."""
    times = machine((PICKS + 1) * PAIRS, rng).reshape(PAIRS, PICKS + 1)
    times = np.stack([row[np.argsort(rng.random(PICKS + 1))] for row in times])
    logs = (times[:, 1:] - times[:, :1]).T
    ps = holm([signed_rank_p(list(x)) for x in logs])
    return any(verdict(ratio_interval({"": list(x)}, 1), p, 0.005) == "better" for x, p in zip(logs, ps, strict=True))


def main() -> None:
    """Simulates and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=2000)
    studies = parser.parse_args().studies
    rng = np.random.default_rng(1)
    searched = [best_of_search(rng) for _ in range(studies)]
    gain = np.median([g for _, g in searched])
    rows = {
        f"the best of {SEARCHED} searched runs": f"{np.mean([c for c, _ in searched]):.1%} (median gain {gain:.1%})",
        f"{PAIRS} runs each, one after the other": f"{np.mean([unpaired(rng) for _ in range(studies)]):.1%}",
        f"{PAIRS} randomised blocks (heapwright)": f"{np.mean([blocks(rng) for _ in range(studies)]):.1%}",
    }
    print("| claims from | studies that claim a gain that does not exist |\n|---|---|")
    for what, share in rows.items():
        print(f"| {what} | {share} |")


if __name__ == "__main__":
    main()
