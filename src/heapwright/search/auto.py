"""Which method suits a study, by its budget, its parameters and its objectives; docs/search.md has measurements."""

from __future__ import annotations

import math

from heapwright.search.protocol import METHODS, Setup, Strategy

_FEW, _MANY = 150, 600  # evaluations
_GRID_SHARE = 1.0  # of the budget that a whole grid may take


def choose(setup: Setup) -> tuple[str, str]:
    """The method's name, and why, as half a sentence."""
    space, budget = setup.space, setup.budget
    count = len(space.params)
    what = f"{budget} evaluations" if budget else "no limit of evaluations"
    whole = math.prod(len(p.levels) for p in space.params)
    if budget and count <= 2 and whole <= _GRID_SHARE * budget:
        return "grid", f"all {whole} combinations of {count} {'setting' if count == 1 else 'settings'} fit in {what}"
    if budget and budget <= _FEW:
        return "gp", f"{what} are few for {count} settings: a model makes the most of each"
    if setup.objectives == 1 and budget >= _MANY:
        return "cmaes", f"{what} for one objective are enough for an evolution strategy"
    several = f"{setup.objectives} objectives" if setup.objectives > 1 else "one objective"
    return "nsga2", f"{what}, {count} settings, {several}"


def auto(setup: Setup) -> Strategy:
    """The chosen method."""
    return METHODS[choose(setup)[0]].make(setup)
