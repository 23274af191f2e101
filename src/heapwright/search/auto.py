"""Chooses a search method by budget, parameters and objectives; docs/search.md has the measurements."""

from __future__ import annotations

import math

from heapwright.search.methods import METHODS
from heapwright.search.protocol import Setup, Strategy
from heapwright.terminal_text import counted

GP_UP_TO, CMAES_FROM = 150, 600  # evaluations
_GRID_SHARE = 1.0  # of the budget that a whole grid may take


def choose(setup: Setup, estimated: bool = False) -> tuple[str, str]:
    """Return the name of the method and the reason, as a phrase.

    Args:
        setup: of the search.
        estimated: its budget is about how many runs of the default a time budget holds. Replays may be faster.
    """
    space, budget = setup.space, setup.budget
    count = len(space.params)
    evaluations = counted(budget, "evaluation") if budget else "no limit of evaluations"
    if estimated and budget:
        evaluations = f"time for about {counted(budget, 'run')} of the default"
    settings = counted(count, "setting")
    grid_size = math.prod(len(p.levels) for p in space.params)
    if budget and count <= 2 and grid_size <= _GRID_SHARE * budget:
        return (
            "grid",
            f"all {grid_size} combinations of {settings} fit in {evaluations}",
        )
    if budget and budget <= GP_UP_TO:
        few = f"{evaluations} is little" if estimated else f"a budget of {evaluations} is small"
        return "gp", f"{few} for {settings}: a surrogate model learns most from each evaluation"
    if setup.objectives == 1 and budget >= CMAES_FROM:
        enough = "is enough" if estimated else "are enough"
        return "cmaes", f"{evaluations} for one objective {enough} for an evolution strategy"
    objectives = f"{setup.objectives} objectives" if setup.objectives > 1 else "one objective"
    return "nsga2", f"{evaluations}, {settings}, {objectives}"


def auto(setup: Setup) -> Strategy:
    """Return a new strategy of the chosen method."""
    return METHODS[choose(setup)[0]].make(setup)
