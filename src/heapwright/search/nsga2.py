"""Searches with NSGA-II (Deb et al. 2002) from pymoo, with a population of 24 as in GreenMalloc.

The first generation is Sobol points. A setting has two genes, one for whether it is set and one for its level, so
that a setting which crossover unsets keeps its level for a later generation. Infeasible points violate a constraint;
they get no invented cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from heapwright.allocators.space import Point
from heapwright.search.protocol import Observation, Setup
from heapwright.search.sobol import points_from_cube, sobol_cube

POPULATION = 24
# Cost of an infeasible point: pymoo ranks it by its violated constraint but needs a finite number.
_NO_COST = 1e6


class Nsga2:
    """pymoo's mixed-variable NSGA-II behind our protocol."""

    def __init__(self, setup: Setup) -> None:
        from pymoo.algorithms.moo.nsga2 import NSGA2
        from pymoo.core.mixed import (
            MixedVariableDuplicateElimination,
            MixedVariableMating,
        )
        from pymoo.core.population import Population
        from pymoo.core.problem import Problem
        from pymoo.core.termination import NoTermination
        from pymoo.core.variable import Binary, Integer

        self._space = setup.space
        self._objectives = setup.objectives
        sizes = setup.space.sizes
        variables: dict[str, Any] = {}
        self._always = [bool(start) for start in setup.space.starts]
        for i, size in enumerate(sizes):
            if not self._always[i]:
                variables[f"set{i}"] = Binary()
            if size > 1:
                variables[f"level{i}"] = Integer(bounds=(1, size))
        self._problem = Problem(vars=variables, n_obj=setup.objectives, n_ieq_constr=1)
        cube = sobol_cube(len(sizes), POPULATION, setup.seed)
        rng = np.random.default_rng([setup.seed, 1])
        first = [self._encode(p, rng) for p in points_from_cube(setup.space, cube)]
        duplicates = MixedVariableDuplicateElimination()
        self._algorithm = NSGA2(
            pop_size=POPULATION,
            sampling=Population.new("X", np.array(first, dtype=object)),
            mating=MixedVariableMating(eliminate_duplicates=duplicates),
            eliminate_duplicates=duplicates,
        )
        self._algorithm.setup(self._problem, termination=NoTermination(), seed=setup.seed, verbose=False)
        self._asked: Any = None

    def _encode(self, point: Point, rng: np.random.Generator) -> dict[str, Any]:
        """Return the genes of a point; an unset setting gets a random level."""
        genes: dict[str, Any] = {}
        for i, (value, size) in enumerate(zip(point, self._space.sizes, strict=True)):
            if not self._always[i]:
                genes[f"set{i}"] = bool(value)
            if size > 1:
                genes[f"level{i}"] = int(value or rng.integers(1, size + 1))
        return genes

    def _decode(self, genes: dict[str, Any]) -> Point:
        values = [int(genes[f"level{i}"]) if size > 1 else 1 if size else 0 for i, size in enumerate(self._space.sizes)]
        return self._space.normalise([v if genes.get(f"set{i}", True) else 0 for i, v in enumerate(values)])

    def ask(self) -> list[Point]:
        """Return the next generation; empty if pymoo finds no new point."""
        self._asked = self._algorithm.ask()
        if self._asked is None or len(self._asked) == 0:
            return []
        return [self._decode(x) for x in self._asked.get("X")]

    def tell(self, observations: Sequence[Observation]) -> None:
        """Give pymoo the costs of the generation; infeasible points violate the constraint."""
        if not observations:  # after the last generation
            return
        costs = np.array([o.costs or (_NO_COST,) * self._objectives for o in observations], dtype=float)
        violations = np.array([[0.0 if o.costs is not None else 1.0] for o in observations])
        for individual, f, g in zip(self._asked, costs, violations, strict=True):
            individual.set("F", f)
            individual.set("G", g)
            individual.evaluated.update({"F", "G"})
        self._algorithm.evaluator.n_eval += len(observations)
        self._algorithm.tell(infills=self._asked)
