"""Computes Pareto dominance, Pareto fronts and the balanced compromise. Costs are log ratios, minimised."""

from __future__ import annotations

from collections.abc import Sequence

Costs = Sequence[float]


def dominates(a: Costs, b: Costs) -> bool:
    """Return whether a Pareto-dominates b: no worse in all objectives and better in one."""
    return all(x <= y for x, y in zip(a, b, strict=True)) and any(x < y for x, y in zip(a, b, strict=True))


def front(costs: Sequence[Costs]) -> list[int]:
    """Return the indices of the non-dominated points in order; of equal points only the first.

    Args:
        costs: (n_points, n_objectives).
    """
    members = []
    for i, a in enumerate(costs):
        if not any(dominates(b, a) or (j < i and tuple(b) == tuple(a)) for j, b in enumerate(costs)):
            members.append(i)
    return members


def thin_front(costs: Sequence[Costs], members: Sequence[int], keep: int) -> list[int]:
    """Return at most `keep` members of a front: the best in each objective, the balanced one, then a maximin spread.

    Args:
        costs: (n_points, n_objectives).
        members: indices of the front's members.
        keep: how many to return at most.
    """
    import numpy as np  # imported late: other modules need only the functions without arrays, and start faster

    members = list(members)
    if len(members) <= keep:
        return members
    table = np.array([costs[i] for i in members], dtype=float)
    span = np.ptp(table, axis=0)
    scaled = (table - table.min(axis=0)) / np.where(span > 0, span, 1)
    middle = members.index(balanced(costs, members))
    chosen = list(dict.fromkeys([*(int(i) for i in table.argmin(axis=0)), middle]))[:keep]
    while len(chosen) < keep:
        distance = np.linalg.norm(scaled[:, None, :] - scaled[chosen][None, :, :], axis=2).min(axis=1)
        chosen.append(int(distance.argmax()))
    return sorted(members[i] for i in set(chosen))


# A loss weighs three times as much as a gain of its size: users who want a faster program do not
# expect a larger one.
LOSS_WEIGHT = 3.0


def weighted_score(costs: Costs) -> float:
    """Return the sum of log ratios to the default, with losses weighted by `LOSS_WEIGHT`.

    One per cent of memory counts as much as one per cent of time.
    """
    return sum(c * (LOSS_WEIGHT if c > 0 else 1.0) for c in costs)


def balanced(costs: Sequence[Costs], members: Sequence[int]) -> int:
    """Return the member of the front with the smallest weighted sum: its gains most outweigh its losses."""
    return min(members, key=lambda i: (weighted_score(costs[i]), sum(costs[i]), i))
