"""Counts the runs and seconds of each stage of a study."""

from __future__ import annotations

from typing import Any

import msgspec

from heapwright.interleaving.phases import Phase
from heapwright.interleaving.records import StoredRun
from heapwright.study.options import STAGES
from heapwright.study.prefix import chosen_prefix
from heapwright.study.store import Store
from heapwright.study.view import Stage

_STAGE_OF: dict[str, str] = {
    Phase.REPLAY: Phase.SEARCH,
    Phase.REPLAY_WITH_RUNTIME: Phase.SEARCH,
    Phase.REPLAY_PICK: Phase.SEARCH,
    Phase.CHECK: Phase.SEARCH,
    Phase.RACE: Phase.SEARCH,
}


def stages_of(store: Store, runs: list[StoredRun]) -> list[Stage]:
    """Runs and seconds of each stage. Recordings count for the search, and takeover tests for the allocators."""
    found: dict[str, Stage] = {}

    def add(name: str, runs: int, seconds: float) -> None:
        before = found.get(name, Stage(name, 0, 0.0))
        found[name] = Stage(name, before.runs + runs, before.wall_s + seconds)

    for run in runs:
        if run.phase == Phase.CALIBRATE:
            add(Phase.CALIBRATE, 1, run.charged_s())
    for kept in store.meta.takeover.values():
        add(Phase.ALLOCATORS, 1, _seconds(kept))
    recorded = (store.meta.recorded, store.meta.recorded_beside, store.meta.recorded_again)
    for kept in (facts for found in recorded for facts in found.values()):
        add(Phase.SEARCH, 1, _seconds(kept))
    for run in runs:
        stage = run.phase.partition(".")[0]
        if stage != Phase.CALIBRATE and run.elapsed_s:
            add(_STAGE_OF.get(stage, stage), 1, run.charged_s())
    early = chosen_prefix(store)
    if early is not None and early.whole is not None:
        add(Phase.WHOLE_RUN, 1, early.whole.charged_s)
    order: dict[str, int] = {name: at for at, name in enumerate(STAGES)}
    return sorted(found.values(), key=lambda stage: order.get(stage.name, len(order)))


def _seconds(kept: dict[str, Any]) -> float:
    """The seconds charged to work that is not a run."""
    return msgspec.convert(kept.get("charged_s", 0.0), float)
