"""The result of a verification: the verdict, the intervals of the study and of today, and a sentence about them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from heapwright.metrics import METRICS, show_seconds
from heapwright.study.view import MET, Confirmation, Pick, RequirementResult
from heapwright.terminal_text import counted
from heapwright.units import percent, percent_interval

State = Literal["holds", "lost", "undecided"]


@dataclass(frozen=True)
class Verification:
    """The result of a verification.

    Attributes:
        state: the verdict over all objectives.
        states: the verdict on each objective, and on each requirement by its text.
        sentence: the verdict in words, with the intervals of the study and of today.
        then, now: objective → confirmation in the study and in the fresh pairs (95% intervals).
        pairs: number of fresh pairs, of all inputs together.
        wall_s: seconds that the verification took.
        failure: why the setting cannot be used any more, or empty.
        predicted: whether `then` is a prediction of replays.
        objection: why a prediction that is proven is no good advice (`Policy.objection`), or empty.
        costs: a sentence about metrics that are no objectives and clearly grew, or empty.
        bounds: metric → the ratio to the default that its interval must lie below, the wider one of repeated looks.
        requirements: the result of each requirement of the study.
        interrupted: whether the user stopped it; the verdict is that of the pairs so far.
        complete: whether it made all the pairs that a verification may make.
        earlier: number of earlier verifications of the same setting on the same build, of a study of recordings.
    """

    state: State
    states: dict[str, State]
    sentence: str
    then: dict[str, Confirmation]
    now: dict[str, Confirmation]
    pairs: int
    wall_s: float
    failure: str = ""
    predicted: bool = False
    objection: str = ""
    costs: str = ""
    bounds: dict[str, float] = dataclasses.field(default_factory=dict)
    requirements: tuple[RequirementResult, ...] = ()
    interrupted: bool = False
    complete: bool = False
    earlier: int = 0


def overall_verdict(states: Mapping[str, State]) -> State:
    """The verdict over all objectives: lost if one is lost, holds if all hold."""
    if "lost" in states.values():
        return "lost"
    return "holds" if set(states.values()) == {"holds"} else "undecided"


def refused(pick: Pick, why: str, objectives: Sequence[str], predicted: bool = False) -> Verification:
    """The verdict on a setting that no longer reaches the program: nothing needs to be measured.

    Args:
        pick: the pick, with its confirmation in the study.
        why: why the setting does not reach the program.
        objectives: metric keys.
        predicted: whether the study is one of recordings.
    """
    then = {m: pick.confirmed[m] for m in objectives if m in pick.confirmed}
    found = Verification("lost", {}, "", then, {}, 0, 0.0, why, predicted)
    return with_sentence(found)


def with_sentence(found: Verification) -> Verification:
    """Add the sentence: the verdict with the intervals of the study and of today; then costs and requirements."""
    said = "".join(f" Requirement {MET[r.state]}: {r.text} ({r.shown})." for r in found.requirements)
    return dataclasses.replace(found, sentence=_verdict(found) + found.costs + said)


def _verdict(found: Verification) -> str:
    then, now = found.then, found.now
    before, today = ("predicted", "on the program") if found.predicted else ("then", "now")
    lost_text = "The predicted gain is refuted" if found.predicted else "The gain no longer holds"
    both = "; ".join(
        f"{METRICS[m].label} {_change(then[m])} {before}, {_change(now[m]) if m in now else 'n/a'} {today}"
        f"{' (not required: a gain below 1% or 1 MiB)' if _is_ignored(found, m) else ''}"
        for m in then
    )
    pairs = counted(found.pairs, "fresh pair")
    if found.earlier:
        pairs += f", with {counted(found.earlier, 'earlier verification')}"
    if found.failure:
        again = "" if found.predicted else " any more"
        return f"{lost_text}: the setting cannot be used{again}: {found.failure}."
    if found.state == "holds":
        holds = "The gain is proven" if found.predicted else "The gain holds"
        but = f" But {found.objection}." if found.objection else ""
        return f"{holds}: {both} ({pairs}).{but}"
    if found.state == "undecided":
        stopped = "Interrupted, and undecided" if found.interrupted else "Undecided"
        after = f"{stopped} after {counted(found.pairs, 'pair')} in {show_seconds(found.wall_s)}"
        unclear = " and ".join(_bounds_in(found, "undecided", "is {:.1f}% lower", "is at most {:.1f}% higher"))
        asked = f" Not clear, by an interval wider than 95% for repeated looks: whether {unclear}." if unclear else ""
        advice = " A longer --max-time may decide it."
        if found.complete:
            advice = " These are the most pairs: use a quieter machine or a longer input."
        return f"{after}: {both}.{asked}{'' if found.interrupted else advice}"
    any_more = "" if found.predicted else " any more"
    why = "; ".join(_bounds_in(found, "lost", f"is not {{:.1f}}% lower{any_more}", "is more than {:.1f}% higher"))
    why = why or "a requirement is not met"
    return f"{lost_text}: {why}: {both} ({pairs})."


def _is_ignored(found: Verification, metric: str) -> bool:
    """Whether a gain of the study need not remain, because it is too small beside another one."""
    claimed = found.then[metric].verdict == "better" and not found.predicted
    return claimed and found.bounds.get(metric, 0.0) >= 1


def _bounds_in(found: Verification, state: State, lower: str, higher: str) -> list[str]:
    """The bounds of the objectives in a state, such as 'CPU time is not 10.6% lower'.

    Args:
        found: the verification.
        state: of the objectives to name.
        lower, higher: the words for a bound below 1, and for another one; both with a place for the per cent.
    """
    return [
        f"{METRICS[metric].label} {(lower if bound < 1 else higher).format(100 * abs(bound - 1))}"
        for metric, bound in found.bounds.items()
        if found.states[metric] == state
    ]


def _change(c: Confirmation) -> str:
    """'−17.2% [−18.4, −15.9]'."""
    return f"{percent(c.ratio)} {percent_interval(c.low, c.high)}"
