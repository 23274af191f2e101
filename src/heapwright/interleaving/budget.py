"""Divides a study's time budget among its stages, and stops the study at its deadline.

Every second of a session is charged to the next run (or recording) that ends. So a run is charged for itself, for its
set-up, and for the search strategy's computing before it. The charge is stored with the run. A study that is resumed
reads the charges in the same order. So it takes the same decisions, and a finished study measures nothing again.

    seconds charged so far (`spent_s`)   decide when a stage ends; only stored figures count
    the wall clock (`passed`)            decides when the study ends: no run begins after the deadline

When the wall clock ends a study between two runs, the seconds charged by then are stored as its stopping point.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

_TYPICAL_OF = 12  # how many of the latest runs tell the cost of a run now
_FIRST_CHARGES = 2  # runs of a configuration
_RUN = ""  # the name under which runs are charged
_ROUNDING = 1e-6  # relative error up to which two sums of seconds count as equal


@dataclass(frozen=True)
class StageNeed:
    """The number of runs of the program that a stage can use.

    Attributes:
        min_runs: with fewer runs the stage is of no use.
        max_runs: more runs than these are of no use to the stage; infinity for the search.
        share: weight of the stage in dividing the time that is left when every stage has its minimum.
        usual: how many runs the stage commonly uses where time does not limit it.
    """

    min_runs: float
    max_runs: float
    share: float
    usual: float = 0.0


def allot(left_s: float, run_s: float, needs: Mapping[str, StageNeed]) -> dict[str, float]:
    """Divide the time that is left among stages.

    Args:
        left_s: seconds left.
        run_s: seconds that one run of the program takes.
        needs: the stages to come, the most important first: it is served first when time is short.

    Returns:
        Seconds by stage; their sum is at most `left_s`.
    """
    allotted: dict[str, float] = {}
    for name, need in needs.items():
        allotted[name] = min(need.min_runs * run_s, max(0.0, left_s - sum(allotted.values())))
    unsatisfied = {name for name, need in needs.items() if need.max_runs > need.min_runs}
    while unsatisfied and (slack := left_s - sum(allotted.values())) > 1e-9:
        shares = sum(needs[name].share for name in unsatisfied)
        if shares <= 0:
            break
        full: set[str] = set()
        for name in unsatisfied:
            wanted = allotted[name] + slack * needs[name].share / shares
            allotted[name] = min(wanted, needs[name].max_runs * run_s)
            if allotted[name] < wanted:
                full.add(name)
        if not full:
            break
        unsatisfied -= full
    return allotted


class TypicalCost:
    """The cost of one run at present: the median charge of the latest runs, in seconds.

    Of an even number of runs it is the lower median, because the first run of a program reads files from a cold disk.
    """

    def __init__(self) -> None:
        self._latest: list[float] = []
        self._of: dict[int, list[float]] = {}

    def add(self, charged_s: float, config: int | None = None) -> None:
        """Take in the charge of a run, in seconds, and the number of its configuration."""
        self._latest = [*self._latest[-_TYPICAL_OF + 1 :], charged_s]
        if config is not None:
            self._of[config] = [*self._of.get(config, [])[-_TYPICAL_OF + 1 :], charged_s]

    @property
    def seconds(self) -> float:
        """The median; 0 before the first run."""
        return _lower_median(self._latest)

    def of(self, config: int) -> float:
        """The same of the latest runs of one configuration.

        The latest runs of all may be of a configuration that makes the program far slower. The charges of a first run
        or two may contain the computing before them, so these only count if they are less.
        """
        own = self._of.get(config, [])
        if len(own) > _FIRST_CHARGES:
            return _lower_median(own)
        return min(self.seconds, _lower_median(own)) if own else self.seconds


def _lower_median(charges: Sequence[float]) -> float:
    ordered = sorted(charges)
    return ordered[(len(ordered) - 1) // 2] if ordered else 0.0


class Budget:
    """The time of one study.

    Args:
        total_s: seconds for the whole study; 0 for no limit.
        stopped_s: seconds charged when the wall clock ended the study in an earlier session; None if it did not.
        keep_stop: stores that number of seconds.
        began: time on the monotonic clock at which the session began, in seconds; None: now.

    Attributes:
        total_s: seconds for the whole study; infinity for no limit.
        spent_s: seconds charged so far.
        limit_s: the present stage ends when so many seconds are charged.
    """

    def __init__(
        self,
        total_s: float = 0.0,
        stopped_s: float | None = None,
        keep_stop: Callable[[float], None] = lambda _: None,
        began: float | None = None,
    ) -> None:
        self.total_s = total_s or math.inf
        self.spent_s = 0.0
        self.limit_s = self.total_s
        self._stopped_s = stopped_s
        self._keep_stop = keep_stop
        self._since = time.monotonic() if began is None else began
        self._named: set[str] = set()

    @property
    def limited(self) -> bool:
        """Whether there is a deadline."""
        return math.isfinite(self.total_s)

    @property
    def left_s(self) -> float:
        """Seconds until the deadline, by the charges."""
        return max(0.0, self.total_s - self.spent_s)

    @contextmanager
    def limited_to(self, seconds: float) -> Iterator[None]:
        """A context in which at most so many further seconds of the present stage are charged."""
        end_s = self.limit_s
        self.limit_s = min(end_s, self.spent_s + seconds)
        try:
            yield
        finally:
            self.limit_s = end_s

    def charge(self, name: str = _RUN) -> float:
        """Charge the wall time since the last charge to the run that just ended, or to the work of this name.

        Returns:
            The seconds charged.
        """
        self._named.add(name)
        now = time.monotonic()
        seconds, self._since = max(0.0, now - self._since), now
        self.spent_s += seconds
        return seconds

    def charge_elsewhere(self, seconds: float) -> float:
        """Charge a run that another machine made.

        Args:
            seconds: the run's own time divided by the number of machines that work at the same time.
        """
        self._named.add(_RUN)
        self.spent_s += seconds
        self._since = time.monotonic()
        return seconds

    def recall(self, seconds: float, name: str = _RUN) -> None:
        """Count the stored charge of a run or, once only, of the work of this name.

        The time since the last charge is not charged: to look up a stored run costs the study nothing.
        """
        if name == _RUN or name not in self._named:
            self.spent_s += seconds
        self._named.add(name)
        self._since = time.monotonic()

    def set_limit(self, seconds: float) -> None:
        """Let the present stage spend this many seconds from now on."""
        self.limit_s = min(self.total_s, self.spent_s + seconds)

    def extend(self, seconds: float) -> None:
        """Let the present stage spend this many seconds more."""
        self.limit_s = min(self.total_s, self.limit_s + seconds)

    def over(self, ahead_s: float = 0.0) -> bool:
        """Whether the present stage has no time for work that takes `ahead_s` seconds. Only stored figures count."""
        return self.spent_s + ahead_s > self.limit_s * (1 + _ROUNDING) or self.stopped

    @property
    def stopped(self) -> bool:
        """Whether the deadline has ended the study. Then runs that are not stored are not made any more."""
        return self.spent_s >= self.total_s or (self._stopped_s is not None and self.spent_s >= self._stopped_s - 1e-9)

    def passed(self) -> bool:
        """Whether the deadline is over by the wall clock. The first run of a study is always made."""
        if _RUN not in self._named:
            return False
        if self.stopped:
            return True
        if self.spent_s + time.monotonic() - self._since < self.total_s:
            return False
        self._stopped_s = self.spent_s
        self._keep_stop(self.spent_s)
        return True
