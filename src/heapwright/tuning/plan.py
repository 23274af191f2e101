"""Estimates from the time of a study's first run which stages the study will have and how long it will take.

    the budget holds a confirmation, and    the plan names its stages, their runs and the total time
    the first screening before it
    it does not                             nothing can be proven: the study searches on replays and reports their
                                            prediction, or ends at once if a recording does not fit either

The estimate of a stage is the time that the stage usually uses, or its share of the time budget if that is less. Each
stage begins with a new estimate, based on the cost of a run by then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from heapwright.interleaving.budget import StageNeed, allot
from heapwright.interleaving.phases import Phase
from heapwright.metrics import show_estimate, show_seconds
from heapwright.study import options as opt
from heapwright.terminal_text import counted
from heapwright.units import show_budget, show_exactly

_RECORDING = 1.5  # a recording takes at most so many times a run; a search on replays needs `_MIN_REPLAYS` more
_MIN_REPLAYS = 2.0
_ROUND = (
    60,
    120,
    180,
    300,
    600,
    900,
    1200,
    1800,
    2700,
    3600,
)  # recommended budgets, in seconds; then hours
_STAGES: dict[str, str] = {
    Phase.CALIBRATE: "of the program as it is",
    Phase.ALLOCATORS: "to compare allocators",
    Phase.RUNTIMES: "to try the runtime's settings",
    Phase.SEARCH: "to search settings",
    Phase.SHORTLIST: "to measure the best again",
    Phase.MINIFY: "to drop settings that do nothing",
    Phase.CONFIRM: "to confirm",
}


@dataclass(frozen=True)
class StudyEstimate:
    """The expected course of a study.

    Attributes:
        run_s: seconds that one run of the program takes.
        stages: seconds by stage, for the stages to come.
        budget_s: seconds of the time budget; infinite if there is none.
        proof: whether a confirmation and the first screening fit.
        predicts: whether a search on replays fits and is possible, if no proof fits.
        enough_s: a time budget with which a proof fits, in seconds.
        whole_s: seconds for a whole run at the end of a study of prefixes.
        prefix: the prefix in words; empty for whole runs.
        whole: the plan without prefixes, under which the budget holds no proof; None for whole runs.
        why_no_prediction: why replays cannot predict, although they fit; empty if they can, or if it needs no words.
        replays: whether the study is one of recordings: its runs are replays, and it proves nothing.
    """

    run_s: float
    stages: Mapping[str, float]
    budget_s: float
    proof: bool
    predicts: bool
    enough_s: float
    whole_s: float = 0.0
    prefix: str = ""
    whole: StudyEstimate | None = None
    why_no_prediction: str = ""
    replays: bool = False

    @property
    def total_s(self) -> float:
        """Seconds to come."""
        return sum(self.stages.values()) + self.whole_s

    def sentence(self) -> str:
        """The plan in words, for the user."""
        run = "replay" if self.replays else "run"
        one = f"One {run} takes {show_seconds(self.run_s)}."
        if self.whole is not None:
            one = (
                f"One run takes {show_seconds(self.whole.run_s)}. {self.whole.lack()} Memory is near its peak early:"
                f" {self.prefix} is compared{', then one whole run is made' if self.whole_s else ''}."
            )
        if self.proof:
            runs = ", ".join(
                f"{counted(max(1, round(seconds / self.run_s)), run)} {_STAGES[name]}"
                for name, seconds in self.stages.items()
                if seconds >= self.run_s / 2
            )
            return f"{one} The study takes about {show_estimate(self.total_s)}: {runs}."
        if self.predicts:
            return (
                f"{one} {self.lack()} With the given budget heapwright records the program once, searches on replays"
                " and reports a prediction without proof."
            )
        if self.why_no_prediction:
            return f"{one} {self.lack()} Replays cannot predict either: {self.why_no_prediction}. The study ends now."
        return f"{one} {self.lack()}"

    def lack(self) -> str:
        """The number of runs in the budget, and the budget that a proof or a prediction needs."""
        holds = math.floor(self.budget_s / self.run_s)
        run, result = ("replay", "prediction") if self.replays else ("run", "proof")
        return (
            f"A time budget of {show_exactly(self.budget_s)} holds {counted(holds, run)}; a {result} needs --budget"
            f" {show_budget(self.enough_s)}."
        )


def make_plan(
    needs: Mapping[str, StageNeed], run_s: float, left_s: float, budget_s: float, whole_s: float = 0.0
) -> StudyEstimate:
    """Estimate the rest of a study.

    Args:
        needs: the needs of the stages to come (`stages.needs_from`).
        run_s: seconds that one run costs at present.
        left_s: seconds left of the time budget; infinite if there is none.
        budget_s: the time budget; infinite if there is none.
        whole_s: seconds kept for a whole run at the end; not part of `left_s`.
    """
    order = [name for name in opt.STAGES if name in needs]
    usual = {name: needs[name].usual * run_s for name in order}
    allotted = allot(left_s, run_s, needs) if math.isfinite(left_s) else usual
    min_total_s = sum(need.min_runs for name, need in needs.items() if name != Phase.MINIFY) * run_s
    # The more important screening is served before the search. If it gets less than its minimum, the search gets
    # nothing, and the confirmation compares only the usual advice.
    confirm = needs[Phase.CONFIRM].min_runs if Phase.CONFIRM in needs else 0.0
    screening = next((n.min_runs for name, n in needs.items() if name in (Phase.ALLOCATORS, Phase.RUNTIMES)), 0.0)
    return StudyEstimate(
        run_s,
        {name: min(usual[name], allotted[name]) for name in order},
        budget_s,
        proof=(confirm + screening) * run_s <= left_s,
        predicts=(_RECORDING + _MIN_REPLAYS) * run_s <= left_s,
        enough_s=_next_budget((budget_s - left_s if math.isfinite(left_s) else 0.0) + 1.5 * min_total_s),
        whole_s=whole_s,
    )


def _next_budget(seconds: float) -> float:
    """The next larger budget that a person would choose, in seconds."""
    return next((s for s in _ROUND if s >= seconds), 3600.0 * math.ceil(seconds / 3600))
