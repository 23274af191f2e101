"""Decides after the confirmation which configuration has which pick name.

The search named the picks. Fresh runs may change that:

    a pick that is worse everywhere than another confirmed row,  passes its name to that row
    and shown to be worse in an objective by direct pairs
    a pick that shows no gain in its own objective               loses its name, if it gains elsewhere;
                                                                 'balanced' if no other pick stands
    a pick that shows a loss and no gain                         is dropped
    a pick that shows nothing, while another shows a gain        is dropped
    no pick is good advice, but a row of usual advice is         that row becomes the study's choice
    no pick shows a gain, but a row of usual advice does,        that row stands with its objection
    at too high a cost

Rows of usual advice are chosen before any run, so luck in the search does not favour them. Luck in the confirmation
would favour the best of several rows, so estimates alone give no name to another row.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from heapwright.interleaving.candidates import Candidate, Comparisons
from heapwright.interleaving.configuration import DEFAULT_ID
from heapwright.interleaving.stats import ALPHA, Ratio, Verdict, ratio_interval
from heapwright.objectives import objective_of_pick
from heapwright.search.pareto import dominates
from heapwright.study.claim import configuration_name, effect, is_proven, losses, recommended_pick
from heapwright.study.policy import Aims
from heapwright.study.requirement import objection as broken
from heapwright.study.view import PICK_NAMES, Confirmation, Evaluation, Pick, PickName, Reference


def final_picks(
    picks: Mapping[PickName, Pick],
    references: Mapping[str, Reference],
    aims: Aims,
    fresh: Comparisons | None = None,
) -> tuple[dict[PickName, Pick], list[str]]:
    """The picks that stand after the confirmation, and sentences about those that do not and about good usual advice.

    Args:
        picks: as named by the search, with their confirmations.
        references: rows of usual advice, confirmed beside them.
        aims: the objectives, and the policy on trade-offs.
        fresh: the runs of the confirmation.
    """
    objectives, fresh = aims.objectives, fresh or Comparisons((), {})
    tested = fresh.to(DEFAULT_ID)
    picks = {name: _assessed(pick, aims, tested) for name, pick in picks.items()}
    rows = {p.config.id: p for p in picks.values()}
    for r in references.values():
        rows.setdefault(r.config.id, _assessed(_as_pick(r), aims, tested))
    proven = [row for row in rows.values() if is_proven(row, objectives)]
    standing: dict[PickName, Pick] = {}
    gone: dict[str, list[PickName]] = {}  # why → names
    if not any(is_proven(p, objectives) and not p.objection for p in picks.values()):
        standing |= _promoted(proven, objectives)
    for name, pick in picks.items():
        if name in standing:
            continue
        better = [row for row in proven if _dominates(row, pick, objectives)]
        better = [row for row in better if _shown_better(row, pick, objectives, fresh, len(rows) - 1)]
        chosen = min(better, key=lambda row: _key(row, name, objectives), default=pick)
        why = _why_not(name, chosen, objectives)
        if (runs := tested.get(pick.config.id)) and runs.failure:
            why = f"{configuration_name(pick.config)} failed in a fresh run: {runs.failure}"
        if not why and proven and not is_proven(chosen, objectives):
            why = f"fresh runs of {configuration_name(chosen.config)} proved no gain"
        if why:
            gone.setdefault(why, []).append(name)
        else:
            standing[name] = dataclasses.replace(chosen, name=name)
    if proven and not standing:  # such as a `time` pick that proves a gain of memory
        fit = [row for row in proven if not row.objection] or proven
        standing["balanced"] = dataclasses.replace(min(fit, key=lambda row: row.score), name="balanced")
    sentences = [f"There is no {' or '.join(names)} pick: {why}." for why, names in gone.items()]
    recommended = recommended_pick(standing, objectives)
    if recommended is not None:
        named = {pick.config.id for pick in standing.values()}
        for usual, row in ((name, rows[r.config.id]) for name, r in references.items()):
            beside = row.config.id not in named and is_proven(row, objectives) and not row.objection
            if beside and (effects := _trade_off(row, recommended, objectives, fresh, len(rows) - 1)):
                compared = f"Compared with the {recommended.name} pick: {'; '.join(effects)}."
                sentences.append(f"{usual}, which is usual advice, also has a proven gain. {compared}")
    return {name: standing[name] for name in PICK_NAMES if name in standing}, sentences


def _assessed(pick: Pick, aims: Aims, fresh: Mapping[int, Candidate]) -> Pick:
    """The pick with the policy's objection and score."""
    objectives, policy, _ = aims
    tested = {m: c for m in objectives if (c := pick.confirmed.get(m)) is not None}
    objection = ""
    if is_proven(pick, objectives):
        limited = policy.objection(pick.confirmed, objectives, fresh.get(pick.config.id))
        objection = broken(pick.requirements) or limited
    return dataclasses.replace(pick, objection=objection, score=policy.score(policy.costs_of(list(tested.values()))))


