"""Measures of fitness landscapes on a grid of points: neutrality, correlation, distance to the optimum, local optima.

A landscape is a list of costs (smaller is better, None for a point that failed) and the shape of its grid. Neighbours
are one step apart along one axis. A grid of shape (2, 2, …, 2) is the hypercube of bit strings.

Each measure is the one of the paper that its docstring names. Noise makes flat parts look rugged: with a tolerance,
costs that differ by less than it count as equal. `heapwright landscape` takes the noise of a comparison of two points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from heapwright.study.landscape_judge import neighbours

Costs = Sequence[float | None]


@dataclass(frozen=True)
class LocalOptimum:
    """A node of a local optima network.

    Attributes:
        point: its index in the landscape.
        cost: its cost.
        basin: number of points from which the climb ends there, itself included.
    """

    point: int
    cost: float
    basin: int


@dataclass(frozen=True)
class OptimaNetwork:
    """A local optima network.

    Attributes:
        optima: the nodes, best first.
        edges: (from, to) → probability that a random step from a point of one basin leads into the other; nodes are
            indices of `optima`. Edges of a node to itself are its probability to stay. Those from a node sum to 1.
    """

    optima: list[LocalOptimum]
    edges: dict[tuple[int, int], float]


@dataclass(frozen=True)
class LandscapeAnalysis:
    """All measures of a landscape; a measure is None where it is not defined.

    Attributes:
        tolerance: costs that differ by less than this count as equal.
        neutrality: share of neighbour pairs whose costs are equal.
        autocorrelation: at distance 1, 2, … along the axes.
        correlation_length: steps in which the autocorrelation falls to 1/e; None if neighbours are not alike.
        fitness_distance: correlation of cost and distance to the nearest point within the tolerance of the least cost.
        network: local optima.
    """

    tolerance: float
    neutrality: float | None
    autocorrelation: list[float]
    correlation_length: float | None
    fitness_distance: float | None
    network: OptimaNetwork


def neutrality(costs: Costs, shape: Sequence[int], tolerance: float = 0.0) -> float | None:
    """Return the share of neighbour pairs whose costs differ by at most the tolerance.

    Source: Reidys and Stadler, "Neutrality in fitness landscapes", Applied Mathematics and Computation 117, 2001.

    Args:
        costs: of the points, the last axis varying fastest.
        shape: number of points along each axis.
        tolerance: differences up to this are none.

    Returns:
        From 0 to 1; None without two neighbours that have costs.
    """
    steps = [
        abs(a - b) for i, j in neighbours(list(shape)) if (a := costs[i]) is not None and (b := costs[j]) is not None
    ]
    return sum(step <= tolerance for step in steps) / len(steps) if steps else None


def autocorrelation(costs: Costs, shape: Sequence[int], distance: int = 1) -> float | None:
    """Return the autocorrelation of the costs of points that are a distance apart along one axis.

    Source: Weinberger, "Correlated and uncorrelated fitness landscapes and how to tell the difference", Biological
    Cybernetics 63, 1990. All pairs take the place of a random walk, so the value has no sampling error.

    Args:
        costs: of the points, the last axis varying fastest.
        shape: number of points along each axis.
        distance: in steps.

    Returns:
        From -1 to 1; None without a pair, or if all costs are equal.
    """
    known = np.array([c for c in costs if c is not None])
    if len(known) < 2 or known.var() <= 1e-18:
        return None
    pairs = [
        (a, b)
        for i, j in _pairs_at_distance(shape, distance)
        if (a := costs[i]) is not None and (b := costs[j]) is not None
    ]
    if not pairs:
        return None
    mean = known.mean()
    return float(np.mean([(a - mean) * (b - mean) for a, b in pairs]) / known.var())


def _pairs_at_distance(shape: Sequence[int], distance: int) -> list[tuple[int, int]]:
    """Return the pairs of indices that are so many steps apart along one axis."""
    found = []
    for index, at in enumerate(product(*map(range, shape))):
        stride = 1
        for axis in reversed(range(len(shape))):
            if at[axis] + distance < shape[axis]:
                found.append((index, index + distance * stride))
            stride *= shape[axis]
    return found


def correlation_length(first: float | None) -> float | None:
    """Return the steps in which the autocorrelation falls to 1/e, -1 / ln r(1), from the autocorrelation of one step.

    Source: Stadler, "Landscapes and their correlation functions", Journal of Mathematical Chemistry 20, 1996.

    Returns:
        Infinity for r(1) = 1; None if the autocorrelation is not defined, or not positive: then it does not fall
        exponentially.
    """
    if first is None or first <= 0:
        return None
    return math.inf if first >= 1 else -1 / math.log(first)


def fitness_distance(costs: Costs, shape: Sequence[int], tolerance: float = 0.0) -> float | None:
    """Return the correlation of cost and distance to the nearest point of least cost, in steps along the axes.

    With costs, 1 is an easy landscape (the nearer, the better), 0 gives no direction, below 0 it deceives.

    Source: Jones and Forrest, "Fitness distance correlation as a measure of problem difficulty for genetic algorithms",
    ICGA 1995; its values for fitness have the other sign.

    Args:
        costs: of the points, the last axis varying fastest.
        shape: number of points along each axis.
        tolerance: points that differ from the least cost by at most this count too.

    Returns:
        From -1 to 1; None if all costs or all distances are equal.
    """
    where = np.array(list(product(*map(range, shape))))
    known = [i for i, c in enumerate(costs) if c is not None]
    values = np.array([costs[i] for i in known], dtype=float)
    if not known:
        return None
    optima = where[[i for i, v in zip(known, values, strict=True) if v <= values.min() + tolerance]]
    distance = np.array([np.abs(optima - where[i]).sum(axis=1).min() for i in known], dtype=float)
    if values.std() <= 1e-12 or distance.std() == 0:
        return None
    return float(np.corrcoef(values, distance)[0, 1])


def local_optima(costs: Costs, shape: Sequence[int], tolerance: float = 0.0) -> OptimaNetwork:
    """Return the local optima, their basins, and the probabilities of a random step from one basin into another.

    A local optimum is the lowest point of a valley that is deeper than the tolerance: every way to a lower point rises
    above it by more than the tolerance (`_optimum_of`). So a plateau counts as one point. It is an optimum only if no
    way leads down from it. The basin of an optimum has the points from which the climb to the best neighbour ends in
    its valley.

    Sources: Ochoa, Tomassini, Verel and Darabos, "A study of NK landscapes' basins and local optima networks", GECCO
    2008; with plateaus Verel, Ochoa and Tomassini, "Local optima networks of NK landscapes with neutrality", IEEE
    Transactions on Evolutionary Computation 15, 2011; the depth of valleys is that of the barrier trees of Flamm,
    Hofacker, Stadler and Wolfinger, "Barrier trees of degenerate landscapes", Zeitschrift für Physikalische Chemie 216,
    2002.

    Args:
        costs: of the points, the last axis varying fastest.
        shape: number of points along each axis.
        tolerance: a valley that is at most so deep is none.
    """
    known = {i: c for i, c in enumerate(costs) if c is not None}
    adjacent: dict[int, list[int]] = {i: [] for i in known}
    for i, j in neighbours(list(shape)):
        if i in known and j in known:
            adjacent[i].append(j)
            adjacent[j].append(i)
    basins: dict[int, list[int]] = {}
    ends = _optimum_of(known, adjacent, tolerance)
    for point in known:
        basins.setdefault(ends[point], []).append(point)
    order = sorted(basins, key=lambda end: (known[end], end))
    number = {end: n for n, end in enumerate(order)}
    edges: dict[tuple[int, int], float] = {}
    for end in order:
        members = basins[end]
        for point in members:
            around = adjacent[point] or [point]
            for other in around:
                edge = (number[end], number[ends[other]])
                edges[edge] = edges.get(edge, 0.0) + 1 / len(around) / len(members)
    return OptimaNetwork([LocalOptimum(end, float(known[end]), len(basins[end])) for end in order], edges)


def _optimum_of(known: Mapping[int, float], adjacent: Mapping[int, Sequence[int]], tolerance: float) -> dict[int, int]:
    """Return the optimum in whose basin each point is.

    Points are taken from the lowest cost to the highest (flooding with union-find). A point without a lower neighbour
    starts a basin. A point between two basins joins them. If the basin with the higher minimum is at most `tolerance`
    deep, its minimum is no optimum: its points belong to the optimum of the other basin.

    Args:
        known: point → cost.
        adjacent: point → its neighbours.
        tolerance: largest depth of a basin whose minimum is no optimum.
    """

    def key(point: int) -> tuple[float, int]:
        return (known[point], point)

    climb_end: dict[int, int] = {}  # point → the minimum at which the climb to the best neighbours ends
    redirect: dict[int, int] = {}  # minimum of a shallow basin → the end of the climb from the point that joins it
    parent: dict[int, int] = {}  # the union-find forest; the root of a tree is the lowest minimum of a joined basin

    def root(point: int) -> int:
        while parent[point] != point:
            point = parent[point]
        return point

    for point in sorted(known, key=key):
        lower = sorted((p for p in adjacent[point] if p in parent), key=key)
        climb_end[point] = climb_end[lower[0]] if lower else point
        parent[point] = root(lower[0]) if lower else point
        for other in lower[1:]:
            one, two = root(point), root(other)
            if one == two:
                continue
            deep, shallow = sorted((one, two), key=key)
            if known[point] - known[shallow] <= tolerance:
                neighbour = other if deep == two else next(p for p in lower if root(p) == deep)
                redirect[shallow] = climb_end[neighbour]
            parent[shallow] = deep

    def optimum(end: int) -> int:
        while end in redirect:
            end = redirect[end]
        return end

    return {point: optimum(end) for point, end in climb_end.items()}


def analyse_landscape(costs: Costs, shape: Sequence[int], tolerance: float = 0.0) -> LandscapeAnalysis:
    """Return all measures of a landscape.

    Args:
        costs: of the points, the last axis varying fastest; None for a point that failed.
        shape: number of points along each axis.
        tolerance: costs that differ by less than this count as equal.
    """
    lags = [autocorrelation(costs, shape, d) for d in range(1, max(shape, default=1) // 2 + 1)]
    first = lags[0] if lags else autocorrelation(costs, shape)
    return LandscapeAnalysis(
        tolerance,
        neutrality(costs, shape, tolerance),
        [lag for lag in lags if lag is not None],
        correlation_length(first),
        fitness_distance(costs, shape, tolerance),
        local_optima(costs, shape, tolerance),
    )
