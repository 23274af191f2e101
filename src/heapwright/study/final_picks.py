"""Decides after the confirmation which configuration has which pick name.

The search named the picks. Fresh runs may change that:

    a pick that is worse everywhere than another confirmed row   passes its name to that row
    a pick that shows no gain in its own objective               loses its name, if it gains elsewhere;
                                                                 'balanced' if no other pick stands
    a pick that shows a loss and no gain                         is dropped
    a pick that shows nothing, while another shows a gain        is dropped
    no pick is good advice, but a row of usual advice is         that row becomes the study's choice

Rows of usual advice are chosen before any run, so luck in the search does not favour them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from heapwright.metrics import METRICS
from heapwright.search.pareto import dominates
from heapwright.study.claim import effect, is_proven, losses
from heapwright.study.policy import Aims, Policy
from heapwright.study.requirement import objection as broken
from heapwright.study.view import PICK_NAMES, Evaluation, Pick, PickName, Reference


def final_picks(
    picks: Mapping[PickName, Pick],
    references: Mapping[str, Reference],
    aims: Aims,
    failed: Mapping[int, str] | None = None,
) -> tuple[dict[PickName, Pick], list[str]]:
    """The picks that stand after the confirmation, and a sentence about each that does not.

    Args:
        picks: as named by the search, with their confirmations.
        references: rows of usual advice, confirmed beside them.
        aims: the objectives, and the policy on trade-offs.
        failed: configuration's number → why it failed in the confirmation.
    """
    objectives, policy, _ = aims
    picks = {name: _assessed(pick, objectives, policy) for name, pick in picks.items()}
    rows = {p.config.id: p for p in picks.values()}
    for r in references.values():
        rows.setdefault(r.config.id, _assessed(_as_pick(r), objectives, policy))
    proven = [row for row in rows.values() if is_proven(row, objectives)]
    standing: dict[PickName, Pick] = {}
    gone: dict[str, list[PickName]] = {}  # why → names
    if not any(is_proven(p, objectives) and not p.objection for p in picks.values()):
        standing |= _promoted(proven, objectives)
    for name, pick in picks.items():
        if name in standing:
            continue
        better = [row for row in proven if _dominates(row, pick, objectives)]
        chosen = min(better, key=lambda row: _key(row, name, objectives), default=pick)
        why = _why_not(name, chosen, objectives)
        if failure := (failed or {}).get(pick.config.id):
            why = f"it failed in a fresh run: {failure}"
        if not why and proven and not is_proven(chosen, objectives):
            why = "fresh runs proved no gain"
        if why:
            gone.setdefault(why, []).append(name)
        else:
            standing[name] = dataclasses.replace(chosen, name=name)
    fit = [row for row in proven if not row.objection]
    if fit and not standing:  # such as a `time` pick that proves a gain of memory
        best = min(fit, key=lambda row: row.score)
        standing["balanced"] = dataclasses.replace(best, name="balanced")
    sentences = [f"There is no {' or '.join(names)} pick: {why}." for why, names in gone.items()]
    return {name: standing[name] for name in PICK_NAMES if name in standing}, sentences


def _assessed(pick: Pick, objectives: Sequence[str], policy: Policy) -> Pick:
    """The pick with the policy's objection and score."""
    tested = {m: c for m in objectives if (c := pick.confirmed.get(m)) is not None}
    objection = ""
    if is_proven(pick, objectives):
        objection = broken(pick.requirements) or policy.objection(pick.confirmed, objectives)
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


def _own(name: PickName, objectives: Sequence[str]) -> str | None:
    """The objective of a pick name; None for 'balanced'."""
    return next((m for m in objectives if METRICS[m].kind == name), None)


def _key(row: Pick, name: PickName, objectives: Sequence[str]) -> tuple[float, float]:
    """The sort key of rows under a pick name: the best row has the smallest."""
    costs = _costs(row, objectives)
    own = _own(name, objectives)
    return (costs[objectives.index(own)] if own else row.score), row.score


def _costs(row: Pick, objectives: Sequence[str]) -> list[float]:
    """Log ratios; infinite for an objective that was not confirmed."""
    return [math.log(row.confirmed[m].ratio) if m in row.confirmed else math.inf for m in objectives]


def _dominates(row: Pick, pick: Pick, objectives: Sequence[str]) -> bool:
    return bool(pick.confirmed) and dominates(_costs(row, objectives), _costs(pick, objectives))


def _why_not(name: PickName, pick: Pick, objectives: Sequence[str]) -> str:
    """Why a row cannot have a pick name, or empty. A row without a gain may keep its name, unless it shows a loss."""
    worse = losses(pick, objectives)
    if worse:
        return f"fresh runs proved no gain, and a loss: {'; '.join(map(effect, worse))}"
    own = _own(name, objectives)
    found = pick.confirmed.get(own) if own else None
    if is_proven(pick, objectives) and found is not None and found.verdict != "better":
        return f"fresh runs of the best candidate did not prove this gain: {effect(found)}"
    return ""
