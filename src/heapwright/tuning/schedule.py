"""Divides a study's time among its stages, and plans the study after its first runs.

Before each stage, `begin` divides the time that is left: every later stage keeps the time that it needs. After the
first run of each input, `plan_study` tells the user which stages follow. If the budget holds too few whole runs to
prove anything, it tries prefixes of runs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import msgspec

from heapwright.interleaving.budget import StageNeed, TypicalCost, allot
from heapwright.interleaving.phases import Phase
from heapwright.interleaving.records import StoredRun
from heapwright.study.prefix import ChosenPrefix, chosen_prefix, find_prefix
from heapwright.tuning.plan import StudyEstimate, make_plan
from heapwright.tuning.session import Session
from heapwright.tuning.stages import SETTINGS, needs_from
from heapwright.workload.model import whole_only, with_prefix

# At most so much of the time that is left after the first runs, which read files from a cold disk, goes into second
# ones. A budget that holds six more such runs may hold a proof with runs that are twice as fast.
WARM_RUNS_SHARE = 1 / 6


def begin(session: Session, stage: str, settings: Collection[int] = ()) -> None:
    """Begin a stage: store the phase and limit the time of the stage.

    Args:
        session: the study's session.
        stage: one of `study.options.STAGES`.
        settings: number of settings of each pick, once that is known.
    """
    session.phase(stage)
    needs = _needs(session, stage, settings)
    expected = _expected(session, needs)
    session.progress.left(expected.total_s, expected.total_s - expected.stages.get(stage, 0.0))
    if session.budget.limited and stage in needs:  # not if the user leaves the stage out
        last = len(needs) == 1  # runs may be slower than estimated, and nobody else needs the time
        session.budget.set_limit(session.left_s if last else allot(session.left_s, session.run_s, needs)[stage])


def _needs(session: Session, stage: str, settings: Collection[int] = ()) -> dict[str, StageNeed]:
    """The time that this stage and later ones can use."""
    workload = session.workload
    counts = (len(workload.train), len(workload.test), len(session.allocators))
    runs_left = session.left_s / session.run_s if session.run_s else math.inf
    needs = needs_from(
        stage,
        session.options,
        *counts,
        session.threads,
        tuple(settings) or SETTINGS,
        runs_left,
        session.extra_levels if session.recordings is None else 0,
        session.runtime_first,
    )
    return needs if session.proof else {name: need for name, need in needs.items() if name == Phase.SEARCH}


def _expected(session: Session, needs: Mapping[str, StageNeed]) -> StudyEstimate:
    total_s = session.options.budget_s or math.inf
    return make_plan(needs, session.run_s, session.left_s, total_s, session.whole_s)


def needs_warm_runs(session: Session) -> bool:
    """Whether the first runs were too slow for a proof, and second ones, with warm caches, are worth their time."""
    if not session.budget.limited or session.recordings is not None:
        return False
    seconds = session.run_s * len(session.workload.inputs)
    return (
        seconds <= WARM_RUNS_SHARE * session.left_s and not _expected(session, _needs(session, Phase.ALLOCATORS)).proof
    )


def plan_study(session: Session, first: Sequence[StoredRun]) -> None:
    """Decide after the first runs whether whole runs, or prefixes of them, can prove anything, and tell the user.

    Args:
        session: the study's session.
        first: the first run of each input.
    """
    plan = _expected(session, _needs(session, Phase.ALLOCATORS))
    if session.recordings is None and not plan.proof:
        plan = _plan_with_prefixes(session, first, plan)
    # A prediction of recordings takes the whole study; where malloc is not searched, there is
    # nothing to replay.
    if session.recordings is not None or session.store.meta.managed.get("reach") == "none":
        plan = replace(plan, predicts=False, replays=session.recordings is not None)
    if plan.predicts and not plan.proof and (why := _why_no_prediction(session)):
        session.store.update(no_prediction=why)
        plan = replace(plan, predicts=False, why_no_prediction=why)
    session.proof, session.predicts = plan.proof, plan.predicts
    session.progress.note(plan.sentence())
    session.store.update(
        plan={
            "total_s": plan.total_s,
            "enough_s": plan.enough_s,
            "began_s": session.spent_s,
            "proof": float(plan.proof),
        }
    )


def _why_no_prediction(session: Session) -> str:
    """Why a study without a proof cannot predict by replays, as far as that is known before a recording."""
    if session.options.proxy == "none":
        inside = session.workload.container is not None
        return "replays do not run in a container" if inside else "the study does without replays (--proxy none)"
    return session.why_not_replayable()


def _plan_with_prefixes(session: Session, first: Sequence[StoredRun], plan: StudyEstimate) -> StudyEstimate:
    """A plan with prefixes of runs, if they show the peak and the budget then holds a proof; else `plan`.

    With prefixes, the study's runs end early from here on, and its objectives are those that a prefix shows.
    """
    file = session.workload.file
    excluded = session.objectives_given or file.prefix is not None or whole_only(file) or session.options.callgrind
    found = None if excluded else find_prefix(first, session.options.objectives)
    if found is None:
        return plan
    prefix, objectives = found
    typical, options, whole_s = session.blocks.typical, session.options, session.run_s * len(first)
    session.blocks.typical = TypicalCost()
    session.blocks.typical.add(prefix.seconds)
    session.options = msgspec.structs.replace(options, objectives=objectives)
    # Without a whole run at the end nothing is claimed (`with_objection`): keep its time before
    # that of other stages.
    for session.whole_s in (whole_s, 0.0):
        shorter = _expected(session, _needs(session, Phase.ALLOCATORS))
        if shorter.proof:
            break
    else:
        session.blocks.typical, session.options = typical, options
        return plan
    session.workload = with_prefix(session.workload, prefix)
    stored = chosen_prefix(session.store)
    session.store.update(
        options=msgspec.to_builtins(session.options),
        prefix=msgspec.to_builtins(ChosenPrefix(prefix, whole_s, stored.whole if stored else None)),
    )
    return replace(shorter, prefix=prefix.shown(), whole=plan)
