#!/usr/bin/env python3
"""Compares each search method with random search on problems with known optima: the table in docs/search.md.

Run `.venv/bin/python tools/search_methods.py`. It takes no options and prints a Markdown table.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.search.planted import PROBLEMS, at_random
from tests.search.test_planted import better, score

from heapwright.search.methods import METHODS

SEARCHES = {
    "gp": 6,
    "local": 20,
    "nsga2": 8,
    "cmaes": 8,
    "sobol": 40,
}  # searches per problem; the seeds differ from those of the tests


def main() -> None:
    """Prints the table as Markdown."""
    print(f"| method, evaluations | {' | '.join(PROBLEMS)} |\n|---|{'---|' * len(PROBLEMS)}")
    for method, searches in SEARCHES.items():
        budget, shares = METHODS[method].budget, []
        for problem in PROBLEMS.values():
            found = [score(method, problem, 100 + seed) for seed in range(searches)]
            chance = [problem.score(at_random(problem.space, budget, seed), seed) for seed in range(40)]
            shares.append(f"{better(found, chance)[0] / len(found) / len(chance):.2f}")
        print(f"| `{method}`, {budget} | {' | '.join(shares)} |", flush=True)


if __name__ == "__main__":
    main()
