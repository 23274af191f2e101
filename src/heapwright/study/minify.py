"""Drops settings that do nothing: each goes back to unset where its removal costs nothing that shows.

A search hands over whatever happened to be set in a good point. Settings whose removal is not shown (one-sided
90 %) to cost more than the margin in any objective are dropped together; the result is then held against the
whole point, and settings return, the most valuable first, until no cost shows. The confirmation judges what is
left, so a wrong drop makes the claim smaller, never false.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heapwright.study.blocks import Blocks, Candidate, gather
from heapwright.study.options import MINIFY_ROUNDS
from heapwright.study.stats import harm_proven
from heapwright.study.view import Config
from heapwright.workload.model import Input


def minify(
    config: Config,
    *,
    phase: str,
    blocks: Blocks,
    register: Callable[[dict[str, str]], Config],
    inputs: Sequence[Input],
    objectives: Sequence[str],
    margin: float,
    stop: Callable[[], bool],
) -> tuple[Config, bool]:
    """The smallest setting that is as good as `config` as far as the data show, and whether all were tried.

    Args:
        phase: the store's name for these runs.
        register: makes a configuration from settings.
        stop: whether the time for this phase is over; then the settings left stay.
    """
    if not config.settings:
        return config, True
    if stop():
        return config, False
    settings = dict(config.settings)
    variants = {key: register({k: v for k, v in settings.items() if k != key}) for key in settings}
    most = len(variants) + 1 + 2 * len(variants)  # each alone and the whole; then a whole and a part for each attempt
    blocks.progress.phase(phase, most * MINIFY_ROUNDS * len(inputs))
    first = blocks.first_block(phase, [config])
    measured = _measure(phase, first, config, list(variants.values()), blocks, inputs)
    harm = {key: _harm(measured.get(v.id), objectives, margin) for key, v in variants.items()}
    kept = {key for key, (proven, _) in harm.items() if proven}
    by_value = sorted((key for key in settings if key not in kept), key=lambda key: -harm[key][1])
    for attempt in range(1, len(by_value) + 1):
        smaller = register({k: v for k, v in settings.items() if k in kept})
        if stop():
            return config, False
        measured = _measure(phase, first + attempt * MINIFY_ROUNDS, config, [smaller], blocks, inputs)
        proven, _ = _harm(measured.get(smaller.id), objectives, margin)
        if not proven:
            return smaller, True
        kept.add(by_value[attempt - 1])
    return config, True


def _measure(
    phase: str, first: int, config: Config, others: list[Config], blocks: Blocks, inputs: Sequence[Input]
) -> dict[int, Candidate]:
    runs = blocks.measure_all(phase, first, [[config, *others]] * MINIFY_ROUNDS, inputs)
    return gather(runs, {c.id: c for c in [config, *others]}, config.id)


def _harm(candidate: Candidate | None, objectives: Sequence[str], margin: float) -> tuple[bool, float]:
    """Whether a removal is shown to cost, and how much it seems to cost in the worst objective."""
    if candidate is None or candidate.costs(objectives) is None:
        return True, float("inf")
    logs = [[x for group in candidate.logs[m].values() for x in group] for m in objectives]
    return any(harm_proven(x, margin) for x in logs), max(candidate.costs(objectives) or (0.0,))
