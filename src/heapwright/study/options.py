"""The options of a study, as stored in its file, and the constants of its stages."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from heapwright.errors import UsageError
from heapwright.interleaving.phases import Phase

STAGES = (
    Phase.CALIBRATE,
    Phase.ALLOCATORS,
    Phase.RUNTIMES,
    Phase.SEARCH,
    Phase.SHORTLIST,
    Phase.MINIFY,
    Phase.CONFIRM,
)
# Calibration: the first run warms caches and is not counted.
CALIBRATE_RUNS = 6
BLOCK = 5  # candidates beside one default
RUNTIME_ROUNDS = 2  # of the screening of a runtime's settings
MIN_RUNTIME_LEVELS = 10  # levels of these settings that a short budget tries too
SHORTLIST = 6  # at most so many candidates are measured again in a round, before the picks are chosen
SHORTLIST_MIN = 2  # and at least so many
SHORTLIST_ROUNDS, SHORTLIST_MAX = 4, 8  # rounds, and how many where the front goes on changing
MIN_GAIN = 0.01  # of a ratio: a smaller gain is not worth a setting
ENOUGH_EVALUATIONS = 12  # a search of fewer settings that finds nothing says nothing
MINIFY_ROUNDS, MINIFY_MIN_ROUNDS, MINIFY_MAX_ROUNDS = 5, 3, 20
CONFIRM_LOOK = 5  # look at the intervals after every so many further pairs
CALIBRATE_SHARE = 0.1  # of a time budget: a long program's default is run less often
REPORT_SHARE, REPORT_STARTS = 0.1, 3.0  # the report's part of a time budget, at most; in times that it took to begin
REPLAY_SHARE = 0.7  # of the search's time, for replays; the rest is for their best on the program
REPLAY_SHARE_WITH_RUNTIME = 0.35  # the same if settings of a runtime are searched, which replays do not show
REPLAY_SHARE_ALONE = 0.9  # the same where replays only predict; the rest is for fresh replays of the best setting
FRESH_REPLAYS = 8  # pairs of fresh replays of the best setting
REFERENCES = 3  # at most so many rows of usual advice stand beside the picks
RACE, RACE_ROUNDS = 10, 2  # members of a front of replays that run on the program, and how often


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A study's options.

    Attributes:
        allocator: registry names, joined by commas, or the name in the user's own space file.
        preset: the published set-up it follows, or empty.
        objectives: metric keys to minimise.
        method: search strategy; 'auto' chooses.
        evaluations: how many candidates to search; 0 when only time limits.
        budget_s: seconds for the whole study; 0 when only evaluations limit.
        proxy: whether to search on replays of the program's allocations: auto, replay (always), none.
        seed: of every random choice.
        margin: equivalence margin of a ratio (0.005 is half a per cent).
        pairs_min, pairs_max: of the confirmation, for each input. 15 pairs miss a group that one run
            in five falls into in 3.5% of studies, 10 pairs in 11%.
        params: only these parameters; empty for all.
        warm_start: studies whose good settings are the first to be tried.
        runtime: search the settings of the program's runtime too.
        expert: also search settings that can slow down or break a program.
        meter: forced meter back end, or auto.
        callgrind, massif, massif_by: see MeterOptions.
        timeout: seconds a run may take; 0: ten times the default's, at least ten seconds.
        axes: of a landscape, KEY:LOW:HIGH:STEP each (`tuning.landscape`); empty for a study of `tune`.
        replicates: runs of each point of a landscape.
        limits, prices: see `study.policy`.
        requires: texts of requirements (`study.requirement`).
        minify: drop settings without effect from the picks.
        search_only: end after the search. The picks are its best single evaluations, and nothing is confirmed.
    """

    allocator: str = "glibc"
    preset: str = ""
    objectives: tuple[str, ...] = ("peak_rss_bytes", "cpu_s")
    method: str = "auto"
    evaluations: int = 96
    budget_s: float = 600.0
    proxy: str = "auto"
    seed: int = 1
    margin: float = 0.005
    pairs_min: int = 15
    pairs_max: int = 40
    params: tuple[str, ...] = ()
    warm_start: tuple[str, ...] = ()
    runtime: bool = True
    expert: bool = False
    meter: str = "auto"
    callgrind: bool = False
    massif: bool = False
    massif_by: str = "kernel"  # of studies from before the choice
    timeout: float = 0.0
    axes: tuple[str, ...] = ()
    replicates: int = 1
    limits: dict[str, float] = {}
    prices: dict[str, float] = {}
    requires: tuple[str, ...] = ()
    minify: bool = True
    search_only: bool = False


# These may differ when a study resumes: they change its length and its advice, not its
# measurements.
EXTENSIBLE = ("evaluations", "budget_s", "pairs_max", "replicates", "limits", "prices", "requires")

NOISY_SPREAD = 0.05  # relative spread of the default above which the user is told
SHORT_RUN_S = 0.005  # of shorter runs most time is process start-up
_BUDGETS = "for example 200, 90s, 15m or 2h"


def parse_budget(text: str) -> tuple[int, float]:
    """'200' → (200, 0), '10m' → (0, 600).

    Raises:
        UsageError: neither a count nor a time.
    """
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?)(s|m|min|h|d)?", text.strip())
    if match is None or (match[2] is None and "." in match[1]):
        raise UsageError(f"--budget '{text}' is neither a count nor a time", _BUDGETS)
    if match[2] is None:
        if int(match[1]) < 1:
            raise UsageError("--budget must be at least 1 evaluation", _BUDGETS)
        return int(match[1]), 0.0
    seconds = float(match[1]) * {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}[match[2]]
    if seconds <= 0:
        raise UsageError(f"--budget '{text}' is not longer than 0 seconds", "for example 90s, 15m or 2h")
    return 0, seconds


def conflicts(stored: Options, given: dict[str, Any]) -> list[str]:
    """The options of this command that contradict those of a stored study, as 'seed 1, not 2'."""
    return [
        f"{name.replace('_', '-')} {_show(getattr(stored, name))}, not {_show(value)}"
        for name, value in given.items()
        if name not in EXTENSIBLE and value != getattr(stored, name)
    ]


def _show(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return (",".join(map(str, value)) or "none") if isinstance(value, tuple) else str(value)
