"""Dominance and the three picks."""

from __future__ import annotations

from collections.abc import Sequence

Costs = Sequence[float]


def dominates(a: Costs, b: Costs) -> bool:
    """Whether a is nowhere worse than b and somewhere better."""
    return all(x <= y for x, y in zip(a, b, strict=True)) and any(x < y for x, y in zip(a, b, strict=True))


def front(costs: Sequence[Costs]) -> list[int]:
    """Indices of the points nothing dominates, in order; of equal points, the first."""
    kept = []
    for i, a in enumerate(costs):
        if not any(dominates(b, a) or (j < i and tuple(b) == tuple(a)) for j, b in enumerate(costs)):
            kept.append(i)
    return kept


def thin_front(costs: Sequence[Costs], members: Sequence[int], keep: int) -> list[int]:
    """At most `keep` front members: the best in each objective, the balanced one, then those that spread widest
    (max-min distance).
    """
    import numpy as np  # here, because claims are read in a hurry by what needs no arrays

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


# A loss weighs three times a gain of its size: who asks for a faster program does not expect a larger one.
LOSS_WEIGHT = 3.0


def weighed(costs: Costs) -> float:
    """The sum of log ratios to the default, losses weighing more; one per cent of memory as much as one of time."""
    return sum(c * (LOSS_WEIGHT if c > 0 else 1.0) for c in costs)


def balanced(costs: Sequence[Costs], members: Sequence[int]) -> int:
    """The front member whose gains most outweigh its losses."""
    return min(members, key=lambda i: (weighed(costs[i]), sum(costs[i]), i))
