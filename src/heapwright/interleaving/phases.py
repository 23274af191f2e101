"""Names the phases of a study. Each run is stored with its phase."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """A phase of a study or of a measurement. The value is stored with each run and shown in JSON."""

    CALIBRATE = "calibrate"  # the default only: does it work, and how noisy is it?
    ALLOCATORS = "allocators"  # every allocator at its default settings
    RUNTIMES = "runtimes"  # every setting of the program's runtime alone
    RECORD = "record"  # a recording of the program's allocations
    REPLAY = "replay"  # the search on replays
    REPLAY_WITH_RUNTIME = "replay beside"  # the search on replays of a recording made under a setting of the runtime
    REPLAY_PICK = "replay pick"  # fresh replays of the best setting, where no runs of the program prove it
    CHECK = "check"  # replayed settings, run on the program: do both rank the settings alike?
    RACE = "race"  # the Pareto front of the replays, on the program
    SEARCH = "search"  # the search on the program
    SHORTLIST = "shortlist"  # the best candidates again
    MINIFY = "minify"  # settings dropped one by one
    CONFIRM = "confirm"  # fresh pairs of the default and each pick
    WHOLE_RUN = "whole run"  # one whole run, after a study of prefixes
    LANDSCAPE = "landscape"  # a sweep over one or two settings
    VERIFY = "verify"  # fresh pairs of an older claim
    DONE = "done"

    @staticmethod
    def minify(pick: str) -> str:
        """The phase of the runs that try to drop settings of this pick."""
        return f"{Phase.MINIFY}.{pick}"

    @staticmethod
    def ends(metric: str) -> str:
        """The phase in which the lowest and the highest point of a landscape in this metric run again."""
        return f"ends.{metric}"


# Phases whose runs are replays, not runs of the program.
OF_REPLAYS: tuple[str, ...] = (Phase.REPLAY, Phase.REPLAY_WITH_RUNTIME, Phase.REPLAY_PICK)
