"""Measures the best candidates again, and chooses the picks among those that are still on the Pareto front.

The best of many single runs is partly the luckiest (the winner's curse). So the Pareto front is computed again after
every round, over all candidates, and the next round measures the candidates on it. A lucky candidate falls back, and a
candidate that it had dominated comes up. Once a candidate has new runs, only the new ones count, because luck selected
the old ones. A candidate that is dominated at the end is not chosen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from heapwright.interleaving.blocks import Blocks
from heapwright.interleaving.candidates import Candidate, gather
from heapwright.interleaving.configuration import Config
from heapwright.interleaving.phases import Phase
from heapwright.interleaving.records import StoredRun
from heapwright.objectives import objective_of_pick
from heapwright.search import pareto
from heapwright.study import options as opt
from heapwright.study.policy import Aims
from heapwright.study.view import PickName
from heapwright.workload.model import Input


def measure_again(
    runs: Sequence[StoredRun],
    blocks: Blocks,
    configs: Mapping[int, Config],
    default: Config,
    inputs: Sequence[Input],
    aims: Aims,
) -> list[Candidate]:
    """Measure the front again, round by round, as far as the stage's time allows.

    Args:
        runs: the search's runs of the program.
        blocks: measures; its budget limits the stage.
        configs: configurations by number.
        default: the configuration that ratios refer to.
        inputs: the inputs to run.
        aims: the objectives, and which trade-offs are good advice.

    Returns:
        The candidates that may be chosen: measured again, and dominated by none of those.
    """
    again: list[StoredRun] = []
    costs_of = _costs(gather(runs, configs, default.id), aims)
    if not costs_of:
        return []
    first = blocks.first_block(Phase.SHORTLIST, [default, *(c.config for c in _front(costs_of))])
    blocks.phase(Phase.SHORTLIST, opt.SHORTLIST_ROUNDS * (len(_members(costs_of, aims)) + 1) * len(inputs))
    for number in range(opt.SHORTLIST_MAX):
        members, front = _members(costs_of, aims), _front(costs_of)
        unsure = [c for c in members if c in front and _rounds_of(c, again, inputs) < opt.SHORTLIST_MIN]
        if number >= opt.SHORTLIST_ROUNDS and not unsure:
            break
        a_run = len(inputs) * blocks.typical.seconds
        while len(members) > opt.SHORTLIST_MIN and blocks.budget.over((len(members) + 1) * a_run):
            members = members[:-1]
        if blocks.budget.over((len(members) + 1) * a_run):
            break
        group = [default, *(c.config for c in members)]
        again += blocks.measure_all(Phase.SHORTLIST, first + number, [group], inputs)
        fresh = gather(again, configs, default.id)
        costs_of = _costs(gather(runs, configs, default.id) | fresh, aims)
    # If time ran out, a candidate with only its search run may look better than all that were
    # measured again. It must not exclude them: it was selected for its luck.
    sure = [(c, costs) for c, costs in costs_of if _rounds_of(c, again, inputs)]
    return _front(sure) or _front(costs_of)


Costed = list[tuple[Candidate, tuple[float, ...]]]


def _costs(candidates: Mapping[int, Candidate], aims: Aims) -> Costed:
    """The feasible candidates with their costs."""
    found = ((c, aims.costs(c)) for c in candidates.values())
    return [(c, costs) for c, costs in found if costs is not None]


def _front(costed: Costed) -> list[Candidate]:
    """The candidates that no other dominates."""
    return [costed[i][0] for i in pareto.front([costs for _, costs in costed])]


def _members(costed: Costed, aims: Aims) -> list[Candidate]:
    """The candidates of the next round, best score first: the Pareto front, and the next best if it is small."""
    costs = [c for _, c in costed]
    chosen = pareto.thin_front(costs, pareto.front(costs), opt.SHORTLIST)
    order = sorted(range(len(costed)), key=lambda i: aims.score(costs[i]))
    chosen += [i for i in order if i not in chosen][: max(0, opt.SHORTLIST_MIN - len(chosen))]
    return [costed[i][0] for i in order if i in chosen]


def _rounds_of(candidate: Candidate, again: Sequence[StoredRun], inputs: Sequence[Input]) -> float:
    """Number of rounds in which a candidate was measured again."""
    return sum(r.config == candidate.config.id for r in again) / len(inputs)


def choose_picks(candidates: Sequence[Candidate], aims: Aims) -> dict[PickName, Candidate]:
    """Choose the best candidate in the memory and in the time objective (`objective_of_pick`), and by balanced score.

    A pick that is not better than the default is left out. The pick with the best score comes first.
    """
    if not candidates:
        return {}
    objectives = aims.objectives
    costs = [aims.costs(c) or (math.inf,) * len(objectives) for c in candidates]
    scores = [aims.score(c) for c in costs]
    members = pareto.front(costs)
    picks: dict[PickName, Candidate] = {}
    middle = min(members, key=lambda i: (scores[i], sum(costs[i]), i))
    names: tuple[PickName, ...] = ("memory", "time")
    for name in names:
        own = objective_of_pick(name, objectives)
        if own is None:
            continue
        at = objectives.index(own)
        best = min(members, key=lambda i, at=at: (costs[i][at], sum(costs[i])))  # type: ignore[misc]
        if costs[best][at] < 0:
            picks[name] = candidates[best]
    if (len(objectives) > 1 or not picks) and scores[middle] < 0:
        picks["balanced"] = candidates[middle]
    by_candidate = dict(zip(map(id, candidates), scores, strict=True))
    return dict(sorted(picks.items(), key=lambda item: by_candidate[id(item[1])]))