def _as_pick(reference: Reference) -> Pick:
    """A row of usual advice as a pick; the search has no evaluation of it, so its number is 0."""
    ratios = {metric: c.ratio for metric, c in reference.confirmed.items()}
    searched = Evaluation(0, reference.config, 0, ratios, {}, True, "", False)
    return Pick(
        "balanced",
        reference.config,
        searched,
        [],
        dict(reference.confirmed),
        reference.claim,
        requirements=reference.requirements,
    )


def _promoted(proven: Sequence[Pick], objectives: Sequence[str]) -> dict[PickName, Pick]:
    """The best proven row under each name whose objective it improves."""
    found: dict[PickName, Pick] = {}
    for name in PICK_NAMES:
        fit = [row for row in proven if not row.objection and not _why_not(name, row, objectives)]
        if fit and (name != "balanced" or len(objectives) > 1 or not found):
            found[name] = dataclasses.replace(min(fit, key=lambda row: _key(row, name, objectives)), name=name)
    return found


def _key(row: Pick, name: PickName, objectives: Sequence[str]) -> tuple[float, float]:
    """The sort key of rows under a pick name: the best row has the smallest."""
    costs = _costs(row, objectives)
    own = objective_of_pick(name, objectives)
    return (costs[objectives.index(own)] if own else row.score), row.score


def _costs(row: Pick, objectives: Sequence[str]) -> list[float]:
    """Log ratios; infinite for an objective that was not confirmed."""
    return [math.log(row.confirmed[m].ratio) if m in row.confirmed else math.inf for m in objectives]


def _dominates(row: Pick, pick: Pick, objectives: Sequence[str]) -> bool:
    return bool(pick.confirmed) and dominates(_costs(row, objectives), _costs(pick, objectives))


def _shown_better(row: Pick, pick: Pick, objectives: Sequence[str], fresh: Comparisons, rows: int) -> bool:
    """Whether pairs of two rows show that one is better than the other in an objective.

    Args:
        row, pick: the one that is to be better, and the other.
        objectives: metric keys.
        fresh: the runs of the confirmation.
        rows: how many rows are compared with the pick; the interval is the wider the more there are (Bonferroni).
    """
    return any(ratio.high < 1 for ratio in _compared(row, pick, objectives, fresh, rows).values())


def _compared(row: Pick, pick: Pick, objectives: Sequence[str], fresh: Comparisons, rows: int) -> dict[str, Ratio]:
    """Objective → ratio of the row to the pick by direct pairs, with an interval as in `_shown_better`."""
    direct = fresh.to(pick.config.id).get(row.config.id)
    logs = {m: direct.logs[m] for m in objectives if m in direct.logs} if direct is not None else {}
    confidence = 1 - ALPHA / (rows * len(objectives))
    return {m: ratio_interval(groups, 1, confidence) for m, groups in logs.items()}


def _trade_off(row: Pick, pick: Pick, objectives: Sequence[str], fresh: Comparisons, rows: int) -> list[str]:
    """The effects of a row compared with a pick, if it is shown to be better in an objective; else none."""
    found = _compared(row, pick, objectives, fresh, rows)
    compared = {m: ratio for m, ratio in found.items() if m in row.confirmed and m in pick.confirmed}
    if not any(ratio.high < 1 for ratio in compared.values()):
        return []
    effects = []
    for metric, ratio in compared.items():
        verdict: Verdict = "better" if ratio.high < 1 else "worse" if ratio.low > 1 else "unproven"
        mine, other = row.confirmed[metric], pick.confirmed[metric]
        interval = (ratio.value, ratio.low, ratio.high)
        effects.append(
            effect(Confirmation(metric, *interval, None, mine.pairs, verdict, other.pick_median, mine.pick_median))
        )
    return effects


def _why_not(name: PickName, pick: Pick, objectives: Sequence[str]) -> str:
    """Why a row cannot have a pick name, or empty. A row without a gain may keep its name, unless it shows a loss."""
    worse, runs = losses(pick, objectives), f"fresh runs of {configuration_name(pick.config)}"
    if worse:
        return f"{runs} proved no gain, and a loss: {'; '.join(map(effect, worse))}"
    own = objective_of_pick(name, objectives)
    found = pick.confirmed.get(own) if own else None
    if is_proven(pick, objectives) and found is not None and found.verdict != "better":
        return f"{runs} did not prove this gain: {effect(found)}"
    return ""
