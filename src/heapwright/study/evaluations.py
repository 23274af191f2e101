"""Builds the evaluations of a study's search, in order, from its stored runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from heapwright.interleaving.candidates import Candidate, gather
from heapwright.interleaving.configuration import Config
from heapwright.interleaving.phases import Phase
from heapwright.interleaving.records import StoredRun
from heapwright.interleaving.stats import summarise
from heapwright.metrics import NUMERIC
from heapwright.search import pareto
from heapwright.search.quality import FrontQuality, front_quality
from heapwright.study.options import Options
from heapwright.study.view import Evaluation


def evaluations_of(
    candidates: dict[int, Candidate], replayed: dict[int, Candidate], runs: list[StoredRun], options: Options
) -> tuple[list[Evaluation], list[int]]:
    """Return the evaluations of the search, in order, and the Pareto front of those measured on the program.

    Args:
        candidates: the configurations measured on the program, by id.
        replayed: the configurations of which there are only replays, by id.
        runs: all runs of the search.
        options: the study's options.
    """
    feasible = [c for c in candidates.values() if c.costs(options.objectives) is not None]
    costs = [c.costs(options.objectives) or () for c in feasible]
    on_front = {feasible[i].config.id for i in pareto.front(costs)}
    by_config: dict[int, list[StoredRun]] = {}
    for run in runs:
        by_config.setdefault(run.config, []).append(run)
    evaluations: list[Evaluation] = []
    for id_, made in by_config.items():
        candidate = candidates.get(id_) or replayed.get(id_)
        if candidate is None:
            continue
        medians = {}
        for metric in NUMERIC:
            values = [
                v
                for r in made
                if (r.phase == Phase.REPLAY) == (id_ in replayed) and (v := r.metrics.get(metric)) is not None
            ]
            if values:
                medians[metric] = summarise(values).median
        evaluations.append(
            Evaluation(
                len(evaluations) + 1,
                candidate.config,
                candidate.runs,
                {m: math.exp(cost) for m in candidate.logs if (cost := candidate.cost(m)) is not None},
                medians,
                not candidate.failure,
                candidate.failure,
                id_ in on_front,
                id_ in replayed,
            )
        )
    return evaluations, [e.number for e in evaluations if e.on_front]


def not_repeated_sentence(count: int) -> str:
    """Return the warning about configurations that a search method proposed before an interruption and not again."""
    what, it, counts = (
        ("1 configuration", "it", "It counts") if count == 1 else (f"{count} configurations", "them", "They count")
    )
    return (
        f"The search method proposed {what} before an interruption and did not propose {it} again, because it is not"
        f" deterministic, or its code or the budget changed. {counts} for the budget."
    )


def quality_of(
    evaluations: Sequence[Evaluation], runs: Sequence[StoredRun], configs: Mapping[int, Config], options: Options
) -> FrontQuality | None:
    """Return the quality of the Pareto front, by the runs of the shortlist if there are any; else by the search's.

    Args:
        evaluations: of the search.
        runs: all runs of the study.
        configs: configurations by number.
        options: the study's options.
    """
    again = gather([r for r in runs if r.phase == Phase.SHORTLIST], configs, 1)
    costs = [c for candidate in again.values() if (c := candidate.costs(options.objectives)) is not None]
    if costs:
        return front_quality([[math.exp(x) for x in c] for c in costs], options.objectives, repeated=True)
    ratios = [[e.ratios[k] for k in options.objectives] for e in evaluations if e.on_front]
    return front_quality(ratios, options.objectives) if ratios else None
