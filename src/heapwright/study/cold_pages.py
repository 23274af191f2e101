"""Says in a study's claims whether huge pages were cold, if the measured programs had any."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from heapwright.interleaving.phases import Phase
from heapwright.interleaving.records import StoredRun
from heapwright.measure.cold_pages import HUGE_BYTES
from heapwright.study.view import Pick, PickName

# In the description of the machine: whether huge pages were cold, and the measurement as a
# sentence.
COLD = "huge_pages_cold"
TOUCH = "huge_page_touch"


def with_cold_pages(
    picks: Mapping[PickName, Pick], runs: Sequence[StoredRun], default: int, host: Mapping[str, Any]
) -> dict[PickName, Pick]:
    """Return the picks; the claim of a pick says whether huge pages were cold if it or the default has some.

    Args:
        picks: by name.
        runs: of the study.
        default: number of the default configuration.
        host: the description of the machine; it has the touches that were measured before the study (`TOUCH`).
    """
    text = str(host.get(TOUCH) or "")
    if not text:
        return dict(picks)

    def with_note(pick: Pick) -> Pick:
        if not (_has_huge_pages(runs, pick.config.id) or _has_huge_pages(runs, default)):
            return pick
        return dataclasses.replace(pick, claim=f"{pick.claim} {text}")

    return {name: with_note(pick) for name, pick in picks.items()}


def _has_huge_pages(runs: Sequence[StoredRun], config: int) -> bool:
    """Whether the runs of a configuration in the confirmation had at least one huge page, by their median."""
    sizes = [
        size
        for run in runs
        if run.phase == Phase.CONFIRM
        and run.config == config
        and not run.failure
        and (size := run.metrics.get("huge_bytes")) is not None
    ]
    return bool(sizes) and statistics.median(sizes) >= HUGE_BYTES
