"""Collects the evidence behind a pick's verdicts: every confirmation pair, and the effect of each setting.

The pairs are those of the confirm phase. The effect of a setting is the change that its removal alone caused in the
minify phase, against the whole configuration in the same block. There are few such runs (five blocks), so the intervals
are wide, and no claim rests on them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from heapwright.interleaving.candidates import gather
from heapwright.interleaving.phases import Phase
from heapwright.interleaving.records import StoredRun
from heapwright.interleaving.stats import ratio_interval
from heapwright.study.options import MINIFY_ROUNDS, Options
from heapwright.study.store import Store
from heapwright.study.view import Pair, Pick, PickName, Removal


def with_evidence(
    picks: Mapping[PickName, Pick],
    store: Store,
    runs: Sequence[StoredRun],
    fresh: Sequence[StoredRun],
    options: Options,
) -> dict[PickName, Pick]:
    """The picks with their pairs and removals.

    Args:
        picks: by name.
        store: the study.
        runs: all runs of the study.
        fresh: the runs of the latest confirmation.
        options: the study's options.
    """
    seen = [r for r in runs if r.phase.startswith(Phase.minify(""))]
    return {
        name: dataclasses.replace(
            pick,
            pairs=_pairs(pick.config.id, fresh, options.objectives),
            removals=_removals(
                pick, [n for n, p in picks.items() if p.searched == pick.searched], store, seen, options
            ),
        )
        for name, pick in picks.items()
    }


def _pairs(pick: int, fresh: Sequence[StoredRun], objectives: Sequence[str]) -> list[Pair]:
    default = {(r.block, r.input): r for r in fresh if r.config == 1 and not r.failure}
    found = []
    for run in sorted((r for r in fresh if r.config == pick and not r.failure), key=lambda r: (r.block, r.input)):
        default_run = default.get((run.block, run.input))
        if default_run is not None:
            found.append(Pair(run.input, _values(default_run, objectives), _values(run, objectives)))
    return found


def _values(run: StoredRun, objectives: Sequence[str]) -> dict[str, float]:
    return {m: v for m in objectives if (v := run.metrics.get(m)) is not None}


def _removals(
    pick: Pick, names: Sequence[str], store: Store, runs: Sequence[StoredRun], options: Options
) -> list[Removal]:
    """The removal of each setting of the searched configuration; empty if the minify phase did not reach it."""
    whole = pick.searched.config
    configs = {whole.id: whole, **{id_: store.config_by_id(id_) for id_ in {r.config for r in runs}}}
    for phase in (Phase.minify(name) for name in names):  # two picks may share a configuration
        start = store.phase_start(phase)
        if start is None:
            continue
        rounds = range(start.first, start.first + MINIFY_ROUNDS)
        measured = [r for r in runs if r.phase == phase and r.block in rounds]
        candidates = gather(measured, configs, whole.id)
        without = {frozenset(c.config.settings.items()): c for c in candidates.values()}
        found = []
        for key, value in whole.settings.items():
            candidate = without.get(frozenset((k, v) for k, v in whole.settings.items() if k != key))
            if candidate is None:
                continue
            changes = {
                m: (ratio.value, ratio.low, ratio.high)
                for m in options.objectives
                if not candidate.failure and min((len(g) for g in candidate.logs.get(m, {}).values()), default=0) > 1
                for ratio in [ratio_interval(candidate.logs[m], options.seed)]
            }
            found.append(Removal(key, value, changes, key in pick.config.settings, candidate.failure))
        if found:
            return found
    return []
